package regional_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// audit has one region ask the other, and returns what it found of it.
func audit(t *testing.T, from, to *region) regional.Drift {
	t.Helper()
	for _, x := range from.Audits(from.now) {
		if want := deltasync.AuditSubject(to.name, 0); x.Peer != to.name || x.Subject != want {
			t.Fatalf("an audit of %s on %s, want %s on %s", x.Peer, x.Subject, to.name, want)
		}
		if err := from.ReceiveAudit(from.now, x, to.AnswerAudit(context.Background(), to.now, x.Payload)); err != nil {
			t.Fatal(err)
		}
	}
	return from.Drift(from.now)[0]
}

// What another region counted and did not tell is found, and known from then on.
func TestAuditFindsWhatWasNotTold(t *testing.T) {
	eu, us := newRegion(t, "eu", newStore(&start), "us"), newRegion(t, "us", newStore(&start), "eu")
	e, u := &edge{name: "e1"}, &edge{name: "u1"}
	e.tell(eu, 9, charge(start, 1))
	e.tell(eu, 8, charge(start, 1))
	u.tell(us, 9, charge(start.Add(-3*time.Second), 10), charge(start, 30)) // and no export
	u.tell(us, 7, charge(start, 5))                                         // nobody here knows of it
	d := audit(t, eu, us)
	if d.Region != "us" || d.Keys != 2 || d.Behind != 40 || d.Ratio != 0.4 || d.Ahead != 0 {
		t.Errorf("first audit: %+v, want 40 hits of 2 keys, 0.4 of the limit", d)
	}
	if want := (regional.Compared{Key: 9, Limit: 100, Counted: 40, Behind: 40}); len(d.Worst) != 1 || d.Worst[0] != want {
		t.Errorf("first audit: the worst is %+v, want %+v", d.Worst, want)
	}
	if down := e.tell(eu, 9); charges(down.Totals[0].Others) != 40 {
		t.Errorf("after it eu hears %d of others, want 40", charges(down.Totals[0].Others))
	}
	if d := audit(t, eu, us); d.Behind != 0 || d.Ratio != 0 || len(d.Worst) != 0 || d.Keys != 2 || d.Compared != 4 {
		t.Errorf("second audit: %+v, want no drift", d)
	}
	if vectors := us.Vectors(8); len(vectors) != 0 {
		t.Errorf("a question left %+v", vectors)
	}
}

// Hits that are believed of a region and unknown to it are a loss there, or a bug:
// they are counted, and the region hears of them with its own next audit.
func TestAuditFindsWhatARegionLost(t *testing.T) {
	eu, us := newRegion(t, "eu", newStore(&start), "us"), newRegion(t, "us", newStore(&start), "eu")
	(&edge{name: "e1"}).tell(eu, 9, charge(start, 1))
	(&edge{name: "u1"}).tell(us, 9, charge(start, 40))
	exchange(t, us, eu)
	if d := audit(t, eu, us); d.Ahead != 0 || d.Behind != 0 {
		t.Fatalf("before: %+v, want no drift", d)
	}
	lost := newRegion(t, "us", newStore(&start), "eu") // with its store, and the edge is gone
	(&edge{name: "u2"}).tell(lost, 9, charge(start.Add(-3*time.Second), 2))
	d := audit(t, eu, lost)
	if d.Ahead != 40 || d.Behind != 2 {
		t.Errorf("after the loss: %+v, want 40 hits that us does not know, and 2 that eu did not", d)
	}
	if d := audit(t, lost, eu); d.Behind != 1 || d.Ahead != 0 {
		t.Errorf("us finds %+v, want eu's one hit", d)
	}
	if d := audit(t, eu, lost); d.Ahead != 40 || d.Behind != 0 {
		t.Errorf("after us has asked: %+v, want no hit more", d)
	}
}

