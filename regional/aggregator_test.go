package regional_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// minute is the shape of 100 a minute in 40 slices.
var minute = deltasync.Shape{Generation: 7, Width: 1500 * time.Millisecond, Slices: 40, Limit: 100}

func slice(at time.Time) crdt.Slice { return crdt.Slice(at.UnixNano() / int64(minute.Width)) }

// region is an aggregator under test with its clock and store.
type region struct {
	*regional.Aggregator
	t     *testing.T
	name  string
	now   time.Time
	store regional.Store
}

func newRegion(t *testing.T, name string, store regional.Store, peers ...string) *region {
	t.Helper()
	a, err := regional.New(regional.Config{Boot: still, Region: name, Name: "a1", Peers: peers, Lanes: 1, Incarnation: 1, StoreTimeout: time.Second}, store)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return &region{Aggregator: a, t: t, name: name, now: start, store: store}
}

// still is a clock that stands, for tests whose time is their own: so no exchange tells of
// the clocks of others.
func still() time.Duration { return 0 }

func newStore(now *time.Time) *memstore.Store {
	return memstore.New(memstore.Config{Now: func() time.Time { return *now }, Seed: 1})
}

// edge sends frames of one edge.
type edge struct {
	name   string
	pop    string // "p" if it is not said
	seq    uint64
	secret uint64 // as a check
}

// tell sends absolute counts of one key and returns the reply.
func (e *edge) tell(r *region, key deltasync.Key, cells ...crdt.Cell) deltasync.Down {
	r.t.Helper()
	return e.send(r, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{{Key: key, Flags: touchIfEmpty(cells), Cells: cells}}})
}

func touchIfEmpty(cells []crdt.Cell) deltasync.Flags {
	if len(cells) == 0 {
		return deltasync.FlagTouch
	}
	return 0
}

func (e *edge) send(r *region, sections ...deltasync.Section) deltasync.Down {
	r.t.Helper()
	e.seq++
	pop := cmp.Or(e.pop, "p")
	up := deltasync.Up{
		Kind: deltasync.KindEdge, Region: r.name, Pop: pop, Name: e.name, Node: deltasync.NodeID(r.name, pop, e.name),
		Incarnation: 1, Lanes: 1, Seq: e.seq, SentAt: r.now.UnixNano(), SecretCheck: e.secret, Sections: sections,
	}
	b, err := up.AppendBinary(nil)
	if err != nil {
		r.t.Fatalf("encode: %v", err)
	}
	return decode(r.t, r.Handle(context.Background(), r.now, deltasync.EdgeSubject(r.name, 0, pop, e.name), b))
}

func decode(t *testing.T, b []byte) deltasync.Down {
	t.Helper()
	var down deltasync.Down
	if err := down.UnmarshalBinary(b); err != nil {
		t.Fatalf("decode reply: %v", err)
	}
	return down
}

func charges(cells []crdt.Cell) (sum uint64) {
	for _, c := range cells {
		sum += c.Charges
	}
	return sum
}

func charge(at time.Time, n uint64) crdt.Cell { return crdt.Cell{Slice: slice(at), Charges: n} }

func TestReplyLeavesOutTheAsker(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	e1, e2 := &edge{name: "e1"}, &edge{name: "e2"}
	if down := e1.tell(r, 9, charge(start, 5)); down.Status != deltasync.StatusOK || charges(down.Totals[0].Peers) != 0 {
		t.Fatalf("alone: %+v, want OK and nothing of others", down)
	}
	for range 3 { // again and again: the same absolute count
		if down := e2.tell(r, 9, charge(start, 3)); charges(down.Totals[0].Peers) != 5 {
			t.Fatalf("e2 hears %d, want e1's 5", charges(down.Totals[0].Peers))
		}
	}
	if down := e1.tell(r, 9, charge(start, 4)); charges(down.Totals[0].Peers) != 3 {
		t.Fatalf("e1, with a late smaller count, hears %d, want e2's 3", charges(down.Totals[0].Peers))
	}
	if down := e2.tell(r, 9); charges(down.Totals[0].Peers) != 5 {
		t.Fatalf("a touch hears %d, want 5: a smaller count changes nothing", charges(down.Totals[0].Peers))
	}
}

func TestNewIncarnationAndLifeAreOthers(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	e := &edge{name: "e1"}
	e.tell(r, 9, charge(start, 5))
	down := e.send(r, deltasync.Section{Shape: minute, Life: 1, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, 2)}}}})
	if got := charges(down.Totals[0].Peers); got != 5 {
		t.Fatalf("under its second life the edge hears %d, want the 5 of its first", got)
	}
}

