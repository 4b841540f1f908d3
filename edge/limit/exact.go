package limit

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// Exact is what an edge remembers of its own charges to one counter beyond
// their slices, for the algorithms that are exact at the edge: Rate.Exact says
// which. The zero value remembers nothing. It belongs to one rate, but for a
// change of its limits; Reset makes it new. Where several limits share it, each
// sees a bucket drain by its own refill since the last charge, and what the next
// charge makes of it is there for all; but of what slices tell, own ones included,
// each sees all drain by its own refill: see Measure.
//
// Time is an argument, and may step back: what comes a little late counts as
// if it came in order; a clock that was set back leaves what is used as it is,
// to go on from the new time.
type Exact struct {
	bucket bucket
	log    log
	window hitWindow
}

// Exact says that the rate is measured with an Exact.
func (r *Rate) Exact() bool {
	return r.Bucket() || r.Algorithm == SlidingLog || r.Algorithm == FirstHit
}

// Charge books a cost at an instant. It is for what was admitted; a log with
// CountDenied takes what was denied too.
func (x *Exact) Charge(r *Rate, cost uint64, at int64) {
	switch {
	case cost == 0:
	case r.Bucket():
		x.bucket.charge(r, cost, at)
	case r.Algorithm == SlidingLog:
		x.log.charge(r, cost, at)
	case r.Algorithm == FirstHit:
		x.window.charge(r, cost, at)
	}
}

// Refund takes back a charge that was made in a slice, at an instant of it, or 0 where
// that is not known, as far as it still counts; own is what is left of the edge's charges
// by slice, nil where nobody knows. It returns what it found no charge for. That is others', to be taken
// off their cell of the slice; of a bucket it is in the sums already, and so 0.
func (x *Exact) Refund(r *Rate, cost uint64, made crdt.Slice, at int64, own *crdt.Vector, now int64) (left uint64) {
	switch {
	case r.Bucket():
		x.bucket.refund(r, cost, made, now)
	case r.Algorithm == SlidingLog:
		return x.log.refund(r, cost, made, at, now)
	case r.Algorithm == FirstHit:
		return x.window.refund(r, cost, made, own, now)
	}
	return 0
}

// Counts says that a charge made at an instant, 0 where that is not known, may
// still count. Of a window that begins with a hit, the one before may have ended
// in the slice in which this one began: what was charged to that is gone.
func (x *Exact) Counts(r *Rate, at, now int64) bool {
	if r.Algorithm != FirstHit || at == 0 {
		return true
	}
	x.window.roll(r, nil, now)
	return !x.window.open || at >= x.window.anchor
}

// Over says that a window which begins with a hit, and had its last at an instant, is over by now,
// or began anew as all of them were given back.
func (x *Exact) Over(r *Rate, at, now int64) bool {
	x.window.roll(r, nil, now)
	return at < x.window.past || x.window.open && at < x.window.anchor
}

// Counting is how much of what stands in a slice still counts as of the last Measure: of this
// edge's own charges, or of others'. A slice outlives what is known better by the instant, and of a
// window that begins with a hit the one before stands there yet.
func (x *Exact) Counting(r *Rate, slice crdt.Slice, net uint64, own bool) uint64 {
	switch {
	case r.Algorithm == FirstHit && !x.window.counts(r, slice):
		return 0
	case r.Algorithm == FirstHit && own:
		return min(net, x.window.count)
	case r.Algorithm == SlidingLog && own:
		return min(net, x.log.of(r, slice))
	}
	return net
}

// Follow has what lies ahead of a clock that was set back count as of now. All
// else that takes now does so too; it is for counters that nobody asks meanwhile,
// who would wait from when they do. Whoever calls it may be late: within a second
// time only seems to have gone back, and what counted from then on would end
// before it is time.
func (x *Exact) Follow(r *Rate, now int64) {
	ahead := func(at int64) bool { return at > satAdd(now, int64(time.Second)) }
	switch {
	case r.Bucket() && ahead(max(x.bucket.at, x.bucket.turns.told)):
		x.bucket.follow(r, now)
	case r.Algorithm == SlidingLog && x.log.n > 0 && ahead(x.log.stamp(x.log.n-1).at):
		x.log.follow(r, now)
	case r.Algorithm == FirstHit && ahead(max(x.window.anchor, x.window.past)):
		x.window.follow(r, now)
	}
}

// Reset forgets everything, but keeps some memory for the next counter.
func (x *Exact) Reset() {
	x.bucket, x.window = bucket{}, hitWindow{}
	x.log.clear()
}

