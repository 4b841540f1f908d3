package regional_test

import (
	"context"
	"testing"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// TestOutageAndRefusal: the status tells of the store, and what was turned away
// is named beside it; store_down alone would pass for an acknowledgement.
func TestOutageAndRefusal(t *testing.T) {
	b := &broken{Store: newStore(&start), down: true}
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, MaxKeys: 1}, b)
	if err != nil {
		t.Fatal(err)
	}
	r := &region{Aggregator: a, t: t, name: "eu", now: start}
	e := &edge{name: "e1"}
	if down := e.tell(r, 1, charge(start, 1)); down.Status != deltasync.StatusStoreDown || !down.Took(0) {
		t.Errorf("the first key with the store away: %v, taken: %v, want store_down, true", down.Status, down.Took(0))
	}
	if down := e.tell(r, 2, charge(start, 1)); down.Status != deltasync.StatusStoreDown || down.Took(0) {
		t.Errorf("one key too many with the store away: %v, taken: %v, want store_down, false", down.Status, down.Took(0))
	}
}

// slow is a store that fails when it is given too much at once, as one that
// does not answer in time.
type slow struct {
	broken
	most int
}

func (s *slow) Merge(ctx context.Context, items []regional.Item) ([]regional.Item, error) {
	if len(items) > s.most {
		return nil, regional.ErrStore
	}
	return s.broken.Merge(ctx, items)
}

// TestSlowStoreCatchesUp: after an outage the backlog goes in pieces that a
// slow store can take.
func TestSlowStoreCatchesUp(t *testing.T) {
	mem := newStore(&start)
	s := &slow{broken: broken{Store: mem, down: true}, most: 256}
	r := newRegion(t, "eu", s)
	e := &edge{name: "e1"}
	const keys = 3000
	var deltas []deltasync.Delta
	for k := range deltasync.Key(keys) {
		deltas = append(deltas, deltasync.Delta{Key: k + 1, Cells: []crdt.Cell{charge(start, 1)}})
	}
	e.send(r, deltasync.Section{Shape: minute, Deltas: deltas})
	if st := r.Stats(start); st.Unstored != keys {
		t.Fatalf("%d keys unstored in the outage, want %d", st.Unstored, keys)
	}
	s.down = false
	if err := r.Sync(context.Background(), start); err != nil {
		t.Fatalf("Sync after the outage: %v", err)
	}
	if st := r.Stats(start); st.Unstored != 0 || st.StoreDown || mem.Keys() != keys {
		t.Errorf("after the outage: %+v and %d keys stored, want all", st, mem.Keys())
	}
}
