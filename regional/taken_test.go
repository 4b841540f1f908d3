package regional_test

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// pushedPeers is what the pushes that wait say of a key's own region; nil: nothing.
func (r *region) pushedPeers(key deltasync.Key) (cells []crdt.Cell) {
	r.t.Helper()
	for _, p := range r.Pushes(r.now) {
		var hot deltasync.Hot
		if err := hot.UnmarshalBinary(p.Payload); err != nil {
			r.t.Fatal(err)
		}
		for _, s := range hot.Sections {
			for _, k := range s.Keys {
				if k.Key == key {
					cells = k.Peers
				}
			}
		}
	}
	return cells
}

// A region that has lost everything takes its subtotal back from whoever has it:
// its edges hear of it by pushes, and never in a reply, and it is in its store and
// goes to the regions that lack it.
func TestWipedRegionTakesItsSubtotalBack(t *testing.T) {
	now := start
	us := newRegion(t, "us", newStore(&now), "eu", "ap")
	before := newRegion(t, "eu", newStore(&now), "us", "ap")
	first := &edge{name: "e1"}
	first.tell(before, 9, charge(start, 40))
	first.tell(before, 9, charge(start.Add(-minute.Width), 20))
	before.tellAll(us)
	if got := charges((&edge{name: "u1"}).tell(us, 9).Totals[0].Others); got != 60 {
		t.Fatalf("us has %d of eu, want 60", got)
	}

	store := newStore(&now)
	eu := newRegion(t, "eu", store, "us", "ap")
	ap := newRegion(t, "ap", newStore(&now), "eu", "us")
	e2 := &edge{name: "e2"}
	down := e2.tell(eu, 9, charge(start, 1))
	if got := charges(down.Totals[0].Peers); got != 0 {
		t.Fatalf("the first reply has %d of others", got)
	}
	eu.tellAll(us)
	if got := charges(eu.pushedPeers(9)); got != 60 {
		t.Errorf("edges are pushed %d of the region, want the 60 that us has", got)
	}
	for _, e := range []*edge{e2, first} { // of e1, which lives, they may be its own
		if got := charges(e.tell(eu, 9).Totals[0].Peers); got > 1 {
			t.Errorf("the reply to %s has %d of others, want what edges told alone", e.name, got)
		}
		if got := charges(eu.pushedPeers(9)); got != 60 {
			t.Errorf("as %s asked, edges are pushed %d, want 60", e.name, got)
		}
	}
	eu.tellAll(ap)
	if got := charges((&edge{name: "a1"}).tell(ap, 9).Totals[0].Others); got != 60 {
		t.Errorf("ap has %d of eu, want the 60 that it took back", got)
	}
	eu.sync(nil)
	next := newRegion(t, "eu", store, "us", "ap")
	e2.tell(next, 9)
	if got := charges(next.pushedPeers(9)); got != 60 {
		t.Errorf("the next aggregator pushes %d, want the 60 that are in the store", got)
	}

	// An edge that lives tells its counts again: they are not counted twice.
	first.tell(eu, 9, charge(start.Add(-minute.Width), 20), charge(start, 40))
	if got := charges(eu.pushedPeers(9)); got != 61 {
		t.Errorf("with e1's counts edges are pushed %d, want 61", got)
	}
	// All of it leaves with its window.
	now = start.Add(3 * time.Minute)
	eu.now = now
	eu.Tick(now)
	if st := eu.Stats(now); st.Keys != 0 {
		t.Errorf("%d keys when the window is over", st.Keys)
	}
}

// What was taken back is stored once more when the store has lost it again.
func TestTakenBackIsStoredAgain(t *testing.T) {
	now := start
	us, before := newRegion(t, "us", newStore(&now), "eu"), newRegion(t, "eu", newStore(&now), "us")
	(&edge{name: "dead"}).tell(before, 9, charge(start, 40))
	before.tellAll(us)
	store := newStore(&now)
	eu := newRegion(t, "eu", store, "us")
	eu.sync(nil) // the first one writes all anew
	(&edge{name: "lives"}).tell(eu, 9, charge(start, 1))
	eu.tellAll(us)
	for range 2 {
		if eu.sync(nil); stored(t, store, 9) != 41 {
			t.Errorf("the store has %d, want 1 of an edge and 40 that were taken back", stored(t, store, 9))
		}
		store.Wipe()
	}
}

