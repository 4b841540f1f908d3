package regional_test

import (
	"context"
	"testing"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// once is a store that counts keys which stand in a batch more than once.
type once struct {
	regional.Store
	twice, merged int
}

func (s *once) Merge(ctx context.Context, items []regional.Item) ([]regional.Item, error) {
	seen := map[deltasync.Key]bool{}
	for i := range items {
		if s.merged++; seen[items[i].Key] {
			s.twice++
		}
		seen[items[i].Key] = true
	}
	return s.Store.Merge(ctx, items)
}

// A frame with many lives of a key is written once a batch: each item more would have the
// store answer with all that it has of the key, as the first had changed it.
func TestLivesOfAKeyAreWrittenOnce(t *testing.T) {
	store := &once{Store: newStore(&start)}
	r := newRegion(t, "eu", store)
	frame := func(charges uint64) (sections []deltasync.Section) {
		for life := range uint32(600) {
			sections = append(sections, deltasync.Section{Shape: minute, Life: life, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, charges)}}}})
		}
		return sections
	}
	e := &edge{name: "e"}
	for charges := range uint64(2) {
		if got := e.send(r, frame(1+charges)...).Status; got != deltasync.StatusOK {
			t.Fatalf("600 lives of a key: %v", got)
		}
	}
	if store.twice > 0 || store.merged > 10 {
		t.Errorf("of %d items for one key %d stood in a batch again, want none, and a few in all", store.merged, store.twice)
	}
	fresh := newRegion(t, "eu", store)
	if got := charges((&edge{name: "asker"}).tell(fresh, 9).Totals[0].Peers); got != 1200 {
		t.Errorf("%d counted in the store, want 2 of each life", got)
	}
}