// Who lacks what is stored may know less than its region: that says nothing.
func TestAuditOfWhoIsNotSure(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start), "us")
	b := &broken{Store: newStore(&start)}
	us := newRegion(t, "us", b, "eu")
	(&edge{name: "e1"}).tell(eu, 9, charge(start, 1))
	o, up := only(t, eu)
	if err := eu.Receive(start, o, replyAs(t, "us", up.Seq, peers(charge(start, 7)))); err != nil {
		t.Fatal(err)
	}
	b.down = true
	if err := us.Sync(context.Background(), start); err == nil {
		t.Fatal("the store is up")
	}
	if d := audit(t, eu, us); d.Ahead != 0 {
		t.Errorf("%+v, want nothing of who has no store", d)
	}
	b.down = false
	if err := us.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	if d := audit(t, eu, us); d.Ahead != 7 {
		t.Errorf("%+v, want the 7 hits that us never had", d)
	}
}

// What another aggregator of the region has stored is found, and read.
func TestAuditOfTheStore(t *testing.T) {
	mem := newStore(&start)
	first, second := newRegion(t, "eu", mem), newRegion(t, "eu", mem)
	(&edge{name: "e1"}).tell(first, 9, charge(start, 5))
	(&edge{name: "e2"}).tell(second, 9, charge(start, 3))
	drift := func() regional.Drift {
		t.Helper()
		if err := first.AuditStore(context.Background(), start); err != nil {
			t.Fatal(err)
		}
		if err := first.Sync(context.Background(), start); err != nil {
			t.Fatal(err)
		}
		return first.Drift(start)[0]
	}
	if d := drift(); d.Region != "eu" || d.Behind != 3 || d.Ratio != 0.03 {
		t.Errorf("first audit: %+v, want 3 hits of 100", d)
	}
	if d := drift(); d.Behind != 0 || d.Compared != 2 {
		t.Errorf("second audit: %+v, want no drift", d)
	}
	sum := uint64(0)
	for _, v := range first.Vectors(9) {
		sum += charges(v.Cells)
	}
	if sum != 8 {
		t.Errorf("the first aggregator knows of %d hits, want 8", sum)
	}
}

// Of more keys than an audit compares those near their limit come first, and all
// have their turn.
func TestAuditChoosesKeys(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start), "us")
	e := &edge{name: "e1"}
	for key := range deltasync.Key(40) {
		n := uint64(1)
		if key%20 == 0 {
			n = 50
		}
		e.tell(eu, key+1, charge(start, n))
	}
	seen := map[deltasync.Key]int{}
	const rounds = 12
	for range rounds {
		for _, x := range eu.Audits(start) {
			var up deltasync.Up
			if err := up.UnmarshalBinary(x.Payload); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, s := range up.Sections {
				for _, d := range s.Deltas {
					seen[d.Key]++
					n++
				}
			}
			if n != 8 || len(x.Payload) > 256 {
				t.Errorf("an audit asks about %d keys in %d bytes, want 8 in 256 at most", n, len(x.Payload))
			}
		}
	}
	for key := range deltasync.Key(40) {
		if want := 1; seen[key+1] < want || key%20 == 0 && seen[key+1] != rounds {
			t.Errorf("key %d was compared %d times of %d", key+1, seen[key+1], rounds)
		}
	}
}

// Who does not answer is asked less and less often, once a minute in the end, and as
// before when he does.
func TestAuditsOfTheSilentRest(t *testing.T) {
	eu, us := newRegion(t, "eu", newStore(&start), "us"), newRegion(t, "us", newStore(&start), "eu")
	(&edge{name: "e1"}).tell(eu, 9, charge(start, 1))
	var asked []int
	for second := range 50 { // the key is in its window
		eu.now = start.Add(time.Duration(second) * time.Second)
		for _, x := range eu.Audits(eu.now) {
			asked = append(asked, second)
			eu.LostAudit(eu.now, x)
		}
	}
	if want := []int{0, 2, 6, 14, 30}; !slices.Equal(asked, want) {
		t.Errorf("asked in vain after %v s, want %v", asked, want)
	}
	eu.now = start.Add(62 * time.Second)
	us.now = eu.now
	(&edge{name: "e1"}).tell(eu, 9, charge(eu.now, 1))
	audit(t, eu, us)
	eu.now = eu.now.Add(time.Second)
	if n := len(eu.Audits(eu.now)); n != 1 {
		t.Errorf("a second after an answer there are %d audits, want 1", n)
	}
	for range 20 {
		eu.LostAudit(eu.now, regional.Audit{Outgoing: regional.Outgoing{Peer: "us"}})
	}
	if n := len(eu.Audits(eu.now.Add(-time.Hour))); n != 1 {
		t.Errorf("after the clock was set back there are %d audits, want 1", n)
	}
}