// A peer's clock may be wrong: slices more than a second ahead are not taken back, or all
// would be told that this region had counted them.
func TestFutureIsNotTakenBack(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start), "us", "ap")
	eu.now = start.Add(time.Second) // half a second before the next slice
	(&edge{name: "e1"}).tell(eu, 9, charge(start, 5))
	for _, o := range eu.Exports(eu.now) {
		if o.Peer != "us" {
			continue
		}
		reply := replyAs(t, "us", o.Seq, deltasync.Totals{Own: []crdt.Cell{
			charge(start, 6), charge(start.Add(1500*time.Millisecond), 2), charge(start.Add(3*time.Second), 40)}})
		if err := eu.Receive(eu.now, o, reply); err != nil {
			t.Fatal(err)
		}
	}
	if got := charges(eu.pushedPeers(9)); got != 8 {
		t.Errorf("6 now, 2 half a second ahead, 40 two seconds ahead are taken back: edges are pushed %d, want 8", got)
	}
	for _, d := range eu.tellAll() {
		if got := charges(d.Cells); got != 8 {
			t.Errorf("a region is told %d, want 8", got)
		}
	}
}

// tellAll has a region's exports answered by those of the others that there are,
// and returns what they told.
func (r *region) tellAll(others ...*region) (deltas []deltasync.Delta) {
	r.t.Helper()
	for _, o := range r.Exports(r.now) {
		var up deltasync.Up
		if err := up.UnmarshalBinary(o.Payload); err != nil {
			r.t.Fatal(err)
		}
		at := slices.IndexFunc(others, func(other *region) bool { return other.name == o.Peer })
		if at < 0 {
			r.Lost(r.now, o)
			continue
		}
		for _, s := range up.Sections {
			deltas = append(deltas, s.Deltas...)
		}
		if err := r.Receive(r.now, o, others[at].Handle(r.t.Context(), r.now, o.Subject, o.Payload)); err != nil {
			r.t.Fatal(err)
		}
	}
	r.now = r.now.Add(200 * time.Millisecond) // or lanes would rest
	return deltas
}

// Peers are asked once for each key that edges tell first, in the frame that tells
// it to them; not of what the store knows, nor of what only other regions count.
func TestSubtotalIsAskedForOnce(t *testing.T) {
	now := start
	store := newStore(&now)
	eu, us := newRegion(t, "eu", store, "us"), newRegion(t, "us", newStore(&now), "eu")
	e := &edge{name: "e1"}
	e.tell(eu, 9, charge(start, 1))
	if d := eu.tellAll(us); len(d) != 1 || d[0].Flags != deltasync.FlagOwn || charges(d[0].Cells) != 1 {
		t.Errorf("the first export is %+v, want the count and the question in one", d)
	}
	e.tell(eu, 9, charge(start, 2))
	if d := eu.tellAll(us); len(d) != 1 || d[0].Flags != 0 {
		t.Errorf("the second export is %+v, want no question", d)
	}
	next := newRegion(t, "eu", store, "us")
	e.tell(next, 9, charge(start, 3))
	for _, d := range next.tellAll(us) {
		if d.Flags&deltasync.FlagOwn != 0 {
			t.Errorf("an aggregator asks for what the store has: %+v", d)
		}
	}
	(&edge{name: "u1"}).tell(us, 11, charge(start, 1))
	us.tellAll(eu)
	if d := eu.tellAll(us); len(d) != 0 {
		t.Errorf("of a key that another region told it exports %+v, want nothing", d)
	}
	e.tell(eu, 11, charge(start, 1))
	if d := eu.tellAll(us); len(d) != 1 || d[0].Flags != deltasync.FlagOwn {
		t.Errorf("when an edge tells it, the export is %+v, want the question", d)
	}
	bucketed := deltasync.Section{Shape: bucket, Deltas: []deltasync.Delta{{Key: 12, Cells: []crdt.Cell{{Slice: sliceOf(bucket, start), Charges: 1}}}}}
	e.send(eu, bucketed)
	if d := eu.tellAll(us); len(d) != 1 || d[0].Flags != 0 {
		t.Errorf("of a bucket the export is %+v, want no question", d)
	}
	regionally := minute
	regionally.Regional = true
	e.send(eu, deltasync.Section{Shape: regionally, Deltas: []deltasync.Delta{{Key: 13, Cells: []crdt.Cell{charge(start, 1)}}}})
	if d := eu.tellAll(us); len(d) != 0 {
		t.Errorf("of a regional key the export is %+v", d)
	}
}

