package regional_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// Who has too many frames refused is not heard for a while, and that is logged
// once; others are served meanwhile.
func TestSenderIsMuted(t *testing.T) {
	var log bytes.Buffer
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, Incarnation: 1,
		Logger: slog.New(slog.NewTextHandler(&log, nil))}, newStore(&start))
	if err != nil {
		t.Fatal(err)
	}
	r := &region{Aggregator: a, t: t, name: "eu", now: start}
	for range 300 {
		down := decode(t, r.Handle(context.Background(), start, deltasync.EdgeSubject("eu", 0, "p", "e1"), []byte("poison")))
		if down.Status == deltasync.StatusOK {
			t.Fatal("poison is answered with OK")
		}
	}
	if down := (&edge{name: "e1"}).tell(r, 9, charge(start, 5)); down.Status != deltasync.StatusForbidden {
		t.Errorf("a muted sender is answered with %v, want forbidden", down.Status)
	}
	if down := (&edge{name: "e2"}).tell(r, 9, charge(start, 5)); down.Status != deltasync.StatusOK || charges(down.Totals[0].Peers) != 0 {
		t.Errorf("beside a muted sender: %+v, want OK and nothing of others", down)
	}
	if st := r.Stats(start); st.Muted != 1 || st.Refused["muted"] != 200 || st.Refused["malformed"] != 101 {
		t.Errorf("%d muted, refused %v; want 1, and 101 and 200 frames", st.Muted, st.Refused)
	}
	if n := bytes.Count(log.Bytes(), []byte("sender muted")); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, log.String())
	}
}

// live tells a count of a key under a life.
func (e *edge) live(r *region, life uint32, key deltasync.Key, cells ...crdt.Cell) deltasync.Down {
	r.t.Helper()
	return e.send(r, deltasync.Section{Shape: minute, Life: life, Deltas: []deltasync.Delta{{Key: key, Cells: cells}}})
}

// Lives are a sender's to invent: of each node and key so many are kept, and of
// a PoP's nodes so many that others find room.
func TestEntriesAreBounded(t *testing.T) {
	alone.Mark(t)
	store := newStore(&start)
	r := newRegion(t, "eu", store)
	const nodes, lives = 6, 1024
	for n := range nodes {
		e := &edge{name: fmt.Sprint("e", n)}
		for life := range uint32(lives) {
			if down := e.live(r, life, 9, charge(start, 1)); down.Status != deltasync.StatusOK {
				t.Fatalf("life %d of node %d: %v, want OK", life, n, down.Status)
			}
		}
		if down := e.live(r, lives, 9, charge(start, 1)); down.Status != deltasync.StatusOverloaded || !slices.Equal(down.Refused, []uint32{0}) {
			t.Fatalf("one life too many of node %d: %v, refused %v; want overloaded and 0", n, down.Status, down.Refused)
		}
		if down := e.live(r, 3, 9, charge(start, 2)); down.Status != deltasync.StatusOK {
			t.Fatalf("a life that is known: %v, want OK", down.Status)
		}
	}
	late := &edge{name: "late"}
	if down := late.live(r, 0, 9, charge(start, 1)); down.Status != deltasync.StatusOverloaded || len(down.Refused) != 1 {
		t.Errorf("a node too many: %v, refused %v; want overloaded and 0", down.Status, down.Refused)
	}
	if down := late.live(r, 0, 10, charge(start, 1)); down.Status != deltasync.StatusOK {
		t.Errorf("another key: %v, want OK", down.Status)
	}
	if n := len(r.Vectors(9)); n != nodes*lives {
		t.Errorf("%d entries of the key, want %d", n, nodes*lives)
	}
	for _, tt := range []struct {
		pop  string
		want int // lives that are kept
	}{{"q", 1024 + 512}, {"s", 384}, {"u", 96}, {"v", 24}, {"w", 6}, {"x", 2}, {"y", 0}} { // three times what is left
		kept := 0
		for n := range 2 {
			for life := range uint32(lives) {
				if (&edge{name: fmt.Sprint("e", n), pop: tt.pop, seq: uint64(life)}).live(r, life, 9, charge(start, 1)).Status == deltasync.StatusOK {
					kept++
				}
			}
		}
		if kept != tt.want {
			t.Errorf("of PoP %s %d lives are kept, want %d", tt.pop, kept, tt.want)
		}
	}

	// Another aggregator took other lives: this one does not hold them all.
	other := newRegion(t, "eu", store)
	e := &edge{name: "e5"}
	for life := range uint32(lives) {
		e.live(r, life, 11, charge(start, 1))
	}
	for life := range uint32(lives) {
		e.live(other, lives+life, 11, charge(start, 1))
	}
	if n := len(other.Vectors(11)); n != lives {
		t.Errorf("%d entries of one node, want %d", n, lives)
	}
}

