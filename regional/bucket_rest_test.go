package regional_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
)

// restOf is what a store has of what rests of a bucket, in millionths.
func restOf(t *testing.T, s regional.Store) uint64 {
	t.Helper()
	got, err := s.Load(context.Background(), []regional.Item{{Key: 9, Width: rested.Width, Slices: 2 * rested.Slices, Floor: true}})
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return got[0].Rest.Level
}

// spend charges the bucket with a floor once and lets so many seconds pass.
func (e *edge) spend(r *region, units uint64, seconds int) {
	r.t.Helper()
	e.pour(r, rested, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(rested, r.now), Charges: units})
	for range seconds {
		r.step(time.Second)
	}
}

// A store that was wiped gets back what rests of a bucket though nothing else is
// known of its level: that alone outlives the counts.
func TestWipedStoreGetsTheRestBack(t *testing.T) {
	r, store := bucketRegion(t, "eu", 1)
	(&edge{name: "e1"}).spend(r, 30, 12) // below the floor of 40, and no slice has retired
	if got := restOf(t, store); got != 30*micro {
		t.Fatalf("%d millionths rest in the store, want 30 units", got)
	}
	store.Wipe()
	if err := r.Sync(context.Background(), r.now); err != nil {
		t.Fatal(err)
	}
	if got := restOf(t, store); got != 30*micro {
		t.Errorf("%d millionths rest in the store that was wiped, want 30 units", got)
	}
	for range 60 {
		r.step(time.Second)
	}
	if st := r.Stats(r.now); st.Keys != 0 {
		t.Fatalf("%d keys a minute later, want what rests left to the store", st.Keys)
	}
	if got := levelOf(rested, ask(r, rested, 9), r.now); got != 30*micro {
		t.Errorf("a minute later the level is %d millionths, want 30 units", got)
	}
}

// A store that was wiped and has less of what rests by now takes nothing from
// what the aggregator knows.
func TestSmallerRestOfTheStoreIsNotTaken(t *testing.T) {
	r, store := bucketRegion(t, "eu", 1)
	first := &edge{name: "e1"}
	first.spend(r, 140, 12)
	if got := restOf(t, store); got != 40*micro {
		t.Fatalf("%d millionths rest in the store, want the floor, 40 units", got)
	}
	store.Wipe()
	other := newRegion(t, "eu", store)
	other.now = r.now
	(&edge{name: "e2"}).spend(other, 20, 0)
	for range 12 { // for the first, too, and its store, but it does nothing meanwhile
		r.now = r.now.Add(time.Second)
		other.now = r.now
		other.step(0)
	}
	if got := restOf(t, store); got != 20*micro {
		t.Fatalf("%d millionths rest in the store that was wiped, want 20 units", got)
	}
	first.spend(r, 1, 0) // hears of the 20
	if err := r.Sync(context.Background(), r.now); err != nil {
		t.Fatal(err)
	}
	if got := restOf(t, store); got != 40*micro {
		t.Errorf("%d millionths rest in the store when the first has written again, want its 40 units", got)
	}
}
