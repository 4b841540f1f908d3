package edge

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

var testSecret = []byte("a secret of the tests, 16 bytes or more")

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// compile makes a set of one namespace "t".
func compile(t testing.TB, rules ...limit.RuleSpec) *limit.Set {
	t.Helper()
	set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: rules})
	if set == nil {
		t.Fatalf("Compile: %v", problems)
	}
	return set
}

func newNode(t testing.TB, cfg Config, rules ...limit.RuleSpec) *Node {
	t.Helper()
	cfg.Region, cfg.Pop, cfg.Secret, cfg.Lanes = "eu", "fra", testSecret, 1
	if cfg.Name == "" {
		cfg.Name = "e1"
	}
	if cfg.Incarnation == 0 {
		cfg.Incarnation = uint64(start.UnixMilli())
	}
	n, err := New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	n.SetRules(compile(t, rules...))
	return n
}

// inStep has the node know by its region's that its clock is right.
func inStep(n *Node) *Node {
	at := start.UnixNano()
	n.clock.Heard(1, 1, at, at, at, at)
	n.clock.Turn(start)
	return n
}

func perUser(rates ...limit.RateSpec) limit.RuleSpec {
	return limit.RuleSpec{Name: "api", Key: []string{"user"}, Rates: rates}
}

// check decides one request of a user.
func check(n *Node, now time.Time, user string) limit.Decision {
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	return n.Check(now, req)
}

// upOf is the only frame of a flush, decoded.
func upOf(t testing.TB, out []Outgoing) *deltasync.Up {
	t.Helper()
	if len(out) != 1 {
		t.Fatalf("Flush: %d frames, want 1", len(out))
	}
	var up deltasync.Up
	if err := up.UnmarshalBinary(out[0].Payload); err != nil {
		t.Fatalf("frame: %v", err)
	}
	return &up
}

// answer replies to a frame with totals for each of its keys.
func answer(t testing.TB, n *Node, now time.Time, up *deltasync.Up, totals ...deltasync.Totals) {
	t.Helper()
	answerStatus(t, n, now, up, deltasync.StatusOK, totals...)
}

func answerStatus(t testing.TB, n *Node, now time.Time, up *deltasync.Up, status deltasync.Status, totals ...deltasync.Totals) {
	t.Helper()
	down := deltasync.Down{Status: status, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: 1, Store: 1, LiveRegions: 2, Totals: totals}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatalf("encode reply: %v", err)
	}
	if err := n.Receive(now, 0, b); err != nil {
		t.Fatalf("Receive: %v", err)
	}
}

func TestCheckHoldsTheLimitAlone(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 5, Per: time.Minute}))
	for i := range 5 {
		if d := check(n, start, "u1"); !d.Allowed || d.Remaining != uint64(4-i) || d.Limit != 5 {
			t.Fatalf("request %d: %+v, want allowed with %d remaining of 5", i+1, d, 4-i)
		}
	}
	d := check(n, start.Add(time.Second), "u1")
	if d.Allowed || d.Zone != limit.ZoneHard || d.Rate.Policy != "api.1m" {
		t.Fatalf("request 6: %+v, want denied by api.1m", d)
	}
	if d := check(n, start, "u2"); !d.Allowed {
		t.Fatalf("another user: %+v, want allowed", d)
	}
	at := start.Add(time.Second + d.RetryAfter)
	if d := check(n, at.Add(-1), "u1"); d.Allowed {
		t.Fatalf("a nanosecond before RetryAfter: allowed, want denied")
	}
	if d := check(n, at, "u1"); !d.Allowed {
		t.Fatalf("after RetryAfter: %+v, want allowed", d)
	}
}

func TestDeniedIsChargedToNoRate(t *testing.T) {
	n := newNode(t, Config{}, perUser(
		limit.RateSpec{Name: "minute", Limit: 10, Per: time.Minute, Algorithm: "fixed_window"},
		limit.RateSpec{Name: "burst", Limit: 2, Per: time.Second, Algorithm: "fixed_window"},
	))
	for range 5 {
		check(n, start, "u")
	}
	req := n.Rules().Only().NewRequest()
	req.Set("user", "u")
	used := map[string]uint64{}
	for _, b := range n.Inspect(start, req) {
		used[b.Rate.Name] = b.Total
	}
	if used["minute"] != 2 || used["burst"] != 2 {
		t.Fatalf("used %v, want 2 of each: the three denied are charged to neither", used)
	}
}

