package deltasync

import (
	"fmt"
	"testing"

	"github.com/spillgate/spillgate/test/alone"
)

// An index finds what is in it and nothing else, whatever came and went: also
// where keys want one place, and where a key has several entries.
func TestIndexIsAMap(t *testing.T) {
	alone.Mark(t)
	for _, odd := range []uint64{0, 1} { // 0: as it comes; 1: small keys all have the first place as home
		t.Run(fmt.Sprint(odd), func(t *testing.T) {
			r, x, want := newFrames(1), newIndex(), map[lifeKey]*entry{}
			if odd != 0 {
				x.odd = odd
			}
			for step := range 50_000 {
				most := 1 + step/20%500
				id := lifeKey{key: Key(1 + r.IntN(most)), life: r.Uint32N(3)}
				if r.IntN(9) == 0 {
					id.key = ^id.key // its home is the last place
				}
				e := want[id]
				if got := x.find(&id); got != e {
					t.Fatalf("step %d: find(%v) = %v, want %v", step, id, got, e)
				}
				switch {
				case e == nil:
					e = &entry{lifeKey: id}
					x.add(e)
					want[id] = e
				case r.IntN(3) > 0:
					x.remove(e)
					delete(want, id)
				}
				if x.taken != len(want) || 4*x.taken > 3*len(x.places) {
					t.Fatalf("step %d: %d taken of %d, want %d", step, x.taken, len(x.places), len(want))
				}
			}
			for id, e := range want {
				if got := x.find(&id); got != e {
					t.Fatalf("find(%v) = %v, want %v", id, got, e)
				}
			}
		})
	}
}