// Who only asks leaves nothing in memory, unless the store knows the key.
func TestQuestionsTakeNoRoom(t *testing.T) {
	b := &broken{Store: newStore(&start)}
	r := newRegion(t, "eu", b)
	e := &edge{name: "e1"}
	for key := range deltasync.Key(100) {
		if down := e.tell(r, key+1); down.Status != deltasync.StatusOK || len(down.Totals) != 1 || charges(down.Totals[0].Peers) != 0 {
			t.Fatalf("a question about key %d: %+v, want OK and zero", key+1, down)
		}
	}
	b.down = true
	if down := e.tell(r, 500); down.Status != deltasync.StatusStoreDown || len(down.Totals) != 1 {
		t.Errorf("with the store away: %+v, want store_down and zero", down)
	}
	if st := r.Stats(start); st.Keys != 0 {
		t.Errorf("%d keys in memory after questions alone, want none", st.Keys)
	}
	b.down = false
	if err := r.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	(&edge{name: "e2"}).tell(newRegion(t, "eu", b), 7, charge(start, 5))
	if down := e.tell(r, 7); charges(down.Totals[0].Peers) != 5 {
		t.Errorf("a key in the store: %d, want 5", charges(down.Totals[0].Peers))
	}
	if st := r.Stats(start); st.Keys != 1 {
		t.Errorf("%d keys in memory, want the one that the store knows", st.Keys)
	}
}

// FuzzHandle: nothing that arrives makes an aggregator panic, or go without an
// answer that can be read.
func FuzzHandle(f *testing.F) {
	up := deltasync.Up{
		Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: "e1", Node: deltasync.NodeID("eu", "p", "e1"), Incarnation: 1, Lanes: 1, Seq: 1,
		Sections: []deltasync.Section{
			{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, 5)}}, {Key: 10, Flags: deltasync.FlagTouch}}},
			{Shape: rested, Life: 1, Deltas: []deltasync.Delta{{Key: 11, Cells: []crdt.Cell{{Slice: sliceOf(rested, start), Charges: 3, Refunds: 1}}, Carry: crdt.Carry{Boundary: sliceOf(rested, start) - 9, Level: 7}}}},
		},
	}
	seed := func(subject string) {
		b, err := up.AppendBinary(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(subject, b)
		f.Add(subject, b[:len(b)/2])
	}
	seed(deltasync.EdgeSubject("eu", 0, "p", "e1"))
	up.Kind, up.Region, up.Pop, up.Name, up.Node, up.Incarnation = deltasync.KindRegion, "us", "", "a1", deltasync.NodeID("us", "", ""), 0
	seed(deltasync.RegionSubject("eu", 0, "us"))
	f.Add("nowhere", []byte("poison"))
	f.Fuzz(func(t *testing.T, subject string, payload []byte) {
		a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: 1, Incarnation: 1, MaxKeys: 1000}, newStore(&start))
		if err != nil {
			t.Fatal(err)
		}
		down := decode(t, a.Handle(context.Background(), start, subject, payload))
		var up deltasync.Up
		if readable := up.UnmarshalBinary(payload) == nil; down.Status == deltasync.StatusOK && !readable {
			t.Error("what cannot be read is answered with OK")
		}
		a.Pushes(start)
		a.Tick(start.Add(time.Hour))
		if st := a.Stats(start); st.Keys > 1000 {
			t.Errorf("%d keys, want at most 1000", st.Keys)
		}
	})
}

