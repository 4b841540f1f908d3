package limit

import (
	"math"
	"math/bits"
)

// wide is an unsigned number of 128 bits: what a bucket holds, in units times
// the nanoseconds that its refill is named for, outgrows 64.
type wide struct{ hi, lo uint64 }

func product(a, b uint64) wide {
	hi, lo := bits.Mul64(a, b)
	return wide{hi, lo}
}

// plus saturates.
func (w wide) plus(v wide) wide {
	lo, carry := bits.Add64(w.lo, v.lo, 0)
	hi, carry := bits.Add64(w.hi, v.hi, carry)
	if carry != 0 {
		return wide{math.MaxUint64, math.MaxUint64}
	}
	return wide{hi, lo}
}

// minus stops at zero.
func (w wide) minus(v wide) wide {
	if !v.less(w) {
		return wide{}
	}
	lo, borrow := bits.Sub64(w.lo, v.lo, 0)
	hi, _ := bits.Sub64(w.hi, v.hi, borrow)
	return wide{hi, lo}
}

func (w wide) less(v wide) bool { return w.hi < v.hi || w.hi == v.hi && w.lo < v.lo }

// over is the quotient and the remainder; a quotient that does not fit, and
// one by zero, saturates.
func (w wide) over(d uint64) (q, rem uint64) {
	if w.hi >= d {
		return math.MaxUint64, 0
	}
	return bits.Div64(w.hi, w.lo, d)
}

// overUp is the quotient rounded up, saturating likewise.
func (w wide) overUp(d uint64) uint64 {
	q, rem := w.over(d)
	if rem != 0 && q < math.MaxUint64 {
		q++
	}
	return q
}

// satMul is a * b, or 2^64-1 where that does not fit.
func satMul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}