// Peers are not asked by who finds in the store what the region counted, be it what was
// taken back; they are by who finds there what others counted alone.
func TestSubtotalIsAskedForWhereTheStoreHasNone(t *testing.T) {
	now := start
	for source, want := range map[regional.Source]bool{regional.FromEdge: false, regional.FromPeers: false, regional.FromRegion: true} {
		store := newStore(&now)
		v := regional.Vector{Source: source, Replica: crdt.Replica{Node: deltasync.NodeID("us", "", "")}, Cells: []crdt.Cell{charge(start, 5)}}
		if source == regional.FromPeers {
			v.Replica = crdt.Replica{}
		}
		if _, err := store.Merge(t.Context(), []regional.Item{{Key: 9, Width: minute.Width, Slices: minute.Slices, Vectors: []regional.Vector{v}}}); err != nil {
			t.Fatal(err)
		}
		eu, us := newRegion(t, "eu", store, "us"), newRegion(t, "us", newStore(&now), "eu")
		asked := false
		for n := range uint64(3) {
			(&edge{name: "e1", seq: n}).tell(eu, 9, charge(start, 1+n))
			for _, d := range eu.tellAll(us) {
				asked = asked || d.Flags&deltasync.FlagOwn != 0
			}
		}
		if asked != want {
			t.Errorf("the store has something of source %d: asked %v, want %v", source, asked, want)
		}
	}
}

// A bucket takes nothing back: its carry comes with every reply.
func TestBucketTakesNothingBack(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start), "us")
	own := crdt.Cell{Slice: sliceOf(bucket, start), Charges: 1}
	(&edge{name: "e1"}).send(eu, deltasync.Section{Shape: bucket, Deltas: []deltasync.Delta{{Key: 12, Cells: []crdt.Cell{own}}}})
	o, up := only(t, eu)
	own.Charges = 40
	if err := eu.Receive(eu.now, o, replyAs(t, "us", up.Seq, deltasync.Totals{Own: []crdt.Cell{own}})); err != nil {
		t.Fatal(err)
	}
	if got := charges(eu.pushedPeers(12)); got > 1 {
		t.Errorf("edges are pushed %d, want the 1 that they told", got)
	}
	for _, v := range eu.Vectors(12) {
		if v.Source == regional.FromPeers {
			t.Errorf("%+v is held of a bucket", v)
		}
	}
}

// forgetWhileTold has us, which has room for one key, count another before its homes
// have answered what it tells them of the first.
func (f *four) forgetWhileTold() {
	f.t.Helper()
	f.few(f.us, regional.Config{Boot: still, MaxKeys: 1})
	f.us.sync(nil)
	e := &edge{name: "lives"}
	e.tell(f.us, f.key, charge(f.now, 1))
	sent := f.us.Exports(f.now)
	f.us.Pushes(f.now)
	f.us.sync(nil)
	e.tell(f.us, 9999, charge(f.now, 60))
	for _, o := range sent {
		f.receive(o)
	}
}

// A key that lost its place before its homes answered gets back what they hold of this
// region: the store keeps it. What they were just told is no news, and makes no guest.
func TestKeyWithoutPlaceIsTakenBack(t *testing.T) {
	f := newFour(t)
	(&edge{name: "dead"}).tell(f.us, f.key, charge(start, 30))
	f.pass()
	f.us.store = newStore(&f.now)
	f.forgetWhileTold()
	if n := f.us.Guests(); n != 1 {
		t.Fatalf("%d guests, want the key", n)
	}
	if cells := f.us.pushedPeers(f.key); cells != nil {
		t.Errorf("edges are pushed %v before the store has said the rest", cells)
	}
	f.us.sync(nil)
	if got := charges(f.us.pushedPeers(f.key)); got < 30 {
		t.Errorf("edges are pushed %d of the region, want 30 at least", got)
	}
	if n, got := f.us.Guests(), stored(t, f.us.store, f.key); n != 0 || got != 31 {
		t.Errorf("%d guests are left and the store has %d, want none, 1 of an edge and 30 that were taken back", n, got)
	}
}

// A home that holds of this region what it was just told has no news.
func TestEchoMakesNoGuest(t *testing.T) {
	f := newFour(t)
	f.forgetWhileTold()
	if n := f.us.Guests(); n != 0 || len(f.us.Vectors(f.key)) > 0 {
		t.Errorf("%d guests, want none: the store has it", n)
	}
}