// shaped tells a count of key 9 under a limit.
func (e *edge) shaped(r *region, limit uint64, cells ...crdt.Cell) {
	r.t.Helper()
	shape := minute
	shape.Limit = limit
	e.send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{{Key: 9, Cells: cells}}})
}

// The limit is what most of those say that have counts: one that lies turns no
// pushes off, and a limit that was changed holds once most have learnt of it.
func TestLimitIsWhatMostSay(t *testing.T) {
	for _, lie := range []uint64{0, 1, 1 << 40} {
		r := newRegion(t, "eu", newStore(&start))
		e1, e2, bad := &edge{name: "e1"}, &edge{name: "e2"}, &edge{name: "bad"}
		e1.shaped(r, 100, charge(start, 10))
		e2.shaped(r, 100, charge(start, 10))
		bad.shaped(r, lie, charge(start, 1))
		bad.shaped(r, lie)
		if n := pushed(r); n != 0 {
			t.Errorf("limit %d told by one of three: %d pushes at 21 of 100, want none", lie, n)
		}
		e1.shaped(r, 100, charge(start, 40))
		if n := pushed(r); n != 1 {
			t.Errorf("limit %d told by one of three: %d pushes at 51 of 100, want 1", lie, n)
		}
		e1.shaped(r, 1000, charge(start, 50))
		r.Pushes(start)
		e1.shaped(r, 1000, charge(start, 65)) // 76: nothing crossed
		e2.shaped(r, 1000, charge(start, 11))
		if lie == 0 { // which is no vote
			bad.shaped(r, 1000, charge(start, 2))
		}
		if n := pushed(r); n != 0 {
			t.Errorf("after the change: %d pushes, want none", n)
		}
		e2.shaped(r, 1000, charge(start, 40)) // 106 of 1000
		if n := pushed(r); n != 0 {
			t.Errorf("limit %d: %d pushes at 106, want none: two of three say 1000", lie, n)
		}
	}
}

// Whoever is first to name a key, and to lie, is outvoted by the next two; and
// who only asks has no say.
func TestLiarIsOutvoted(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	bad := &edge{name: "bad"}
	bad.shaped(r, 1<<40, charge(start, 1))
	(&edge{name: "e1"}).shaped(r, 100, charge(start, 30))
	(&edge{name: "e2"}).shaped(r, 100, charge(start, 30))
	if n := pushed(r); n != 1 {
		t.Errorf("%d pushes at 61 of 100, want 1", n)
	}
	for i := range 5 {
		(&edge{name: fmt.Sprint("asker", i)}).shaped(r, 1<<40)
	}
	(&edge{name: "e2"}).shaped(r, 100, charge(start, 70))
	if n := pushed(r); n != 1 {
		t.Errorf("%d pushes at 101 of 100, want 1", n)
	}
}

// The votes of nodes that have counted nothing for a window lapse.
func TestVotesLapse(t *testing.T) {
	now := start
	r := newRegion(t, "eu", newStore(&now))
	e1 := &edge{name: "e1"}
	for i := range 3 {
		(&edge{name: fmt.Sprint("gone", i)}).shaped(r, 1000, charge(start, 1))
	}
	now = start.Add(2 * time.Minute)
	r.now = now
	e1.shaped(r, 100, charge(now, 1))
	r.Tick(now)
	e1.shaped(r, 100, charge(now, 60))
	if n := pushed(r); n != 1 {
		t.Errorf("%d pushes at 60 of 100, want 1: those who say 1000 are gone", n)
	}
}

// The width of slices is part of a key: who tells another is wrong.
func TestOtherWidthIsRefused(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	(&edge{name: "e1"}).tell(r, 9, charge(start, 5))
	other := minute
	other.Width = time.Second
	down := (&edge{name: "bad"}).send(r, deltasync.Section{Shape: other, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{{Slice: sliceOf(other, start), Charges: 7}}}}})
	if down.Status != deltasync.StatusForbidden || !slices.Equal(down.Refused, []uint32{0}) || len(r.Vectors(9)) != 1 {
		t.Errorf("%v, refused %v, %d entries; want forbidden, 0 and 1", down.Status, down.Refused, len(r.Vectors(9)))
	}
}

