package limit

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// micro is what a unit of cost has in the levels of carries.
const micro = 1_000_000

// MaxUnits bounds the capacity and the refill of a bucket: beyond it a level
// in millionths would not fit in 64 bits.
const MaxUnits = 10_000_000_000_000

// Drain is how a token or leaky bucket empties, seen by slice. The level is
// what was poured in and has not drained: a token bucket is full of tokens
// where the level is zero.
//
// Seen by slice the level is a lower bound of the truth: all that a slice
// counted is taken as poured in when it began, and each slice drains the next
// larger whole number of millionths. As each slice drains alike, it makes no
// difference how the way from one slice to another is cut: replicas that have
// the same counts have the same level.
//
// What a hostile node counts would take ages to drain: Most cuts the level off
// wherever something is poured in, so that it is a function of the counts still,
// which only rises with them, and a lower bound of the truth.
type Drain struct {
	Refill uint64        // units that drain
	Per    time.Duration // in this time
	Floor  uint64        // units below which nothing drains; see Rate.Memory
	Most   uint64        // units that a level is at the most; 0: as many as there are
	Width  time.Duration // of a slice
}

// Advance is the level when slice to begins: that of c, with the net cost of
// the cells from c's boundary on (Reich's recursion). The sums ascend by slice;
// those before the boundary, which c stands for, and from to on are left out.
// The zero carry has level 0 when the first cell's slice begins. A carry of to
// or later comes back as it is, but cut off. Gaps drain at once: the work is that
// of the cells, not of the slices.
func (d Drain) Advance(c crdt.Carry, sums []crdt.Cell, to crdt.Slice) crdt.Carry {
	if !c.Zero() && c.Boundary >= to {
		c.Level = min(c.Level, d.most())
		return c
	}
	level, _ := d.advance(c, sums, to, d.slice())
	return crdt.Carry{Boundary: to, Level: level}
}

// advance is Advance for a carry of before to, with what a slice drains; next
// is the place of the first cell that it left.
func (d Drain) advance(c crdt.Carry, sums []crdt.Cell, to crdt.Slice, drained uint64) (level uint64, next int) {
	most, floor := d.most(), d.floor()
	level, at := min(c.Level, most), c.Boundary
	if !c.Zero() {
		for next < len(sums) && sums[next].Slice < at {
			next++
		}
	}
	for ; next < len(sums) && sums[next].Slice < to; next++ {
		cell := &sums[next]
		if cell.Charges <= cell.Refunds {
			continue
		}
		if level > floor { // as after, and Net above; but this is the long loop
			gap := drained
			if n := between(at, cell.Slice); n != 1 {
				gap = satMul(n, drained)
			}
			if level-floor > gap {
				level -= gap
			} else {
				level = floor
			}
		}
		level = min(crdt.SatAdd(level, satMul(cell.Charges-cell.Refunds, micro)), most)
		at = cell.Slice
	}
	return d.after(level, satMul(between(at, to), drained)), next
}

// Level is the level at now, in millionths: the largest, over all boundaries s
// of slices up to now, of what came in since s less what drains in that time.
// A cell ahead of now counts at once and in full, up to but not with slice
// beyond: from there on it, or the carry, is of a clock that was set back.
func (d Drain) Level(c crdt.Carry, sums []crdt.Cell, now int64, beyond crdt.Slice) uint64 {
	b := d.backlog(c, sums, now, beyond)
	level := b.level
	if start := d.start(b.at); now > start {
		level = d.after(level, d.within(uint64(now)-uint64(start)))
	}
	return min(crdt.SatAdd(level, b.ahead()), d.most())
}

// backlog is the level when slice at begins, that slice's own cost included,
// and the cells that count after it.
type backlog struct {
	level uint64
	at    crdt.Slice
	cells []crdt.Cell
}

func (d Drain) backlog(c crdt.Carry, sums []crdt.Cell, now int64, beyond crdt.Slice) backlog {
	for len(sums) > 0 && sums[len(sums)-1].Slice >= beyond {
		sums = sums[:len(sums)-1]
	}
	if c.Boundary >= beyond {
		c = crdt.Carry{}
	}
	b := backlog{at: crdt.Slice(floorDiv(now, max(int64(d.Width), 1)))}
	next := 0
	if !c.Zero() && c.Boundary >= b.at {
		b.level, b.at = min(c.Level, d.most()), c.Boundary
		for next < len(sums) && sums[next].Slice < b.at {
			next++
		}
	} else {
		b.level, next = d.advance(c, sums, b.at, d.slice())
	}
	b.cells = sums[next:]
	if len(b.cells) > 0 && b.cells[0].Slice == b.at {
		b.pour(d.most())
	}
	return b
}

