package deltasync

import "github.com/spillgate/spillgate/crdt"

// Reader reads replies, one after the other, into memory of its own.
type Reader struct {
	down   Down
	totals []Totals
	cells  []crdt.Cell
}

// Most that a Reader keeps for the next reply: few are larger, and none is for long.
const (
	mostTotals = 1024
	mostCells  = 4096
)

// Down reads a reply as UnmarshalBinary does. What it returns is good until the
// next.
func (r *Reader) Down(b []byte) (*Down, error) {
	r.down, r.cells = Down{}, r.cells[:0]
	if err := r.down.open(b, r.roomForTotals, r.roomForCells); err != nil {
		return nil, err
	}
	return &r.down, nil
}

func (r *Reader) roomForTotals(n int) []Totals {
	switch {
	case n > mostTotals:
		return make([]Totals, n)
	case n > cap(r.totals):
		r.totals = make([]Totals, n, min(2*n, mostTotals))
	}
	totals := r.totals[:n]
	clear(totals)
	return totals
}

// roomForCells is room for those of a column, of which a reply has several.
func (r *Reader) roomForCells(n int) []crdt.Cell {
	taken := len(r.cells)
	if taken+n > cap(r.cells) {
		if taken+n > mostCells {
			return make([]crdt.Cell, n)
		}
		taken, r.cells = 0, make([]crdt.Cell, 0, min(2*(taken+n), mostCells)) // what was taken stays where it is
	}
	r.cells = r.cells[:taken+n]
	return r.cells[taken:]
}