// An edge may tell more than the limit, but not without end: of all its lives, 16
// times as much in a window. It hears that all is well.
func TestGrowthIsCapped(t *testing.T) {
	peers := func(r *region, at time.Time) uint64 {
		t.Helper()
		r.now = at
		return charges((&edge{name: "asker"}).tell(r, 9).Totals[0].Peers)
	}
	told := func(r *region, e *edge, life uint32, cells ...crdt.Cell) {
		t.Helper()
		if down := e.live(r, life, 9, cells...); down.Status != deltasync.StatusOK || len(down.Refused) != 0 {
			t.Fatalf("%v, refused %v, want OK", down.Status, down.Refused)
		}
	}
	const most = 1600
	for _, tt := range []struct {
		name string
		tell func(r *region, e *edge)
		want uint64
	}{
		{"within", func(r *region, e *edge) { told(r, e, 0, charge(start, most)) }, most},
		{"one cell", func(r *region, e *edge) { told(r, e, 0, charge(start, 1<<60)) }, most},
		{"the largest number", func(r *region, e *edge) { told(r, e, 0, charge(start, 1<<64-1)) }, most},
		{"two cells", func(r *region, e *edge) {
			told(r, e, 0, charge(start.Add(-10*minute.Width), 1000), charge(start, 1000))
		}, most},
		{"the later one first", func(r *region, e *edge) {
			told(r, e, 0, charge(start, 1000))
			told(r, e, 0, charge(start.Add(-10*minute.Width), 1000))
		}, most},
		{"many lives", func(r *region, e *edge) {
			for life := range uint32(50) {
				told(r, e, life, charge(start, 100))
			}
		}, most},
		{"little by little", func(r *region, e *edge) {
			for n := range uint64(50) {
				told(r, e, 0, charge(start, 100+100*n))
			}
		}, most},
		{"another edge", func(r *region, e *edge) {
			told(r, e, 0, charge(start, 1<<60))
			told(r, &edge{name: "e2"}, 0, charge(start, 300))
		}, most + 300},
		{"and refunds", func(r *region, e *edge) {
			told(r, e, 0, crdt.Cell{Slice: slice(start), Charges: 5000, Refunds: 4990})
		}, 5000},
		{"refunds and too much", func(r *region, e *edge) {
			told(r, e, 0, crdt.Cell{Slice: slice(start), Charges: 9000, Refunds: 4000})
		}, 4000 + most},
	} {
		r := newRegion(t, "eu", newStore(&start))
		tt.tell(r, &edge{name: "e1"})
		if got := peers(r, start); got != tt.want {
			t.Errorf("%s: %d counted, want %d", tt.name, got, tt.want)
		}
		if st := r.Stats(start); (st.Clamped > 0) != (tt.name != "within" && tt.name != "and refunds") {
			t.Errorf("%s: %d clamped", tt.name, st.Clamped)
		}
	}
}

// The cap is of the limit that an edge counts under: others may not know yet that
// it was raised, and never learn of it, and of a key that tiers share each tells
// its own.
func TestGrowthIsByTheLimitThatIsTold(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	for _, name := range []string{"e2", "e3", "e4"} {
		(&edge{name: name}).tell(r, 9, charge(start, 1))
	}
	e := &edge{name: "e1"}
	told := func(limit, charges uint64) uint64 {
		t.Helper()
		raised := minute
		raised.Limit = limit
		down := e.send(r, deltasync.Section{Shape: raised, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, charges)}}}})
		if down.Status != deltasync.StatusOK || len(down.Refused) != 0 {
			t.Fatalf("%v, refused %v, want OK", down.Status, down.Refused)
		}
		asked := (&edge{name: "asker"}).tell(r, 9)
		return asked.Totals[0].Peers[0].Charges - 3
	}
	for _, tc := range []struct{ limit, charges, want uint64 }{
		{100, 5000, 1600}, // sixteen times what all say
		{10_000, 9_900, 9_900},
		{100, 20_000, 9_900}, // a lower tier takes nothing back
		{1e13, 9e12, 9e12},
		{1e18, 1 << 60, 1 << 50}, // a lie has its bound
	} {
		if got := told(tc.limit, tc.charges); got != tc.want {
			t.Errorf("%d under a limit of %d: %d counted, want %d", tc.charges, tc.limit, got, tc.want)
		}
	}
}

