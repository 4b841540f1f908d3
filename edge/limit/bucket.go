package limit

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// Flow is how fast a bucket fills or empties: so many units in a time.
type Flow struct {
	Units uint64
	Per   time.Duration
}

// bucket is what an Exact knows of a token or leaky bucket: its level, exactly.
// As in GCRA nothing runs: the level of then and the time since give that of
// now. It is kept times Drain.Per, so that what drains in a nanosecond is a
// whole number: Drain.Refill.
type bucket struct {
	level wide
	per   uint64 // what level is multiplied by
	at    int64  // when it was that
	empty int64  // until when it was at the floor, as far as known
	turns turns
}

// asOf is the bucket brought to now. The bucket itself stays as it was charged
// last, so that whoever asks by another limit, and drains it by another refill,
// changes nothing for others: only a charge does.
func (b *bucket) asOf(r *Rate, now int64) bucket {
	b.follow(r, now)
	then := *b
	then.drain(r, now)
	return then
}

// follow lets a level of before a clock was set back drain from now on.
func (b *bucket) follow(r *Rate, now int64) {
	if last := max(b.at, b.turns.told); r.setBack(last, now) {
		b.turns.goBack(last-now, now)
	}
	if r.setBack(b.at, now) {
		b.at, b.empty = now, min(b.empty, now)
	}
}

// drain brings the level to now.
func (b *bucket) drain(r *Rate, now int64) {
	per := uint64(r.Drain.Per)
	if b.per != per {
		if b.per != 0 { // the rate was changed: the level in units stays
			whole, rem := b.level.over(b.per)
			part, _ := product(rem, per).over(b.per)
			b.level = product(whole, per).plus(wide{lo: part})
		}
		b.per = per
	}
	if b.follow(r, now); now < b.at {
		return
	}
	floor := product(r.Drain.Floor, per)
	if floor.less(b.level) {
		drained := product(r.Drain.Refill, uint64(now)-uint64(b.at))
		if b.level.minus(floor).less(drained) {
			b.level = floor
			b.empty = now
		} else {
			b.level = b.level.minus(drained)
		}
	}
	b.at = now
}

func (b *bucket) charge(r *Rate, cost uint64, at int64) {
	b.drain(r, at)
	if b.level == product(r.Drain.Floor, b.per) {
		b.empty = b.at
	}
	if b.level = b.level.plus(product(cost, b.per)); b.level.hi >= b.per {
		b.level = product(math.MaxUint64, b.per)
	}
}

// refund takes back a charge made in a slice. What was poured in before the
// bucket was last empty has drained, and cannot be taken back.
func (b *bucket) refund(r *Rate, cost uint64, made crdt.Slice, now int64) {
	b.drain(r, now)
	if r.EndOf(made) > b.empty {
		b.level = b.level.minus(product(cost, b.per))
	}
}

// Lower takes a cost off what an edge has in a bucket at now, of charges that no slice
// tells of any more, and says how much of it there was. The carry, in which they are with
// those of others, is lowered with it. Below its floor a bucket has what it will start with.
func (x *Exact) Lower(r *Rate, cost uint64, carry Carry, now int64) (took uint64, lowered Carry) {
	if !r.Bucket() {
		return 0, carry
	}
	b := &x.bucket
	b.drain(r, now)
	floor := product(r.Drain.Floor, b.per)
	if !floor.less(b.level) {
		return 0, carry
	}
	above, _ := b.level.minus(floor).over(b.per)
	took = min(cost, above)
	b.level = b.level.minus(product(took, b.per))
	carry.Level = crdt.SatSub(carry.Level, satMul(took, micro))
	return took, carry
}

// wait is how long after now the level is target, which is times Drain.Per, or
// as low as it gets.
func (b *bucket) wait(r *Rate, target wide, now int64) time.Duration {
	then := b.asOf(r, now)
	return then.until(r, target, now)
}

// until is wait of a bucket that was brought to now.
func (b *bucket) until(r *Rate, target wide, now int64) time.Duration {
	if !target.less(b.level) {
		return 0
	}
	if floor := product(r.Drain.Floor, b.per); target.less(floor) {
		target = floor
	}
	left := b.level.minus(target).overUp(r.Drain.Refill)
	left = crdt.SatAdd(left, uint64(b.at)-uint64(now)) // at is no earlier than now
	return time.Duration(min(left, math.MaxInt64))
}

// lump is the first instant at which a charge could no longer be booked as if
// it were made at now: the bucket would have been empty in between.
func (b *bucket) lump(r *Rate, now int64) int64 {
	then := b.asOf(r, now)
	above, _ := then.level.minus(product(r.Drain.Floor, then.per)).over(r.Drain.Refill)
	return satAdd(satAdd(now, int64(min(above, math.MaxInt64-1))), 1)
}

// Bucket says that the rate is a token or leaky bucket: its Drain is set.
func (r *Rate) Bucket() bool { return r.Drain.Refill > 0 }