// Bytes is the memory that it holds beside itself.
func (x *Exact) Bytes() int { return x.log.bytes() }

// setBack says that a clock that showed at was set back to now. A few threads
// that read the clock and come in another order are no such thing: for them
// time stands still, as draining the same moments twice would free too much.
func (r *Rate) setBack(at, now int64) bool {
	return now < at && uint64(at)-uint64(now) > uint64(min(r.Window, time.Second))
}

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

// Own is what counts against the limit of this edge's own charges: in a queue others' may
// have had those wait for longer.
func (r *Rate) Own(x *Exact, now int64) Level {
	if r.Bucket() && x != nil {
		then := x.bucket.asOf(r, now)
		return r.ofExact(&then)
	}
	return r.Measure(x, nil, nil, Carry{}, now)
}

// Measure is what counts against the limit at now. sums are the cells of all
// by slice, others those of all but this edge; both ascend. x holds this
// edge's own charges and is brought to now; nil, or a rate that is not Exact:
// only the sums count. Others' charges are known by slice only: the level of a
// bucket is the larger of the exact one of its own charges and the least that
// the sums allow, and to the own charges of a log or a window from the first
// hit on come the slices of others.
//
// What was told to those who wait in a queue counts as the level does.
func (r *Rate) Measure(x *Exact, others, sums []crdt.Cell, carry Carry, now int64) Level {
	switch {
	case x == nil:
		return r.Used(sums, carry, now)
	case r.Bucket():
		then := x.bucket.asOf(r, now)
		if line := then.inLine(r, now); then.level.less(line) {
			then.level = line
		}
		level := r.Used(sums, carry, now).orMore(r.ofExact(&then))
		if x.bucket.tooLate(r, now) > 0 {
			level = level.orMore(Level{Whole: r.Ceiling})
		}
		return level
	case r.Algorithm == SlidingLog:
		x.log.expire(r, now)
		l := r.inSlices(others, now)
		l.Whole = crdt.SatAdd(l.Whole, x.log.total)
		if x.log.lacks(r, now) {
			l = l.orMore(r.inSlices(sums, now))
		}
		return l
	case r.Algorithm == FirstHit:
		x.window.roll(r, others, now)
		l := x.window.level(r, others, now)
		if x.window.strays(r, sums, now) {
			l = l.orMore(r.inSlices(r.begun(sums, now), now))
		}
		return l
	}
	return r.Used(sums, carry, now)
}

// Wait is how long after now cost would be admitted if nothing more were
// charged, at least a nanosecond, and for what is exact the first at which it
// is. Cost that never fits waits until nothing is used, or until nothing drains
// any more. What was reported to a bucket may take ages to drain: a wait is told
// up to longestWait. The arguments are those of Measure.
func (r *Rate) Wait(x *Exact, others, sums []crdt.Cell, carry Carry, cost uint64, now int64) time.Duration {
	wait := time.Duration(0)
	switch {
	case r.Bucket():
		wait = r.bucketWait(x, sums, carry, cost, now)
	case r.Algorithm == FirstHit && x == nil:
		wait = new(hitWindow).wait(r, sums, cost, now)
	case r.Algorithm == FirstHit:
		wait = x.window.wait(r, others, cost, now)
		if x.window.strays(r, sums, now) {
			wait = max(wait, time.Duration(r.firstFit(r.begun(sums, now), crdt.SatSub(r.Ceiling, cost), now)-now))
		}
	case r.Algorithm == SlidingLog && x != nil:
		wait = x.log.wait(r, others, cost, now)
		if x.log.lacks(r, now) {
			wait = max(wait, time.Duration(r.firstFit(sums, crdt.SatSub(r.Ceiling, cost), now)-now))
		}
	case r.Period != NoPeriod:
		wait = time.Duration(r.EndOf(r.SliceAt(now)) - now)
	default:
		wait = time.Duration(r.firstFit(sums, crdt.SatSub(r.Ceiling, cost), now) - now)
	}
	return min(max(wait, 1), longestWait)
}

// longestWait is a century: an instant that lies so far ahead is one still.
const longestWait = 100 * 366 * 24 * time.Hour

// RetryAfter is Wait for those who know nothing but slices.
func (r *Rate) RetryAfter(sums []crdt.Cell, carry Carry, cost uint64, now int64) time.Duration {
	return r.Wait(nil, nil, sums, carry, cost, now)
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
