package crdt

import "math"

// Slice names one aligned cell of time. For slices of equal width it is
// floor(UTC nanoseconds / width in nanoseconds); for calendar periods it is
// the UTC start of the period in milliseconds. Only the order matters here.
type Slice int64

// Cell is what one replica, or a sum of replicas, counted in one slice.
type Cell struct {
	Slice   Slice
	Charges uint64 // cost charged in the slice; only grows
	Refunds uint64 // cost given back to the slice; only grows
}

// Net is charges less refunds, never below zero. It is taken on sums: a
// replica may refund what another charged, so the net of a single replica
// means nothing.
func (c Cell) Net() uint64 {
	if c.Refunds >= c.Charges {
		return 0
	}
	return c.Charges - c.Refunds
}

// Join is the least cell that is no smaller than c and d in either count.
func (c Cell) Join(d Cell) Cell {
	c.Charges = max(c.Charges, d.Charges)
	c.Refunds = max(c.Refunds, d.Refunds)
	return c
}

// Plus adds the counts of d to those of c, saturating.
func (c Cell) Plus(d Cell) Cell {
	c.Charges = SatAdd(c.Charges, d.Charges)
	c.Refunds = SatAdd(c.Refunds, d.Refunds)
	return c
}

// Less takes the counts of d from those of c, stopping at zero.
func (c Cell) Less(d Cell) Cell {
	c.Charges = SatSub(c.Charges, d.Charges)
	c.Refunds = SatSub(c.Refunds, d.Refunds)
	return c
}

// Zero says that neither count is set.
func (c Cell) Zero() bool { return c.Charges|c.Refunds == 0 }

// SatAdd is a + b, or 2^64-1 where that does not fit.
func SatAdd(a, b uint64) uint64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxUint64
}

// SatSub is a - b, or zero where b is larger.
func SatSub(a, b uint64) uint64 {
	if b >= a {
		return 0
	}
	return a - b
}