func TestAuditRefusesNonsense(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start), "us")
	question := func(change func(*deltasync.Up)) []byte {
		up := deltasync.Up{
			Kind: deltasync.KindRegion, Region: "us", Name: "a1", Node: deltasync.NodeID("us", "", ""), Lanes: 1, Seq: 1,
			Sections: []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Flags: deltasync.FlagTouch}}}},
		}
		change(&up)
		b, err := up.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, payload := range map[string][]byte{
		"no frame":       {1, 2, 3},
		"its own":        question(func(u *deltasync.Up) { u.Region, u.Node = "eu", deltasync.NodeID("eu", "", "") }),
		"another's node": question(func(u *deltasync.Up) { u.Node++ }),
		"other lanes":    question(func(u *deltasync.Up) { u.Lanes = 2 }),
		"it tells":       question(func(u *deltasync.Up) { u.Sections[0].Deltas[0].Cells = []crdt.Cell{charge(start, 1)} }),
		"too many keys": question(func(u *deltasync.Up) {
			for key := range deltasync.Key(64) {
				u.Sections[0].Deltas = append(u.Sections[0].Deltas, deltasync.Delta{Key: 100 + key, Flags: deltasync.FlagTouch})
			}
		}),
	} {
		var down deltasync.Down
		want := deltasync.StatusForbidden
		if name == "no frame" || name == "other lanes" {
			want = deltasync.StatusUnsupported
		}
		if err := down.UnmarshalBinary(eu.AnswerAudit(context.Background(), start, payload)); err != nil || down.Status != want || len(down.Totals) != 0 {
			t.Errorf("%s: it is answered with %+v, %v, want status %s alone", name, down, err, want)
		}
	}
	good := question(func(*deltasync.Up) {})
	if reply := eu.AnswerAudit(context.Background(), start, good); reply == nil {
		t.Error("a good question is not answered")
	}
	(&edge{name: "e1"}).tell(eu, 9, charge(start, 1))
	asked := eu.Audits(start)
	if len(asked) != 1 {
		t.Fatalf("%d audits, want 1", len(asked))
	}
	for name, reply := range map[string][]byte{
		"no frame":         nil,
		"another region's": replyAs(t, "jp", asked[0].Seq, peers(charge(start, 7))),
		"another question": replyAs(t, "us", asked[0].Seq+1, peers(charge(start, 7))),
		"too many totals":  replyAs(t, "us", asked[0].Seq, peers(charge(start, 7)), peers(charge(start, 7))),
	} {
		if err := eu.ReceiveAudit(start, asked[0], reply); err == nil {
			t.Errorf("%s: the answer is taken", name)
		}
	}
	if d := eu.Drift(start)[0]; d.Keys != 0 {
		t.Errorf("after bad answers: %+v", d)
	}
}

// A region that does not answer has no drift that anybody knows.
func TestDriftIsForgotten(t *testing.T) {
	reg := prometheus.NewRegistry()
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: 1, Incarnation: 1, Registerer: reg}, newStore(&start))
	if err != nil {
		t.Fatal(err)
	}
	eu, us := &region{Aggregator: a, t: t, name: "eu", now: time.Now()}, newRegion(t, "us", newStore(&start), "eu")
	us.now = eu.now
	(&edge{name: "e1"}).tell(eu, 9, charge(eu.now, 1))
	(&edge{name: "u1"}).tell(us, 9, charge(eu.now, 30))
	audit(t, eu, us)
	if n, err := testutil.GatherAndCount(reg, "spillgate_drift_ratio", "spillgate_drift_hits"); n != 2 || err != nil {
		t.Errorf("%d series of drift, %v, want 2", n, err)
	}
	if d := eu.Drift(eu.now.Add(5 * time.Second))[0]; d.Ratio != 0.3 {
		t.Errorf("after 5 s: %+v, want 0.3", d)
	}
	if d := eu.Drift(eu.now.Add(time.Minute))[0]; !d.Audited.IsZero() || d.Ratio != 0 || d.Compared != 1 {
		t.Errorf("after a minute: %+v, want nothing but the count", d)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}