func TestSoftMarginAndShadow(t *testing.T) {
	soft := perUser(limit.RateSpec{Limit: 10, Per: time.Minute})
	soft.Margin.SoftPercent = 20
	n := newNode(t, Config{}, soft)
	zones := map[limit.Zone]int{}
	for range 15 {
		zones[check(n, start, "u").Zone]++
	}
	if zones[limit.ZoneNormal] != 10 || zones[limit.ZoneSoft] != 2 || zones[limit.ZoneHard] != 3 {
		t.Fatalf("zones %v, want 10 normal, 2 soft, 3 hard", zones)
	}
	shadow := perUser(limit.RateSpec{Limit: 3, Per: time.Minute})
	shadow.Mode = "shadow"
	n = newNode(t, Config{}, shadow)
	for i := range 5 {
		d := check(n, start, "u")
		if want := i >= 3; !d.Allowed || (d.Zone == limit.ZoneShadow) != want {
			t.Fatalf("request %d: %+v, want allowed, shadow %t", i+1, d, want)
		}
	}
}

func TestPeekChargesNothing(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Minute}))
	req := n.Rules().Only().NewRequest()
	req.Set("user", "u")
	req.Peek = true
	for range 3 {
		if d := n.Check(start, req); !d.Allowed || d.Remaining != 1 {
			t.Fatalf("peek: %+v, want allowed with 1 remaining", d)
		}
	}
	if d := check(n, start, "u"); !d.Allowed {
		t.Fatalf("check after peeks: %+v, want allowed", d)
	}
}

func TestReceiveCountsOthersAtOnce(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute, Algorithm: "fixed_window"}))
	check(n, start, "u")
	up := upOf(t, n.Flush(start))
	sec := up.Sections[0]
	if len(sec.Deltas) != 1 || len(sec.Deltas[0].Cells) != 1 || sec.Deltas[0].Cells[0].Charges != 1 {
		t.Fatalf("frame %+v, want one key with one charge", up)
	}
	slice := sec.Deltas[0].Cells[0].Slice
	answer(t, n, start, up, deltasync.Totals{
		Others: []crdt.Cell{{Slice: slice, Charges: 5}}, Peers: []crdt.Cell{{Slice: slice, Charges: 3}},
	})
	d := check(n, start.Add(time.Second), "u")
	if !d.Allowed || d.Remaining != 0 || d.Basis.Merged != 8 || d.Basis.Local != 2 || d.Basis.Age != time.Second || d.Basis.Regions != 2 {
		t.Fatalf("with 1 own and 8 others of 10: %+v, want the last one allowed", d)
	}
	if d := check(n, start.Add(time.Second), "u"); d.Allowed {
		t.Fatalf("the 11th: %+v, want denied", d)
	}
}

func TestLostFrameGoesOutAgain(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute}))
	check(n, start, "u")
	first := upOf(t, n.Flush(start))
	n.Lost(start, 0, first.Seq)
	check(n, start, "u")
	if out := n.Flush(start.Add(time.Millisecond)); len(out) != 0 {
		t.Fatalf("Flush right after a loss: %d frames, want the lane to rest", len(out))
	}
	again := upOf(t, n.Flush(start.Add(time.Second)))
	if got := again.Sections[0].Deltas[0].Cells[0].Charges; got != 2 {
		t.Fatalf("after a loss the frame carries %d charges, want both, 2", got)
	}
}

func TestHotPushOfUnknownKeyIsKept(t *testing.T) {
	view, err := NewCacheView(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	n := newNode(t, Config{View: view}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute, Algorithm: "fixed_window"}))
	other := newNode(t, Config{Name: "e2"}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute, Algorithm: "fixed_window"}))
	check(other, start, "u")
	up := upOf(t, other.Flush(start))
	d := up.Sections[0].Deltas[0]
	hot := deltasync.Hot{Region: "eu", LiveRegions: 1, Sections: []deltasync.HotSection{{
		Shape: up.Sections[0].Shape,
		Keys:  []deltasync.HotKey{{Key: d.Key, Totals: deltasync.Totals{Peers: []crdt.Cell{{Slice: d.Cells[0].Slice, Charges: 10}}}}},
	}}}
	b, err := hot.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.ReceiveHot(start, b); err != nil {
		t.Fatal(err)
	}
	view.Wait()
	d1 := check(n, start.Add(time.Second), "u")
	if d1.Allowed || d1.Basis.Merged != 10 || d1.Basis.Age != time.Second || d1.Basis.Regions != 1 {
		t.Fatalf("first request here of a key used up elsewhere: %+v, want denied on 10 of others, heard a second ago, of one region", d1)
	}
}