// The cap is of a window: who counts as much in each is not held up.
// Who names a key first names its limit, and still is not believed what would drown, or
// overflow, the counts of those who come after him.
func TestGrowthOfWhoNamesTheKeyFirst(t *testing.T) {
	for _, limit := range []uint64{1 << 50, 1 << 53, 1 << 63} {
		for _, charges := range []uint64{1 << 60, 1<<64 - 1} {
			r := newRegion(t, "eu", newStore(&start))
			lie := minute
			lie.Limit = limit
			(&edge{name: "liar"}).send(r, deltasync.Section{Shape: lie, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, charges)}}}})
			down := (&edge{name: "e1"}).tell(r, 9, charge(start, 2))
			if got := down.Totals[0].Peers[0].Charges; got != 1<<50 {
				t.Errorf("%d under a limit of %d: others are told %d, want %d", charges, limit, got, uint64(1<<50))
			}
		}
	}
}

func TestGrowthIsOfAWindow(t *testing.T) {
	now := start
	r := newRegion(t, "eu", newStore(&now))
	e := &edge{name: "e1"}
	for i := range 300 { // 39 of them share a window, which is 600 short of the cap
		now = start.Add(time.Duration(i) * minute.Width)
		r.now = now
		if e.tell(r, 9, charge(now, 20)); i%7 == 0 {
			r.Tick(now)
		}
	}
	if st := r.Stats(now); st.Clamped != 0 {
		t.Errorf("%d clamped, want none", st.Clamped)
	}
	fixed := deltasync.Shape{Generation: 7, Width: time.Second, Slices: 1, Limit: 100}
	at := sliceOf(fixed, now)
	e.send(r, deltasync.Section{Shape: fixed, Deltas: []deltasync.Delta{{Key: 11, Cells: []crdt.Cell{
		{Slice: at - 2, Charges: 1500}, {Slice: at - 1, Charges: 1600}, {Slice: at, Charges: 1500}}}}})
	if st := r.Stats(now); st.Clamped != 0 {
		t.Errorf("%d clamped in windows of one slice, want none", st.Clamped)
	}
	free := minute
	free.Limit = 0
	e.send(r, deltasync.Section{Shape: free, Deltas: []deltasync.Delta{{Key: 10, Cells: []crdt.Cell{charge(now, 1<<62)}}}})
	if got := charges((&edge{name: "asker"}).tell(r, 10).Totals[0].Peers); got != 1<<40 {
		t.Errorf("without a limit: %d counted, want 2^40", got)
	}
}

// To clamp what is above the limits of many keys takes a look at all their slices. One frame
// has so many looked at and is refused the rest, which it may tell again: else one that is
// made for it would hold up a lane.
func TestOneFrameMakesNoEndlessWork(t *testing.T) {
	r, e := newRegion(t, "eu", newStore(&start)), &edge{name: "e1"}
	const keys, limit = 1000, 1
	shape := minute
	shape.Width, shape.Slices, shape.Limit = 60*time.Millisecond, 1024, limit
	sec := deltasync.Section{Shape: shape}
	for key := range deltasync.Key(keys) { // each has two windows of slices looked at: 2048 of about a million
		cell := crdt.Cell{Slice: crdt.Slice(start.UnixNano() / int64(shape.Width)), Charges: 1000 * limit}
		sec.Deltas = append(sec.Deltas, deltasync.Delta{Key: key + 1, Cells: []crdt.Cell{cell}})
	}
	down := e.send(r, sec)
	if n := len(down.Refused); down.Status != deltasync.StatusOverloaded || n < keys/3 || n > keys*2/3 {
		t.Errorf("%v, %d of %d keys refused, want overloaded and about half of them", down.Status, n, keys)
	}
	if n := len(down.Refused); n > 0 {
		sec.Deltas = sec.Deltas[keys-n:]
		if down = e.send(r, sec); down.Status != deltasync.StatusOK || len(down.Refused) > 0 {
			t.Errorf("what was refused is told again: %v, %d refused, want OK", down.Status, len(down.Refused))
		}
	}
}