func TestLateAndFutureSlices(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	e1, e2 := &edge{name: "e1"}, &edge{name: "e2"}
	e1.tell(r, 9, charge(start.Add(-2*time.Minute), 5))
	if down := e1.tell(r, 9, charge(start.Add(time.Hour), 5)); down.Status != deltasync.StatusClock {
		t.Fatalf("an hour ahead: %v, want clock", down.Status)
	}
	if down := e2.tell(r, 9); charges(down.Totals[0].Peers) != 0 {
		t.Fatalf("late and future counts left %+v", down.Totals[0].Peers)
	}
	got, err := r.store.Load(context.Background(), []regional.Item{{Key: 9, Width: minute.Width, Slices: minute.Slices}})
	if err != nil || len(got[0].Vectors) != 0 {
		t.Fatalf("the store holds %+v, %v; want nothing", got, err)
	}
	r.now = start.Add(3 * time.Minute)
	r.Tick(r.now)
	if st := r.Stats(r.now); st.Keys != 0 {
		t.Fatalf("%d keys after all retired, want none", st.Keys)
	}
}

// broken is a store that fails while told to.
type broken struct {
	regional.Store
	down bool
}

func (b *broken) Merge(ctx context.Context, items []regional.Item) ([]regional.Item, error) {
	if b.down {
		return nil, fmt.Errorf("%w: unplugged", regional.ErrStore)
	}
	return b.Store.Merge(ctx, items)
}

func (b *broken) Load(ctx context.Context, items []regional.Item) ([]regional.Item, error) {
	if b.down {
		return nil, fmt.Errorf("%w: unplugged", regional.ErrStore)
	}
	return b.Store.Load(ctx, items)
}

func (b *broken) Epoch(ctx context.Context) (uint64, error) {
	if b.down {
		return 0, fmt.Errorf("%w: unplugged", regional.ErrStore)
	}
	return b.Store.Epoch(ctx)
}

func stored(t *testing.T, s regional.Store, key deltasync.Key) (sum uint64) {
	t.Helper()
	got, err := s.Load(context.Background(), []regional.Item{{Key: key, Width: minute.Width, Slices: minute.Slices}})
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	for _, v := range got[0].Vectors {
		sum += charges(v.Cells)
	}
	return sum
}

func TestStoreAwayServesFromMemoryAndCatchesUp(t *testing.T) {
	mem := newStore(&start)
	b := &broken{Store: mem}
	r := newRegion(t, "eu", b)
	if err := r.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	e1, e2 := &edge{name: "e1"}, &edge{name: "e2"}
	e1.tell(r, 9, charge(start, 5))
	b.down = true
	for i := range 5 {
		if down := e1.tell(r, 9, charge(start, uint64(6+i))); down.Status != deltasync.StatusStoreDown {
			t.Fatalf("with the store away: %v, want store_down", down.Status)
		}
	}
	if down := e2.tell(r, 9, charge(start, 1)); charges(down.Totals[0].Peers) != 10 {
		t.Fatalf("e2 hears %d from memory, want 10", charges(down.Totals[0].Peers))
	}
	if err := r.Sync(context.Background(), start); !errors.Is(err, regional.ErrStore) {
		t.Fatalf("Sync: %v, want ErrStore", err)
	}
	if st := r.Stats(start); !st.StoreDown || st.Unstored != 1 {
		t.Fatalf("stats %+v, want the store down and one key unstored", st)
	}
	b.down = false
	if err := r.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, mem, 9); got != 11 {
		t.Fatalf("after it came back the store holds %d, want 11", got)
	}
	if down := e2.tell(r, 9, charge(start, 2)); down.Status != deltasync.StatusOK {
		t.Fatalf("after it came back: %v, want ok", down.Status)
	}
}

func TestWipedStoreGetsEverythingBack(t *testing.T) {
	mem := newStore(&start)
	r := newRegion(t, "eu", mem)
	ctx := context.Background()
	if err := r.Sync(ctx, start); err != nil {
		t.Fatal(err)
	}
	e := &edge{name: "e1"}
	before := e.tell(r, 9, charge(start, 5)).StoreEpoch
	mem.Wipe()
	if got := stored(t, mem, 9); got != 0 {
		t.Fatalf("after the wipe the store holds %d", got)
	}
	if err := r.Sync(ctx, start); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, mem, 9); got != 5 {
		t.Fatalf("the wiped store holds %d again, want 5", got)
	}
	if after := e.tell(r, 9).StoreEpoch; after == before {
		t.Fatal("edges are not told that the store was wiped")
	}
}

func TestNextAggregatorReadsTheStore(t *testing.T) {
	mem := newStore(&start)
	first := newRegion(t, "eu", mem)
	e1, e2 := &edge{name: "e1"}, &edge{name: "e2"}
	e1.tell(first, 9, charge(start, 5))
	second := newRegion(t, "eu", mem)
	if down := e2.tell(second, 9, charge(start, 1)); charges(down.Totals[0].Peers) != 5 {
		t.Fatalf("e2 hears %d from the next aggregator, want 5", charges(down.Totals[0].Peers))
	}
}

