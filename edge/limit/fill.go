package limit

import (
	"math"

	"github.com/spillgate/spillgate/crdt"
)

// Fill is how full a bucket is, in millionths of a unit, as carries have it: what goes on
// under another rate. Rounded to units it would rise at each change by what had drained of
// one, and a bucket whose rules change faster than a unit drains would never be empty.
type Fill uint64

// FillOf is that of so many units.
func FillOf(units uint64) Fill { return Fill(satMul(units, micro)) }

// Plus saturates.
func (f Fill) Plus(units uint64) Fill { return Fill(crdt.SatAdd(uint64(f), satMul(units, micro))) }

// Less stops at zero.
func (f Fill) Less(units uint64) Fill { return Fill(crdt.SatSub(uint64(f), satMul(units, micro))) }

// OwnFill is what Own is, to the millionth, rounded up.
func (r *Rate) OwnFill(x *Exact, now int64) Fill {
	b := x.bucket.asOf(r, now)
	whole, rem := b.level.over(b.per)
	return Fill(crdt.SatAdd(satMul(whole, micro), product(rem, micro).overUp(b.per)))
}

// UsedFill is what Used is of a bucket.
func (r *Rate) UsedFill(sums []crdt.Cell, carry Carry, now int64) Fill {
	return Fill(r.Drain.Level(carry, sums, now, r.beyond(r.SliceAt(now))))
}

// Drained is what is left of a fill after some time, if nothing is poured in.
func (r *Rate) Drained(f Fill, from, to int64) Fill {
	if to <= from {
		return f
	}
	return Fill(r.Drain.after(uint64(f), r.Drain.within(uint64(to)-uint64(from))))
}

// Inherits charges what was in a bucket some time ago. What is known of turns was told
// since, by the same clock.
func (x *Exact) Inherits(r *Rate, f Fill, at int64) {
	b := &x.bucket
	told := b.turns.told
	b.turns.told = 0
	b.charge(r, 0, at)
	had := product(uint64(f)/micro, b.per)
	if had = had.plus(wide{lo: product(uint64(f)%micro, b.per).overUp(micro)}); had.hi >= b.per {
		had = product(math.MaxUint64, b.per)
	}
	if b.level.less(had) {
		b.level = had
	}
	b.turns.told = told
}

// CarryOf is the carry of a bucket that is so full at now: what has drained since the slice
// of now began was in it then, and drains again.
func (r *Rate) CarryOf(f Fill, now int64) Carry {
	c := Carry{Boundary: r.SliceAt(now), Level: uint64(f)}
	if c.Level > r.Drain.floor() {
		c.Level = crdt.SatAdd(c.Level, r.Drain.within(uint64(now-r.StartOf(c.Boundary))))
	}
	return c
}