func TestHotPushTakesOwnCountsOff(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute, Algorithm: "fixed_window"}))
	for range 4 {
		check(n, start, "u")
	}
	up := upOf(t, n.Flush(start))
	d := up.Sections[0].Deltas[0]
	hot := deltasync.Hot{Region: "eu", Sections: []deltasync.HotSection{{
		Shape: up.Sections[0].Shape,
		Keys:  []deltasync.HotKey{{Key: d.Key, Totals: deltasync.Totals{Peers: []crdt.Cell{{Slice: d.Cells[0].Slice, Charges: 7}}}}},
	}}}
	b, _ := hot.AppendBinary(nil)
	for range 2 { // twice: it is idempotent
		if err := n.ReceiveHot(start, b); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.Believe(start, n.Rules().Rules()[0].Rates[0], d.Key).Total; got != 7 {
		t.Fatalf("4 own of 7 in all: believes %d, want 7", got)
	}
}

func TestEvictedKeyIsBornUnderANewLife(t *testing.T) {
	n := newNode(t, Config{MaxKeys: shards * maxCounters}, perUser(limit.RateSpec{Limit: 1000, Per: time.Hour}))
	for range 5 {
		check(n, start, "victim")
	}
	first := upOf(t, n.Flush(start))
	victim, life := first.Sections[0].Deltas[0].Key, first.Sections[0].Life
	answer(t, n, start, first, deltasync.Totals{})
	for i := 0; n.Believe(start, n.Rules().Rules()[0].Rates[0], victim).Live; i++ {
		if i > 200*shards*maxCounters {
			t.Fatal("the victim was never forgotten")
		}
		for range 7 { // fuller than the victim, so that it goes first
			check(n, start, fmt.Sprint("u", i))
		}
	}
	if got := n.Keys(); got > shards*maxCounters {
		t.Fatalf("%d keys, want at most %d", got, shards*maxCounters)
	}
	check(n, start, "victim")
	for now, i := start.Add(time.Second), 0; ; now, i = now.Add(time.Second), i+1 {
		for _, out := range n.Flush(now) {
			up := upOf(t, []Outgoing{out})
			totals := 0
			for _, sec := range up.Sections {
				totals += len(sec.Deltas)
				for _, d := range sec.Deltas {
					if d.Key != victim {
						continue
					}
					if sec.Life == life {
						t.Fatalf("reborn under life %d, under which others hold 5", life)
					}
					if d.Cells[0].Charges != 1 {
						t.Fatalf("reborn with %d charges, want 1", d.Cells[0].Charges)
					}
					return
				}
			}
			answer(t, n, now, up, make([]deltasync.Totals, totals)...)
		}
		if i > 100 {
			t.Fatal("the reborn key was never sent")
		}
	}
}

func TestNewStoreEpochSendsAllAgain(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute}))
	check(n, start, "a")
	up := upOf(t, n.Flush(start))
	answer(t, n, start, up, deltasync.Totals{})
	check(n, start, "b")
	up = upOf(t, n.Flush(start.Add(100*time.Millisecond)))
	down := deltasync.Down{Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: 2, Totals: make([]deltasync.Totals, 1)}
	b, _ := down.AppendBinary(nil)
	if err := n.Receive(start.Add(200*time.Millisecond), 0, b); err != nil {
		t.Fatal(err)
	}
	seen := map[deltasync.Key]bool{}
	now := start.Add(300 * time.Millisecond)
	for range 12 { // once round the ledger
		n.Tick(now)
		now = now.Add(100 * time.Millisecond)
	}
	for _, out := range n.Flush(now) {
		for _, d := range upOf(t, []Outgoing{out}).Sections[0].Deltas {
			if d.Flags&deltasync.FlagRefresh != 0 && len(d.Cells) > 0 {
				seen[d.Key] = true
			}
		}
	}
	if len(seen) != 2 {
		t.Fatalf("a new store epoch sent %d keys again, want both", len(seen))
	}
}

func TestIdleKeysRetire(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Second}))
	for i := range 100 {
		check(n, start, fmt.Sprint(i))
	}
	now := start
	for range 40 {
		now = now.Add(100 * time.Millisecond)
		for _, out := range n.Flush(now) {
			up := upOf(t, []Outgoing{out})
			deltas := 0
			for _, sec := range up.Sections {
				deltas += len(sec.Deltas)
			}
			answer(t, n, now, up, make([]deltasync.Totals, deltas)...)
		}
		n.Tick(now)
	}
	if got := n.Keys(); got != 0 {
		t.Fatalf("%d keys live after four windows of rest, want none", got)
	}
}

func TestSilentNodeStillBeats(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Second}))
	up := upOf(t, n.Flush(start))
	if len(up.Sections) != 0 {
		t.Fatalf("a node with nothing to tell sends %+v", up)
	}
	answer(t, n, start.Add(time.Millisecond), up)
	if st := n.Stats(start.Add(time.Millisecond)); st.ViewAge != 0 {
		t.Fatalf("view age %v right after the answer, want 0", st.ViewAge)
	}
	if out := n.Flush(start.Add(100 * time.Millisecond)); len(out) != 0 {
		t.Fatalf("%d frames an interval later, want silence", len(out))
	}
	upOf(t, n.Flush(start.Add(500*time.Millisecond)))
}

