package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// part is a part of a snapshot that says of a key of a rate that others used so
// much.
func part(t *testing.T, lane int, next uint64, rate *limit.Rate, used map[deltasync.Key]uint64) []byte {
	t.Helper()
	hot := deltasync.Hot{Region: "eu", Lane: lane, LiveRegions: 1, Next: next}
	sec := deltasync.HotSection{Shape: shapeOf(rate)}
	for key, n := range used {
		sec.Keys = append(sec.Keys, deltasync.HotKey{Key: key, Totals: deltasync.Totals{Peers: []crdt.Cell{{Slice: rate.SliceAt(start.UnixNano()), Charges: n}}}})
	}
	if len(sec.Keys) > 0 {
		hot.Sections = append(hot.Sections, sec)
	}
	b, err := hot.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func askedFor(t *testing.T, a Ask) deltasync.Snap {
	t.Helper()
	var s deltasync.Snap
	if err := s.UnmarshalBinary(a.Payload); err != nil {
		t.Fatal(err)
	}
	return s
}

// Each lane is asked for part by part, one at a time; what comes is kept for keys
// that are not held, and counted as a push of those that are.
func TestSnapshotComesInParts(t *testing.T) {
	rules := perUser(limit.RateSpec{Limit: 10, Per: time.Minute, Algorithm: "fixed_window"})
	view, err := NewCacheView(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	n, err := New(Config{Region: "eu", Pop: "p", Name: "e1", Secret: testSecret, Lanes: 2, View: view})
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Asks(start)) > 0 {
		t.Error("a node without rules asks for a snapshot, by which it could judge nothing")
	}
	n.SetRules(compile(t, rules))
	rate := n.Rules().Rules()[0].Rates[0]
	for range 4 {
		check(n, start, "held")
	}
	asks := n.Asks(start)
	if len(asks) != 2 || asks[0].Lane == asks[1].Lane || len(n.Asks(start)) > 0 {
		t.Fatalf("asks %+v, and then %+v; want one for each of two lanes", asks, n.Asks(start))
	}
	for _, a := range asks {
		if s := askedFor(t, a); s != (deltasync.Snap{Region: "eu", Lane: a.Lane, Lanes: 2}) || a.Subject != deltasync.SnapSubject("eu", a.Lane) {
			t.Errorf("asks %+v on %s", s, a.Subject)
		}
	}
	at := start.Add(time.Second)
	if err := n.ReceiveSnapshot(at, asks[0], part(t, asks[0].Lane, 700, rate, map[deltasync.Key]uint64{keyOf(n, "used up"): 10, keyOf(n, "held"): 9})); err != nil {
		t.Fatal(err)
	}
	view.Wait()
	if d := check(n, at, "used up"); d.Allowed || d.Basis.Merged != 10 {
		t.Errorf("the first request of a user whose limit is used up elsewhere: %+v", d)
	}
	if got := n.Believe(at, rate, keyOf(n, "held")).Total; got != 9 {
		t.Errorf("4 own of 9 in all: believes %d, want 9", got)
	}
	next := n.Asks(at)
	if len(next) != 1 || askedFor(t, next[0]).From != 700 || next[0].Lane != asks[0].Lane {
		t.Fatalf("asks %+v, want for the part from 700 on", next)
	}
	for range 2 { // a late second answer changes nothing
		if err := n.ReceiveSnapshot(at, asks[0], part(t, asks[0].Lane, 700, rate, nil)); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range []Ask{next[0], asks[1]} {
		if st := n.Stats(at); st.SnapshotIn != 0 {
			t.Errorf("it is said to be there after %v", st.SnapshotIn)
		}
		if err := n.ReceiveSnapshot(at, a, part(t, a.Lane, 0, rate, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if st := n.Stats(at); st.Snapshot != 2 || st.SnapshotIn != time.Second || st.Pushes != 0 {
		t.Errorf("%d keys in %v and %d pushes, want 2 in 1s and none", st.Snapshot, st.SnapshotIn, st.Pushes)
	}
	if again := n.Asks(at.Add(time.Hour)); len(again) > 0 {
		t.Errorf("asks %+v when all is there", again)
	}
}

// What was lost, or is not to be used, is asked for again, less and less often,
// and not for ever: aggregators of an older build know no snapshots.
func TestSnapshotIsAskedForAgain(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute}))
	rate := n.Rules().Rules()[0].Rates[0]
	now := start
	ask := func() Ask {
		t.Helper()
		for range 120 {
			if asks := n.Asks(now); len(asks) == 1 {
				return asks[0]
			}
			now = now.Add(10 * time.Millisecond)
		}
		t.Fatalf("nothing is asked for within %v", 120*10*time.Millisecond)
		return Ask{}
	}
	foreign, _ := (&deltasync.Hot{Region: "us"}).AppendBinary(nil)
	refusal, _ := (&deltasync.Down{Region: "eu", Node: 1, Status: deltasync.StatusUnsupported}).AppendBinary(nil)
	for what, payload := range map[string][]byte{
		"nothing": nil, "garbage": []byte("x"), "another region's": foreign, "another lane's": part(t, 1, 0, rate, nil), "a refusing": refusal,
	} {
		a := ask()
		if err := n.ReceiveSnapshot(now, a, payload); err == nil {
			t.Errorf("%s answer is taken", what)
		}
		n.LostSnapshot(now, a)
	}
	a := ask()
	if err := n.ReceiveSnapshot(now, a, part(t, 0, 5, rate, nil)); err != nil {
		t.Fatal(err)
	}
	a = ask()
	if err := n.ReceiveSnapshot(now, a, part(t, 0, 5, rate, nil)); err == nil {
		t.Error("a part that goes on where it began is taken: it would never end")
	}
	begun := now
	for range mostAsks {
		n.LostSnapshot(now, a)
		n.LostSnapshot(now, a) // once each
		if len(n.Asks(now)) > 0 {
			t.Fatal("what was lost is asked for again at once")
		}
		if n.Stats(now).SnapshotIn != 0 {
			break
		}
		a = ask()
	}
	if d := now.Sub(begun); d < 10*time.Second || d > time.Minute {
		t.Errorf("it is given up after %v", d)
	}
	if asks := n.Asks(now.Add(time.Minute)); len(asks) > 0 || n.Stats(now).SnapshotIn == 0 {
		t.Errorf("it is asked for although it was given up: %+v", asks)
	}
	if !check(n, now, "u").Allowed {
		t.Error("without a snapshot it denies")
	}
}
