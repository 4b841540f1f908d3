package regional_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// writing keeps the slices that merges wrote.
type writing struct {
	regional.Store
	slices map[crdt.Slice]bool
}

func (s *writing) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	for i := range batch {
		for _, v := range batch[i].Vectors {
			for _, c := range v.Cells {
				s.slices[c.Slice] = true
			}
		}
	}
	return s.Store.Merge(ctx, batch)
}

// What comes so late that its slice has retired goes nowhere, be it an edge that tells it or
// another region: no edge is answered with it, no region told, and the store is spared it.
// The slice after it is still taken.
func TestRetiredSlicesGoNowhere(t *testing.T) {
	first, _ := (&regional.Item{Width: minute.Width, Slices: minute.Slices}).Live(start)
	cells := []crdt.Cell{{Slice: first - 1, Charges: 2}, {Slice: first, Charges: 4}, charge(start, 8)}
	kept := []crdt.Slice{first, slice(start)}
	for name, tt := range map[string]struct {
		tell func(eu *region)
		told []crdt.Slice // to another region
	}{
		"an edge": {func(eu *region) {
			if down := (&edge{name: "e1"}).tell(eu, 9, cells...); down.Status != deltasync.StatusOK {
				eu.t.Errorf("an edge is answered %v, want ok: it is no mistake to be late", down.Status)
			}
		}, kept},
		"another region": {func(eu *region) {
			(&edge{name: "e1"}).tell(eu, 9, charge(start, 1))
			o, up := only(eu.t, eu)
			if err := eu.Receive(start, o, replyAs(eu.t, "us", up.Seq, peers(cells...))); err != nil {
				eu.t.Fatal(err)
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			wrote := &writing{Store: newStore(&start), slices: map[crdt.Slice]bool{}}
			eu := newRegion(t, "eu", wrote, "us")
			if err := eu.Sync(t.Context(), start); err != nil { // a new epoch would have all written
				t.Fatal(err)
			}
			tt.tell(eu)
			down := (&edge{name: "e2"}).tell(eu, 9)
			for _, c := range append(down.Totals[0].Others, down.Totals[0].Peers...) {
				if c.Slice < first {
					t.Errorf("an edge is answered %+v, want nothing before slice %d", c, first)
				}
			}
			told := map[string]map[deltasync.Key]*crdt.Vector{"us": {9: {}}}
			for _, o := range eu.Exports(start) {
				hear(t, told, &o)
			}
			var got []crdt.Slice
			for _, c := range told["us"][9].Cells(nil) {
				got = append(got, c.Slice)
			}
			if !slices.Equal(got, tt.told) {
				t.Errorf("another region is told slices %v, want %v", got, tt.told)
			}
			if err := eu.Sync(t.Context(), start); err != nil {
				t.Fatal(err)
			}
			if got := slices.Sorted(maps.Keys(wrote.slices)); !slices.Equal(got, kept) {
				t.Errorf("slices %v are written, want %v", got, kept)
			}
		})
	}
}
