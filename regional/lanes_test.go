package regional_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// beat has another aggregator of the region say that it lives.
func (r *region) beat(l deltasync.Live) {
	r.t.Helper()
	l.Region, l.Incarnation, l.Lanes = r.name, 1, 1
	b, err := l.AppendBinary(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.HearBeat(r.now, b); err != nil {
		r.t.Fatal(err)
	}
}

// yield finds a name that the only lane goes to, and has it say that it lives.
func (r *region) yield() (name string) {
	r.t.Helper()
	for i := 0; r.Owns(0); i++ {
		name = fmt.Sprint("other", i)
		r.beat(deltasync.Live{Name: name})
	}
	return name
}

// Whatever an aggregator is sent of a lane that is another's is taken, stored and
// exported, and the sender is told so.
func TestOthersLane(t *testing.T) {
	now := start
	store := newStore(&now)
	r := newRegion(t, "eu", store, "us")
	e := &edge{name: "e1"}
	name := r.yield()
	down := e.tell(r, 9, charge(now, 99))
	if down.Status != deltasync.StatusNotOwner || !down.Took(0) {
		t.Errorf("status %v, want that it is not the owner and took it", down.Status)
	}
	if got := len(r.Pushes(now)); got != 1 {
		t.Errorf("%d pushes just after the hand-over, want that of the limit reached", got)
	}
	if got := r.Exports(now); len(got) != 1 {
		t.Errorf("%d exports, want what it took", len(got))
	}
	answer, err := store.Load(context.Background(), []regional.Item{{Key: 9, Width: minute.Width, Slices: minute.Slices}})
	if err != nil || len(answer[0].Vectors) != 1 {
		t.Errorf("the store has %+v, %v", answer, err)
	}
	r.now = r.now.Add(600 * time.Millisecond)
	r.beat(deltasync.Live{Name: name})
	r.now = r.now.Add(600 * time.Millisecond)
	if r.beat(deltasync.Live{Name: name}); r.Serves(0) {
		t.Error("it still serves the lane")
	}
	e.tell(r, 9, charge(now, 100))
	if got := len(r.Pushes(r.now)); got != 0 {
		t.Errorf("%d pushes of another's lane", got)
	}
	// The other one falls silent: all is as before, and what it was to push is pushed.
	r.now = r.now.Add(300 * time.Millisecond)
	r.Assign(r.now)
	r.now = r.now.Add(300 * time.Millisecond)
	r.Assign(r.now)
	r.now = r.now.Add(300 * time.Millisecond)
	r.Assign(r.now)
	if got := charges(r.pushedPeers(9)); got != 100 {
		t.Errorf("edges are pushed %d, want the 100 that it heard of as the lane was another's", got)
	}
	if down := e.tell(r, 9, charge(now, 101)); down.Status != deltasync.StatusOK {
		t.Errorf("status %v with nobody else there", down.Status)
	}
	if got := len(r.Pushes(r.now)); got != 1 {
		t.Errorf("%d pushes of its own lane", got)
	}
	if st := r.Stats(r.now); st.Takeovers != 1 || st.Members != 1 || st.Owned != 1 || st.Lanes != 1 {
		t.Errorf("stats %+v", st)
	}
}

// That the store is away is what matters to the sender, whoever owns the lane.
func TestOthersLaneWithoutStore(t *testing.T) {
	r := newRegion(t, "eu", &broken{Store: newStore(&start), down: true})
	r.yield()
	if down := (&edge{name: "e1"}).tell(r, 9, charge(start, 1)); down.Status != deltasync.StatusStoreDown {
		t.Errorf("status %v, want that it is not stored", down.Status)
	}
}

// What is another's is forgotten when it is stored and told, and not before.
func TestOthersLaneIsForgotten(t *testing.T) {
	now := start
	r := newRegion(t, "eu", newStore(&now), "us")
	e := &edge{name: "e1"}
	e.tell(r, 9, charge(now, 5))
	name := r.yield()
	for range 10 {
		now = now.Add(200 * time.Millisecond)
		r.now = now
		r.beat(deltasync.Live{Name: name})
	}
	if r.Tick(now); r.Stats(now).Keys != 1 {
		t.Error("what no other region was told is forgotten")
	}
	for _, o := range r.Exports(now) {
		peer := newRegion(t, "us", newStore(&now), "eu")
		if err := r.Receive(now, o, peer.Handle(context.Background(), now, o.Subject, o.Payload)); err != nil {
			t.Fatal(err)
		}
	}
	if r.Tick(now); r.Stats(now).Keys != 0 {
		t.Error("what is another's is not forgotten")
	}
	// Where it is asked all the same, the store still has it.
	if down := (&edge{name: "e2"}).tell(r, 9, charge(now, 1)); charges(down.Totals[0].Peers) != 5 {
		t.Errorf("e2 hears %d, want e1's 5", charges(down.Totals[0].Peers))
	}
}

// Who owns other lanes than the first hears of idle edges and regions from who
// owns that.
func TestLiveEdgesOfOthers(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	r.beat(deltasync.Live{Name: "b", LiveEdges: 7, LiveRegions: 3})
	if st := r.Stats(start); st.LiveEdges != 7 || st.LiveRegions != 3 || st.Members != 2 {
		t.Errorf("%d edges and %d regions live, of %d members", st.LiveEdges, st.LiveRegions, st.Members)
	}
}

// A PoP that invents edges makes the parts smaller that its own may take of what nobody has
// told, and nobody else's, at whichever aggregator: an idle edge is heard by one.
func TestInventedEdgesAreTheirPoPs(t *testing.T) {
	first, other := newRegion(t, "eu", newStore(&start)), newRegion(t, "eu", newStore(&start))
	for i := range 300 {
		(&edge{name: fmt.Sprint("x", i), pop: "m"}).tell(first, 9)
	}
	p, m := &edge{name: "e", pop: "p"}, &edge{name: "x0", pop: "m", seq: 1}
	(&edge{name: "e", pop: "q"}).tell(first, 9)
	for _, tt := range []struct {
		edge *edge
		want int
	}{{p, 3}, {m, 900}} {
		if got := tt.edge.tell(first, 9).LiveEdges; got != tt.want {
			t.Errorf("an edge of PoP %s is to reckon with %d, want %d", tt.edge.pop, got, tt.want)
		}
	}
	var l deltasync.Live
	if err := l.UnmarshalBinary(first.Beat(start)); err != nil || l.LiveEdges != 302 || l.EvenEdges != 1+1+3 {
		t.Fatalf("it beats %+v, %v, want 302 edges, 5 evenly", l, err)
	}
	l.Name = "b"
	other.beat(l)
	if got := p.tell(other, 9).LiveEdges; got != 5 {
		t.Errorf("where it alone is heard, it is to reckon with %d, want 5", got)
	}
	other.beat(deltasync.Live{Name: "c", LiveEdges: 302}) // of the build before
	if got := p.tell(other, 9).LiveEdges; got != 302 {
		t.Errorf("by what a build before tells, it is to reckon with %d, want 302", got)
	}
}

// One that leaves says so, owns nothing, and answers for a while.
func TestLeave(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	r.beat(deltasync.Live{Name: "b"})
	var l deltasync.Live
	if err := l.UnmarshalBinary(r.Leave(start)); err != nil || !l.Leaving {
		t.Errorf("it says %+v, %v", l, err)
	}
	if r.Owns(0) {
		t.Error("it owns the lane still")
	}
}

// One that listens says nothing: others would give it lanes that it does not
// serve yet.
func TestNewcomerIsSilent(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	if r.Join(start); r.Beat(start) != nil || r.Owns(0) {
		t.Error("it speaks, or owns a lane, before it has listened")
	}
	if !r.Stats(start).Listening {
		t.Error("nobody can see that it listens")
	}
	if r.Found(start); r.Beat(start) == nil || !r.Owns(0) {
		t.Error("with nobody there it does not begin")
	}
}

func TestBadBeats(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	b, err := (&deltasync.Live{Region: "us", Name: "b", Lanes: 1}).AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range [][]byte{nil, []byte("poison"), b} {
		if r.HearBeat(start, payload) == nil {
			t.Errorf("%q is taken for a beat", payload)
		}
	}
	if st := r.Stats(start); st.Members != 1 {
		t.Errorf("%d members", st.Members)
	}
}

// A peer's lane without an owner is tried a few times a second until one has
// taken it over, and seldom when nobody does.
func TestPeersLaneWithoutOwner(t *testing.T) {
	now := start
	r := newRegion(t, "eu", newStore(&now), "us")
	(&edge{name: "e1"}).tell(r, 9, charge(now, 1))
	tries := func(d time.Duration) (n int) {
		for end := now.Add(d); now.Before(end); now = now.Add(20 * time.Millisecond) {
			for _, o := range r.Exports(now) {
				r.Lost(now, o)
				n++
			}
		}
		return n
	}
	if got := tries(2 * time.Second); got < 8 || got > 12 {
		t.Errorf("%d tries in two seconds", got)
	}
	if got := tries(10 * time.Second); got > 12 {
		t.Errorf("%d tries in ten seconds, later", got)
	}
}

// A peer's new owner of a lane is told everything again where it may lack it, and
// nothing where it has the store of the one before, who stored what it took.
func TestPeersNewOwner(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after uint64 // stores
		status        deltasync.Status
		again         bool
	}{
		"the same store":              {7, 7, deltasync.StatusOK, false},
		"another store":               {7, 8, deltasync.StatusOK, true},
		"who does not say":            {0, 0, deltasync.StatusOK, true},
		"the one before had no store": {7, 7, deltasync.StatusStoreDown, true},
	} {
		now := start
		r := newRegion(t, "eu", newStore(&now), "us")
		e := &edge{name: "e1"}
		exchange := func(key deltasync.Key, epoch, store uint64, status deltasync.Status) {
			e.tell(r, key, charge(now, 1))
			for _, o := range r.Exports(now) {
				down := deltasync.Down{Status: status, Region: "us", Node: deltasync.NodeID("us", "", ""), Seq: o.Seq,
					StoreEpoch: epoch, Store: store, Totals: make([]deltasync.Totals, 1)}
				b, err := down.AppendBinary(nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Receive(now, o, b); err != nil {
					t.Fatal(err)
				}
			}
		}
		exchange(9, 1, tt.before, tt.status)
		exchange(10, 2, tt.after, deltasync.StatusOK)
		again := r.Untold() > 0
		if again != tt.again {
			t.Errorf("%s: told again %v, want %v", name, again, tt.again)
		}
	}
}