// loaded notes of which keys a store is asked.
type loaded struct {
	regional.Store
	keys map[deltasync.Key]bool
}

func (s *loaded) Load(ctx context.Context, items []regional.Item) ([]regional.Item, error) {
	for _, it := range items {
		s.keys[it.Key] = true
	}
	return s.Store.Load(ctx, items)
}

// However many keys there are, and however many of them near their limit, each peer
// and the store are asked about all, though Run asks them in turns.
func TestAuditAsksAboutEachKey(t *testing.T) {
	alone.Mark(t)
	sizes := []int{1024}
	for n := range 300 {
		sizes = append(sizes, n+1)
	}
	for _, size := range sizes {
		store := &loaded{Store: newStore(&start)}
		eu := newRegion(t, "eu", store, "jp", "us")
		e := &edge{name: "e1"}
		for i := range size {
			n := uint64(1)
			if i%5 < size%6 { // none to all of them
				n = 50
			}
			e.tell(eu, deltasync.Key(i+1), charge(start, n))
		}
		asked := map[string]map[deltasync.Key]bool{"jp": {}, "us": {}}
		store.keys = map[deltasync.Key]bool{}
		for range size/2 + 1 {
			for _, x := range eu.Audits(start) {
				var up deltasync.Up
				if err := up.UnmarshalBinary(x.Payload); err != nil {
					t.Fatal(err)
				}
				for _, s := range up.Sections {
					for _, d := range s.Deltas {
						asked[x.Peer][d.Key] = true
					}
				}
			}
			if err := eu.AuditStore(context.Background(), start); err != nil {
				t.Fatal(err)
			}
		}
		if jp, us, own := len(asked["jp"]), len(asked["us"]), len(store.keys); jp != size || us != size || own != size {
			t.Errorf("of %d keys jp was asked about %d, us about %d, the store about %d", size, jp, us, own)
		}
	}
}

// What a region has lost each audit finds again: it is counted once, and logged with
// the worst key once a minute.
func TestAuditCountsALossOnce(t *testing.T) {
	var log bytes.Buffer
	eu, us := newLogged(t, &log, "us"), newRegion(t, "us", newStore(&start), "eu")
	e, u := &edge{name: "e1"}, &edge{name: "u1"}
	lost := newRegion(t, "us", newStore(&start), "eu") // with its store, and the edge is gone
	lose := func(key deltasync.Key, hits uint64) {
		us.now = eu.now
		e.tell(eu, key, charge(eu.now, 1))
		u.tell(us, key, charge(eu.now, hits))
		exchange(t, us, eu)
	}
	want := uint64(0)
	for second := range 70 {
		switch second {
		case 0:
			lose(7, 2)
			lose(9, 40)
			want = 42
		case 30:
			lose(9, 5)
			want = 47
		case 40:
			lose(8, 20)
			want = 67
		}
		if d := audit(t, eu, lost); d.Ahead != want {
			t.Fatalf("after %d s %d hits were counted, want the %d that us lost", second, d.Ahead, want)
		}
		eu.now = eu.now.Add(time.Second)
		lost.now = eu.now
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "hits=42 key=0000000000000009") || !strings.Contains(lines[1], "hits=25 key=0000000000000009") {
		t.Errorf("logged in 70 s:\n%s\nwant 2 lines, of 42 hits and 25, each with the worst key", &log)
	}
}

// Memory of what was lost is bounded, and what it has no room for is not counted again
// and again.
func TestAuditOfGreatLosses(t *testing.T) {
	eu, us := newRegion(t, "eu", newStore(&start), "us"), newRegion(t, "us", newStore(&start), "eu")
	e, u := &edge{name: "e1"}, &edge{name: "u1"}
	const keys = 300
	for key := range deltasync.Key(keys) {
		e.tell(eu, key+1, charge(start, 1))
		u.tell(us, key+1, charge(start, 10))
	}
	exchange(t, us, eu)
	lost := newRegion(t, "us", newStore(&start), "eu")
	d := regional.Drift{}
	for range keys {
		d = audit(t, eu, lost)
	}
	if d.Ahead != 2560 {
		t.Errorf("of 3,000 hits of %d keys %d are counted, want those of 256 keys, once", keys, d.Ahead)
	}
}