func TestTwoAggregatorsMeetInTheStore(t *testing.T) {
	mem := newStore(&start)
	a, b := newRegion(t, "eu", mem), newRegion(t, "eu", mem)
	e1, e2 := &edge{name: "e1"}, &edge{name: "e2"}
	e1.tell(a, 9, charge(start, 1))
	e2.tell(b, 9, charge(start, 1))
	for i := uint64(2); i <= 20; i++ {
		e1.tell(a, 9, charge(start, i))
		if down := e2.tell(b, 9, charge(start, i)); charges(down.Totals[0].Peers) != i {
			t.Fatalf("e2 hears %d, want e1's %d, told to the other aggregator", charges(down.Totals[0].Peers), i)
		}
	}
}

// exchange carries exports of from to to, and the replies back.
func exchange(t *testing.T, from, to *region) int {
	t.Helper()
	out := from.Exports(from.now)
	for _, o := range out {
		reply := to.Handle(context.Background(), to.now, o.Subject, o.Payload)
		if err := from.Receive(from.now, o, reply); err != nil {
			t.Fatalf("Receive: %v", err)
		}
	}
	return len(out)
}

func TestRegionsExchangeSubtotals(t *testing.T) {
	eu, us := newRegion(t, "eu", newStore(&start), "us"), newRegion(t, "us", newStore(&start), "eu")
	e, u := &edge{name: "e1"}, &edge{name: "u1"}
	e.tell(eu, 9, charge(start, 5))
	u.tell(us, 9, charge(start, 3))
	exchange(t, eu, us)
	if down := u.tell(us, 9); charges(down.Totals[0].Others) != 5 {
		t.Fatalf("us hears %d of eu, want 5", charges(down.Totals[0].Others))
	}
	if down := e.tell(eu, 9); charges(down.Totals[0].Others) != 3 {
		t.Fatalf("eu hears %d of us with the reply, want 3", charges(down.Totals[0].Others))
	}
	for range 3 { // what came from elsewhere is not sent on
		eu.now, us.now = eu.now.Add(10*time.Millisecond), us.now.Add(10*time.Millisecond)
		exchange(t, us, eu)
		exchange(t, eu, us)
	}
	if down := e.tell(eu, 9); charges(down.Totals[0].Others) != 3 {
		t.Fatalf("after more exchanges eu hears %d of us, want still 3", charges(down.Totals[0].Others))
	}
}

func TestRegionalRatesStayAtHome(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start), "us")
	eu.Exports(start) // the first beat
	home := minute
	home.Regional = true
	e := &edge{name: "e1"}
	e.send(eu, deltasync.Section{Shape: home, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, 5)}}}})
	if out := eu.Exports(start); len(out) != 0 {
		t.Fatalf("a rate of scope region is exported: %d frames", len(out))
	}
}

func TestLostExportGoesOutAgain(t *testing.T) {
	eu, us := newRegion(t, "eu", newStore(&start), "us"), newRegion(t, "us", newStore(&start), "eu")
	e, u := &edge{name: "e1"}, &edge{name: "u1"}
	e.tell(eu, 9, charge(start, 5))
	for _, o := range eu.Exports(start) {
		eu.Lost(start, o)
	}
	if n := exchange(t, eu, us); n != 0 {
		t.Fatalf("%d frames right after a loss, want the peer to rest", n)
	}
	eu.now = start.Add(time.Second)
	exchange(t, eu, us)
	if down := u.tell(us, 9); charges(down.Totals[0].Others) != 5 {
		t.Fatalf("us hears %d, want 5", charges(down.Totals[0].Others))
	}
}

// An export that got lost while a newer one was answered is no reason to rest.
func TestExportLostBetweenAnswersGoesOutAtOnce(t *testing.T) {
	eu, us := newRegion(t, "eu", newStore(&start), "us"), newRegion(t, "us", newStore(&start), "eu")
	e, u := &edge{name: "e1"}, &edge{name: "u1"}
	e.tell(eu, 9, charge(start, 5))
	older := eu.Exports(start)
	e.tell(eu, 10, charge(start, 1))
	exchange(t, eu, us)
	for _, o := range older {
		eu.Lost(start, o)
	}
	exchange(t, eu, us)
	if down := u.tell(us, 9); charges(down.Totals[0].Others) != 5 {
		t.Fatalf("us hears %d, want 5", charges(down.Totals[0].Others))
	}
}