// overfull is the largest level that counts, of what is known by slices: twice what
// the bucket holds with its widest margin. Regions that are cut off from each other
// admit less than half too much. Whoever claims more lies, or reports what was used
// after the fact, and what it claims has drained in two windows, or with a margin that
// much later.
func (r *Rate) overfull() uint64 {
	brim := r.CeilingOf(r.Limit)
	return crdt.SatAdd(brim, brim-min(brim, r.Drain.Floor))
}

// Believed is what counts of a carry that others tell. One that says more than can be
// is a lie, or what came of one, of which nothing is known but that the bucket was full:
// it may be told again and again, as slices that nobody can look at any more never
// drain, and cut off as other levels are it would deny for as long. A bucket that was
// full when a window began has room for what has drained since.
func (r *Rate) Believed(c Carry) Carry {
	if c.Level <= r.Drain.most() {
		return c
	}
	c.Level = satMul(r.brim(), micro)
	return c
}

// ofMicro is a level in millionths as it counts against the limit.
func (r *Rate) ofMicro(level uint64) Level {
	return Level{Whole: level / micro, Part: level%micro > r.spareMicro}
}

func (r *Rate) ofExact(b *bucket) Level {
	whole, rem := b.level.over(b.per)
	return Level{Whole: whole, Part: rem > r.spare}
}

// bucketWait is how long after now the level leaves room for cost.
func (r *Rate) bucketWait(x *Exact, sums []crdt.Cell, carry Carry, cost uint64, now int64) time.Duration {
	target, exact := uint64(0), wide{}
	if cost <= r.Ceiling {
		target = satMul(r.Ceiling-cost, micro) + r.spareMicro
		exact = product(r.Ceiling-cost, uint64(r.Drain.Per)).plus(wide{lo: r.spare})
	}
	wait := r.drained(x, sums, carry, target, exact, now)
	if x != nil {
		wait = max(wait, x.bucket.lineWait(r, exact, now), x.bucket.tooLate(r, now))
	}
	return wait
}

// drained is how long after now the level is target: in millionths, and exact
// times Drain.Per.
func (r *Rate) drained(x *Exact, sums []crdt.Cell, carry Carry, target uint64, exact wide, now int64) time.Duration {
	wait := r.Drain.wait(carry, sums, now, r.beyond(r.SliceAt(now)), target)
	if x != nil {
		wait = max(wait, x.bucket.wait(r, exact, now))
	}
	return wait
}

// Delay is how long a request that is admitted now by a leaky bucket with a
// queue has to be held back: until what was admitted before it has flowed out, and
// who was told a turn has gone on. Ask before charging it. It is no longer than
// MaxWait, nor, whatever the level, than what a full queue takes behind those who were told
// their turns; and zero for other rates.
func (r *Rate) Delay(x *Exact, sums []crdt.Cell, carry Carry, now int64) time.Duration {
	if !r.Queue {
		return 0
	}
	wait, turn := time.Duration(0), time.Duration(0)
	if x != nil {
		wait = x.bucket.wait(r, wide{}, now) // first: it follows a clock that was set back
		turn = time.Duration(x.bucket.turns.next(r) - now)
	}
	beyond := r.beyond(r.SliceAt(now))
	if ahead := r.SliceAt(satAdd(now, int64(time.Second))); carry.Boundary > ahead || len(sums) > 0 && sums[len(sums)-1].Slice > ahead {
		// A clock was set back: nobody need wait until what it counted then is due.
		wait = max(wait, r.Drain.empties(r.Drain.Level(carry, sums, now, beyond)))
	} else {
		wait = max(wait, r.Drain.wait(carry, sums, now, beyond, 0))
	}
	return max(turn, min(wait, r.Longest()))
}

// Longest is how long a queue takes to flow out that is full with its widest margin, and
// what its slices and the part of a unit add that it has room for.
func (r *Rate) Longest() time.Duration {
	return time.Duration(satAdd(r.outflow(crdt.SatAdd(r.CeilingOf(r.Limit), 1)), int64(r.Width)))
}

// Latest is the longest that Delay can be by what is known in slices alone: all that one
// counted was poured in when it ended, or by now. Nobody who goes by the rate was told more
// than what a full queue takes.
func (r *Rate) Latest(sums []crdt.Cell, carry Carry, now int64) time.Duration {
	return min(r.Longest(), r.Drain.empties(r.Drain.Level(carry, sums, now-int64(r.Width), r.beyond(r.SliceAt(now)))))
}

// admitUpTo sets the level that the bucket admits up to: its brim, and for a
// queue no more than what flows out within MaxWait before the last unit that
// is admitted.
func (r *Rate) admitUpTo(brim uint64) {
	r.Ceiling, r.spare, r.spareMicro = brim, 0, 0
	if !r.Queue || r.MaxWait == 0 {
		return
	}
	whole, part := product(r.Drain.Refill, uint64(r.MaxWait)).over(uint64(r.Drain.Per))
	if whole >= brim || whole+1 == brim { // whole may be 2^64-1
		return
	}
	r.Ceiling, r.spare = whole+1, part
	r.spareMicro, _ = product(part, micro).over(uint64(r.Drain.Per))
}

// satAdd is a + b for a b of zero or more, or the largest number where that
// does not fit.
func satAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
