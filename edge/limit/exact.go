package limit

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// Exact is what an edge remembers of its own charges to one counter beyond
// their slices, for the algorithms that are exact at the edge: Rate.Exact says
// which. The zero value remembers nothing. It belongs to one rate, but for a
// change of its limits; Reset makes it new.
//
// Time is an argument, and may step back: what comes a little late counts as
// if it came in order; a clock that was set back leaves what is used as it is,
// to go on from the new time.
type Exact struct {
	bucket bucket
}

// Exact says that the rate is measured with an Exact.
func (r *Rate) Exact() bool { return r.Bucket() }

// Charge books a cost at an instant. It is for what was admitted; a log with
// CountDenied takes what was denied too.
func (x *Exact) Charge(r *Rate, cost uint64, at int64) {
	if cost == 0 {
		return
	}
	x.bucket.charge(r, cost, at)
}

// Refund takes back a charge that was made in a slice, as far as it still
// counts.
func (x *Exact) Refund(r *Rate, cost uint64, made crdt.Slice, now int64) {
	x.bucket.refund(r, cost, made, now)
}

// Reset forgets everything, but keeps memory for the next counter.
func (x *Exact) Reset() { *x = Exact{} }

// Lump is the first instant from which a charge would no longer be exact if it
// were booked as made at now: until then the caller may gather charges and
// book them together. A bucket does not mind when it is poured into until it
// would have been empty; everything else does.
func (r *Rate) Lump(x *Exact, now int64) (until int64) {
	if r.Bucket() {
		return x.bucket.lump(r, now)
	}
	return satAdd(now, 1)
}

// Measure is what counts against the limit at now. sums are the cells of all
// by slice, others those of all but this edge; both ascend. x holds this
// edge's own charges and is brought to now; nil: only the sums count. As
// others' charges are known by slice only, the level of a bucket is the larger
// of the exact one of its own charges and the least that the sums allow.
func (r *Rate) Measure(x *Exact, others, sums []crdt.Cell, carry Carry, now int64) Level {
	if !r.Bucket() || x == nil {
		return r.Used(sums, carry, now)
	}
	x.bucket.drain(r, now)
	return r.Used(sums, carry, now).orMore(r.ofExact(&x.bucket))
}

// Wait is how long after now cost would be admitted if nothing more were
// charged, at least a nanosecond, and for what is exact the first at which it
// is. Cost that never fits waits until nothing is used, or until nothing drains
// any more. The arguments are those of Measure.
func (r *Rate) Wait(x *Exact, others, sums []crdt.Cell, carry Carry, cost uint64, now int64) time.Duration {
	if r.Bucket() {
		return max(r.bucketWait(x, sums, carry, cost, now), 1)
	}
	return r.windowWait(sums, cost, now)
}

// RetryAfter is Wait for an edge that remembers nothing but slices.
func (r *Rate) RetryAfter(sums []crdt.Cell, carry Carry, cost uint64, now int64) time.Duration {
	return r.Wait(nil, sums, sums, carry, cost, now)
}

// orMore is the larger level.
func (l Level) orMore(m Level) Level {
	switch {
	case m.Whole > l.Whole:
		return m
	case m.Whole == l.Whole:
		return Level{l.Whole, l.Part || m.Part}
	}
	return l
}
