package deltasync

import (
	"slices"
	"testing"

	"github.com/spillgate/spillgate/crdt"
)

// Few cells are what a Vector is that the same was joined to, whether there is
// one or more of them.
func TestFewCellsAreAVector(t *testing.T) {
	r := newFrames(5)
	var f fewCells
	var want crdt.Vector
	for step := range 20_000 {
		switch c := (crdt.Cell{Slice: crdt.Slice(r.IntN(4)), Charges: 1 + r.Uint64N(300), Refunds: r.Uint64N(2)}); r.IntN(5) {
		case 0:
			f.reset(r.IntN(9))
			want.Reset()
		case 1:
			if n := f.len(); n > 1 {
				i := r.IntN(n)
				want.Retire(want.At(i).Slice)
				f.dropFirst(i)
			}
		default:
			f.join(c)
			want.Join(c)
		}
		got := f.appendTo(nil)
		if len(got) != f.len() {
			t.Fatalf("step %d: len = %d of %v", step, f.len(), got)
		}
		if !slices.Equal(got, want.Cells(nil)) {
			t.Fatalf("step %d: %v, want %v", step, got, want.Cells(nil))
		}
		for s := range crdt.Slice(4) {
			if f.has(s) == want.Get(s).Zero() {
				t.Fatalf("step %d: has(%d) = %v of %v", step, s, f.has(s), got)
			}
		}
	}
}
