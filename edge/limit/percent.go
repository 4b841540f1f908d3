package limit

import (
	"math"

	"github.com/spillgate/spillgate/crdt"
)

// percent is a number of them, in millionths: 29 % of 100 is 29, which in
// floating point it is not.
type percent uint64

const hundred = 100 * micro

// percentOf reads a number of percent; one that makes no sense, which is told
// elsewhere, is none.
func percentOf(p float64) percent {
	if !isMargin(p) {
		return 0
	}
	return percent(math.Round(p * micro))
}

// positive is percentOf of what is more than none, and stays so.
func positive(p float64) percent { return max(1, percentOf(p)) }

// on is x and so many percent of it, rounded down.
func (p percent) on(x uint64) uint64 {
	more, _ := product(x, uint64(p)).over(hundred)
	return crdt.SatAdd(x, more)
}

// of is so many percent of x, rounded up.
func (p percent) of(x uint64) uint64 { return product(x, uint64(p)).overUp(hundred) }

// parts is what a rule names in percent of the limits of its rates. They are
// taken from the limit that decides: from that of a tenant, or of a request, as
// from the rule's own.
type parts struct {
	margin   percent   // admitted above the limit
	near     percent   // from where on a level is near it; 0: none is
	withheld []percent // by class, what it leaves to those above it
}

// divide sets parts of the rate, and of what takes its place, and takes them from
// its limit.
func (r *Rate) divide(set func(*parts)) {
	for v := r; v != nil; v = v.Open {
		set(&v.parts)
		v.apportion()
	}
}

// apportion takes the parts from the limit: of a bucket from its capacity, what
// it starts with beyond that left out. A part of a request is a whole one.
func (r *Rate) apportion() {
	floor := r.Drain.Floor
	capacity := r.Limit - floor
	ceiling := max(r.Limit, min(crdt.SatAdd(r.parts.margin.on(capacity), floor), r.most()))
	if r.Bucket() {
		r.admitUpTo(ceiling)
		r.Drain.Most = r.overfull()
	} else {
		r.Ceiling = ceiling
	}
	r.Near = 0
	if r.parts.near > 0 {
		r.Near = crdt.SatAdd(floor, r.parts.near.of(capacity))
	}
	r.withheld = nil
	for _, p := range r.parts.withheld {
		r.withheld = append(r.withheld, p.of(capacity))
	}
}

// CeilingOf is what is admitted at the most where the limit is another, as for a
// tenant: with the margin that belongs to it, the elastic one where there is one.
func (r *Rate) CeilingOf(limit uint64) uint64 {
	if r.Open != nil {
		r = r.Open
	}
	floor := min(r.Drain.Floor, limit)
	return max(limit, min(crdt.SatAdd(r.parts.margin.on(limit-floor), floor), r.most()))
}

// most is the largest ceiling that the rate's algorithm can measure.
func (r *Rate) most() uint64 {
	switch {
	case r.Bucket():
		return MaxUnits
	case r.Algorithm == SlidingLog:
		return MaxLog
	}
	return maxLimit
}
