package crdt

import "cmp"

// Carry is what is left of the retired past of a token or leaky bucket: the
// level that it had, at least, when slice Boundary began, in millionths of a
// unit. It stands for every cell before Boundary, and says nothing of those
// from Boundary on. Like a count it is a lower bound of the truth.
//
// Two carries of one boundary join by the larger level. Of two boundaries the
// older must first be advanced to the newer over merged cells, which takes the
// bucket's drain and so is not done here.
type Carry struct {
	Boundary Slice
	Level    uint64 // millionths of a unit
}

// Zero says that there is no carry: nothing is known of the past.
func (c Carry) Zero() bool { return c == Carry{} }

// Later is the carry with the later boundary, and of equal boundaries the one
// with the larger level. Both are lower bounds, so keeping either is safe; it
// is for places that cannot advance one to the other, and may forget what only
// the older knew.
func (c Carry) Later(d Carry) Carry {
	if c.Compare(d) < 0 {
		return d
	}
	return c
}

// Compare orders carries by boundary, then by level; no carry comes before all.
func (c Carry) Compare(d Carry) int {
	switch {
	case c == d:
		return 0
	case c.Zero():
		return -1
	case d.Zero():
		return 1
	}
	return cmp.Or(cmp.Compare(c.Boundary, d.Boundary), cmp.Compare(c.Level, d.Level))
}