// pour adds the first cell, up to the level that there is at the most.
func (b *backlog) pour(most uint64) {
	b.level = min(crdt.SatAdd(b.level, satMul(b.cells[0].Net(), micro)), most)
	b.at, b.cells = b.cells[0].Slice, b.cells[1:]
}

// ahead is the cost of the cells, in millionths.
func (b *backlog) ahead() uint64 {
	total := uint64(0)
	for _, c := range b.cells {
		total = crdt.SatAdd(total, satMul(c.Net(), micro))
	}
	return total
}

// wait is how long after now the level is target, in millionths, or less, if
// nothing more is poured in. Where it never is, being below the floor, it is
// the time until nothing drains any more.
func (d Drain) wait(c crdt.Carry, sums []crdt.Cell, now int64, beyond crdt.Slice, target uint64) time.Duration {
	b, drained, most := d.backlog(c, sums, now, beyond), d.slice(), d.most()
	if min(crdt.SatAdd(b.level, b.ahead()), most) <= target { // so it is below most
		return 0
	}
	for {
		last, ahead := len(b.cells) == 0, b.ahead()
		goal := crdt.SatSub(target, ahead)
		reached := ahead <= target && (b.level <= goal || goal >= d.floor())
		if last && !reached {
			goal, reached = d.floor(), true
		}
		if reached {
			at := d.instant(d.start(b.at), crdt.SatSub(b.level, goal), drained)
			if last || at < d.start(b.cells[0].Slice) {
				return time.Duration(max(0, satSub(at, now)))
			}
		}
		b.level = d.after(b.level, satMul(between(b.at, b.cells[0].Slice), drained))
		b.pour(most)
	}
}

// empties is how long a level takes to drain, from any instant on.
func (d Drain) empties(level uint64) time.Duration {
	if d.Refill == 0 || d.Refill > math.MaxUint64/micro {
		return 0
	}
	left := product(crdt.SatSub(level, d.floor()), uint64(max(d.Per, 0))).overUp(d.Refill * micro)
	return time.Duration(min(left, math.MaxInt64))
}

func (d Drain) start(s crdt.Slice) int64 { return int64(s) * int64(d.Width) }

// instant is the first at which so much has drained since the start of a slice.
func (d Drain) instant(start int64, by, drained uint64) int64 {
	if by == 0 {
		return start
	}
	slices, part := (by-1)/drained, (by-1)%drained
	// Within a slice it is the first t at which ceil(refill*t/per) > part.
	t, _ := product(part, uint64(d.Per)).over(satMul(d.Refill, micro))
	after := crdt.SatAdd(satMul(slices, uint64(d.Width)), min(crdt.SatAdd(t, 1), uint64(d.Width)))
	return satAdd(start, int64(min(after, math.MaxInt64)))
}

// after is the level once so much has drained of it.
func (d Drain) after(level, drained uint64) uint64 {
	if floor := d.floor(); level > floor {
		return max(floor, crdt.SatSub(level, drained))
	}
	return level
}

// most is the level that there is at the most.
func (d Drain) most() uint64 {
	if d.Most == 0 {
		return math.MaxUint64
	}
	return satMul(d.Most, micro)
}

func (d Drain) floor() uint64 { return satMul(d.Floor, micro) }

// slice is what drains in a whole slice, at least one millionth.
func (d Drain) slice() uint64 { return max(1, d.within(uint64(d.Width))) }

// within is what drains in a time, in millionths, rounded up. A drain that
// makes no sense drains all.
func (d Drain) within(nanos uint64) uint64 {
	if d.Per <= 0 || d.Width <= 0 || d.Refill > math.MaxUint64/micro {
		return math.MaxUint64
	}
	return product(d.Refill*micro, nanos).overUp(uint64(d.Per))
}

// between is the number of slices from one to a later one.
func between(from, to crdt.Slice) uint64 { return uint64(to) - uint64(from) }

// satSub is a - b, or the largest number where that does not fit.
func satSub(a, b int64) int64 {
	if b < 0 && a > math.MaxInt64+b {
		return math.MaxInt64
	}
	return a - b
}