func TestWipedPeerGetsSubtotalsAgain(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start), "us")
	us := newRegion(t, "us", newStore(&start), "eu")
	e, u := &edge{name: "e1"}, &edge{name: "u1"}
	e.tell(eu, 9, charge(start, 5))
	exchange(t, eu, us)
	us = newRegion(t, "us", memstore.New(memstore.Config{Now: func() time.Time { return start }, Seed: 99}), "eu")
	if err := us.Sync(context.Background(), start); err != nil { // reads its own store's epoch
		t.Fatal(err)
	}
	e.tell(eu, 10, charge(start, 1)) // anything makes eu speak to us
	exchange(t, eu, us)
	exchange(t, eu, us)
	if down := u.tell(us, 9); charges(down.Totals[0].Others) != 5 {
		t.Fatalf("the new us hears %d of key 9, want 5 again", charges(down.Totals[0].Others))
	}
}

func TestPushOnCrossing(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	e := &edge{name: "e1"}
	var at []uint64
	for used := uint64(10); used <= 130; used += 10 {
		e.tell(r, 9, charge(start, used))
		for _, p := range r.Pushes(start) {
			var hot deltasync.Hot
			if err := hot.UnmarshalBinary(p.Payload); err != nil {
				t.Fatal(err)
			}
			if got := charges(hot.Sections[0].Keys[0].Peers); got != used || p.Subject != deltasync.HotSubject("eu", 0) {
				t.Fatalf("push of %d on %s, want %d", got, p.Subject, used)
			}
			at = append(at, used)
		}
	}
	// 50 crosses; from 80 on the key is contended and every change is pushed.
	if want := []uint64{50, 80, 90, 100, 110, 120, 130}; !slices.Equal(at, want) {
		t.Fatalf("pushed at %v, want %v", at, want)
	}
}

func TestFullAggregatorRefusesNewKeysOnly(t *testing.T) {
	b := &broken{Store: newStore(&start)}
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, MaxKeys: 2}, b)
	if err != nil {
		t.Fatal(err)
	}
	r := &region{Aggregator: a, t: t, name: "eu", now: start}
	e1, e2 := &edge{name: "e1"}, &edge{name: "e2"}
	e1.tell(r, 1, charge(start, 1))
	e1.tell(r, 2, charge(start, 1))
	b.down = true // else an old one could be read again, and would make room
	if err := r.Sync(context.Background(), start); err == nil {
		t.Fatal("Sync with a broken store: no error")
	}
	if down := e1.tell(r, 3, charge(start, 1)); down.Took(0) || len(down.Totals) != 1 {
		t.Fatalf("third key of two: %+v, want it refused with an aligned reply", down)
	}
	if down := e2.tell(r, 1, charge(start, 1)); !down.Took(0) || charges(down.Totals[0].Peers) != 1 {
		t.Fatalf("an old key while full: %+v, want it taken and e1's 1", down)
	}
}

func TestForeignAndBrokenFrames(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	ctx := context.Background()
	if down := decode(t, r.Handle(ctx, start, deltasync.EdgeSubject("eu", 0, "p", "e1"), []byte("garbage"))); down.Status == deltasync.StatusOK {
		t.Fatal("garbage is answered with OK")
	}
	up := deltasync.Up{Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: "mallory", Node: deltasync.NodeID("eu", "p", "e1"), Incarnation: 1, Lanes: 1, Seq: 1}
	b, err := up.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if down := decode(t, r.Handle(ctx, start, deltasync.EdgeSubject("eu", 0, "p", "mallory"), b)); down.Status != deltasync.StatusForbidden {
		t.Fatalf("one edge speaking as another: %v, want forbidden", down.Status)
	}
	if st := r.Stats(start); len(st.Refused) == 0 || st.Keys != 0 {
		t.Fatalf("stats %+v, want refusals counted and no key", st)
	}
}

// Who only asks is told what the store has, whoever wrote it: an aggregator that
// knows a key asks again when it has not for a second.
func TestQuestionIsAnsweredByTheStore(t *testing.T) {
	store := newStore(&start)
	a, b := newRegion(t, "eu", store), newRegion(t, "eu", store)
	asker := &edge{name: "e1"}
	asker.tell(b, 9) // b knows the key by now
	(&edge{name: "e2"}).tell(a, 9, charge(start, 5))
	b.now = start.Add(1500 * time.Millisecond)
	if down := asker.tell(b, 9); charges(down.Totals[0].Peers) != 5 {
		t.Errorf("an aggregator that did not write answers %d, want the 5 in the store", charges(down.Totals[0].Peers))
	}
	(&edge{name: "e2"}).tell(a, 9, charge(start, 6))
	b.now = b.now.Add(500 * time.Millisecond)
	if down := asker.tell(b, 9); charges(down.Totals[0].Peers) != 5 {
		t.Errorf("half a second later it answers %d, want 5: the store was just asked", charges(down.Totals[0].Peers))
	}
}
