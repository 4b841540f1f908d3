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

// An edge of either build is one sender, under the name that tells its PoP: its counts are
// not counted twice when it begins to call itself otherwise.
func TestEdgesByEitherName(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	for i, node := range []uint64{deltasync.WireNodeID("eu", "p", "e1"), deltasync.NodeID("eu", "p", "e1"), deltasync.NodeID("eu", "q", "e1")} {
		up := deltasync.Up{Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: "e1", Node: node, Incarnation: 1, Lanes: 1, Seq: uint64(1 + i), SentAt: start.UnixNano(),
			Sections: []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, uint64(5+i))}}}}}}
		b, err := up.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		want := deltasync.StatusOK
		if i == 2 {
			want = deltasync.StatusForbidden // another PoP's
		}
		if got := decode(t, r.Handle(t.Context(), start, deltasync.EdgeSubject("eu", 0, "p", "e1"), b)).Status; got != want {
			t.Errorf("as %016x it is answered %v, want %v", node, got, want)
		}
	}
	vectors := r.Vectors(9)
	if len(vectors) != 1 || vectors[0].Replica.Node != deltasync.NodeID("eu", "p", "e1") || charges(vectors[0].Cells) != 6 {
		t.Errorf("%+v is held, want 6 of one node", vectors)
	}
}
