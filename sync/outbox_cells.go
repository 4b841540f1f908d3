package deltasync

import "github.com/spillgate/spillgate/crdt"

// fewCells is the slices of an entry: nearly all have one, which needs no Vector.
type fewCells struct {
	one  crdt.Cell // zero: all stand in more
	more crdt.Vector
}

func (f *fewCells) join(c crdt.Cell) {
	switch {
	case f.one.Zero() && f.more.Len() == 0:
		f.one = c
		return
	case f.one.Zero():
	case f.one.Slice == c.Slice:
		f.one = f.one.Join(c)
		return
	default:
		f.more.Join(f.one)
		f.one = crdt.Cell{}
	}
	f.more.Join(c)
}

func (f *fewCells) len() int {
	if !f.one.Zero() {
		return 1
	}
	return f.more.Len()
}

// appendTo appends them to dst, ascending.
func (f *fewCells) appendTo(dst []crdt.Cell) []crdt.Cell {
	if !f.one.Zero() {
		return append(dst, f.one)
	}
	return f.more.Cells(dst)
}

// has says that the slice has counts.
func (f *fewCells) has(s crdt.Slice) bool {
	if !f.one.Zero() {
		return f.one.Slice == s
	}
	return !f.more.Get(s).Zero()
}

// dropFirst drops the cells before cell i.
func (f *fewCells) dropFirst(i int) {
	if f.one.Zero() && i > 0 { // the one is never in two
		f.more.Retire(f.more.At(i).Slice)
	}
}

// reset empties it, and keeps its memory if that is no more than some bytes.
func (f *fewCells) reset(most int) {
	if f.one = (crdt.Cell{}); f.more.Bytes() > most {
		f.more = crdt.Vector{}
		return
	}
	f.more.Reset()
}