func TestRuleChangeKeepsCounts(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Name: "m", Limit: 10, Per: time.Hour}))
	for range 6 {
		check(n, start, "u")
	}
	n.SetRules(compile(t, perUser(limit.RateSpec{Name: "m", Limit: 7, Per: time.Hour})))
	if d := check(n, start, "u"); !d.Allowed || d.Remaining != 0 {
		t.Fatalf("the 7th of a limit lowered to 7: %+v, want allowed, none remaining", d)
	}
	if d := check(n, start, "u"); d.Allowed {
		t.Fatalf("the 8th: %+v, want denied", d)
	}
}

// TestSerialOrder races decisions over shuffled rates: every admission must
// have been charged to all rates, so that no rate admits more than its limit
// and the tightest is used up exactly.
func TestSerialOrder(t *testing.T) {
	byPath := limit.RuleSpec{Name: "path", Group: "p", Key: []string{"path"}, Rates: []limit.RateSpec{{Limit: 300, Per: time.Hour}}}
	everybody := limit.RuleSpec{Name: "all", Group: "a", Rates: []limit.RateSpec{{Limit: 1000, Per: time.Hour}, {Name: "two", Limit: 900, Per: 2 * time.Hour}}}
	user := perUser(limit.RateSpec{Limit: 200, Per: time.Hour})
	n := newNode(t, Config{}, user, byPath, everybody)
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() { // ends by itself; waited for below
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for range 2000 {
				req := n.Rules().Only().NewRequest()
				req.Set("user", fmt.Sprint(rnd.IntN(10)))
				req.Set("path", fmt.Sprint("/", rnd.IntN(10)))
				if n.Check(start, req).Allowed {
					allowed.Add(1)
				}
				req.Release()
			}
		})
	}
	wg.Wait()
	if got := allowed.Load(); got != 900 {
		t.Fatalf("%d allowed, want exactly 900, the tightest limit of all", got)
	}
}

// settleFrames answers everything that is waiting.
func settleFrames(n *Node, now time.Time) {
	for _, out := range n.Flush(now) {
		n.mu.Lock()
		n.outboxes[out.Lane].Done(out.Seq)
		n.mu.Unlock()
	}
}

// TestLedgerAgainstMap runs random inserts, removes and moves of one and of several against a map.
func TestLedgerAgainstMap(t *testing.T) {
	s := &shard{max: 1 << 20}
	model := map[deltasync.Key]bool{}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 200_000 {
		key := deltasync.Key(rnd.Uint64N(24)<<19 | rnd.Uint64N(16) | 1<<60) // collides at home places
		if rnd.IntN(3) == 0 {
			key |= 0xff_fff0 // runs round the end of the table
		}
		r := s.find(key)
		if (r != nil) != model[key] {
			t.Fatalf("step %d: find(%d) = %v, want %t", i, key, r, model[key])
		}
		switch {
		case r == nil && rnd.IntN(2) == 0:
			s.insert(key).block = s.newBlock()
			model[key] = true
		case r != nil && rnd.IntN(2) == 0:
			for at := range s.table {
				if s.table[at].key == key {
					s.remove(at)
					break
				}
			}
			delete(model, key)
		case r != nil && rnd.IntN(2) == 0:
			if r = s.bringHome(r); r.key != key || r != &s.table[s.home(key)] || s.find(key) != r {
				t.Fatalf("step %d: %d is not at home", i, key)
			}
		case r != nil:
			home := s.home(key)
			together := []*record{r}
			for at := range s.table { // as the rates of a rule, in any order
				if other := &s.table[at]; len(together) < few && other != r && other.key != 0 && s.home(other.key) == home {
					together = append(together, other)
				}
			}
			keys := make([]deltasync.Key, len(together))
			for k, r := range together {
				keys[k] = r.key
			}
			s.bringAllHome(together)
			for k, r := range together {
				if r.key != keys[k] || s.find(keys[k]) != r || !s.within(r, home, len(together)) {
					t.Fatalf("step %d: %d is not near the home that it shares with %d others", i, keys[k], len(keys)-1)
				}
			}
		}
		if s.used != len(model) {
			t.Fatalf("step %d: %d records, want %d", i, s.used, len(model))
		}
	}
}

func TestConfigReportsAllMistakes(t *testing.T) {
	_, err := New(Config{Region: "EU", Lanes: 100, Interval: time.Hour, MaxKeys: 3})
	if err == nil {
		t.Fatal("New took a config full of mistakes")
	}
	for _, field := range []string{"Region", "Pop", "Name", "Lanes", "Interval", "MaxKeys"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("error does not name %s: %v", field, err)
		}
	}
}
