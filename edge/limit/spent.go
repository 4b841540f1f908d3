package limit

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// A strict rate's limit is cut into rights: a right is the permission to have one
// unit of cost inside the window. Rights are held by edges, and move between them
// by way of one authority; those of all edges together are never more than the limit.
// An edge admits what it holds rights for, and looks at nothing but what it spent
// itself: so no window has more than the limit, whatever is lost, late or cut off
// (escrow: O'Neil 1986; research/accuracy.md §6). Windows that slide, and buckets, are
// judged by a clock that nobody sets. Aligned ones are by their label, which is the wall
// clock's: edges whose clocks are apart are in two windows at once for so long.

// Instant is a moment on an edge, by two clocks.
type Instant struct {
	Boot time.Duration // a clock that nobody sets, and that goes on while the machine sleeps
	Wall int64         // ns since 1970, for windows that begin by the calendar
}

// Spent is what an edge spent of its rights: a right is free again when its spend
// has left the window. The zero value has spent nothing. It is judged by what the
// edge did alone, so it is exact but for a slice: the oldest counts in full.
type Spent struct {
	cells []spending // ascending by slice: of Boot, or of Wall where windows are aligned
	level float64    // of a bucket
	at    time.Duration
	label crdt.Slice // the latest aligned window that was looked at
	since time.Duration
	last  time.Duration // when something was spent last, where windows are aligned
	ahead int64         // by how much the clock of that window was ahead of the other, as it began
}

type spending struct {
	slice crdt.Slice
	cost  uint64
}

// Label is the aligned window that was looked at last, of a rate that has them.
func (s *Spent) Label() crdt.Slice { return s.label }

// Bytes is about the memory that it takes beside its own.
func (s *Spent) Bytes() int { return cap(s.cells) * 16 }

// Labelled says that what is spent counts in the aligned window in which it is, and
// in no other.
func (r *Rate) Labelled() bool { return r.Algorithm == FixedWindow }

// Lasts is how long after a spend it may still count, at the most.
func (r *Rate) Lasts() time.Duration {
	switch {
	case r.Period != NoPeriod:
		return r.Period.longest() + labelSkew
	case r.Labelled():
		return r.Window + labelSkew
	}
	return r.drains()
}

// labelSkew is how far apart two edges may be about which aligned window it is: a
// right that was spent in a window is not given to another for so long after it.
const labelSkew = 2 * time.Second

// spendSlices is how what is spent in a window is kept: finer than what is told to
// others, so that the oldest, in full, costs 0.4 % of the limit and not 1.3.
func (r *Rate) spendSlices() (n crdt.Slice, width time.Duration) {
	const slices = 128
	return slices, max(1, (r.Window+slices-1)/slices)
}

// turn brings what was spent to now.
func (s *Spent) turn(r *Rate, held uint64, now Instant) {
	switch {
	case r.Bucket():
		if past := now.Boot - s.at; past > 0 && s.level > 0 {
			part := float64(held) / float64(max(1, r.Ceiling))
			const exact = 1 - 1e-9 // of what is rounded the edge has no use
			drained := part * exact * float64(r.Drain.Refill) * float64(past) / float64(r.Drain.Per)
			s.level = max(0, s.level-drained)
		}
		s.at = max(s.at, now.Boot)
	case r.Labelled():
		label := r.SliceAt(now.Wall)
		switch {
		case label > s.label:
			s.label, s.since, s.ahead = label, now.Boot, now.ahead()
		case label < s.label && now.Boot-s.since > r.Lasts(): // the clock was set back by more than the window
			last := s.in(s.label)
			s.label, s.since = label, now.Boot
			s.cells = append(s.cells[:0], spending{label, last})
		}
		if s.setBack(now) && now.Boot > s.over(r) {
			s.label, s.since, s.ahead = label, now.Boot, now.ahead()
			s.cells = s.cells[:0]
		}
		s.drop(s.recent(r, now))
	default:
		n, width := r.spendSlices()
		s.drop(crdt.Slice(now.Boot/width) - n)
	}
}

// ahead is by how much the one clock is ahead of the other.
func (i Instant) ahead() int64 { return i.Wall - int64(i.Boot) }

// setBack says that the clock of an aligned window was set back since it began: by that it
// lasts longer than it is long.
func (s *Spent) setBack(now Instant) bool { return now.ahead() < s.ahead-int64(labelSkew) }

// over is when an aligned window is over by the clock that nobody sets, whatever was spent
// in it.
func (s *Spent) over(r *Rate) time.Duration {
	return s.last + time.Duration(r.EndOf(s.label)-r.StartOf(s.label)) + labelSkew
}

// recent is the first aligned window that some edge may still be in.
func (s *Spent) recent(r *Rate, now Instant) crdt.Slice {
	return min(s.label, r.SliceAt(now.Wall-int64(labelSkew)))
}

// drop forgets what was spent before a slice.
func (s *Spent) drop(before crdt.Slice) {
	n := 0
	for n < len(s.cells) && s.cells[n].slice < before {
		n++
	}
	if n > 0 {
		s.cells = append(s.cells[:0], s.cells[n:]...)
	}
}

// in is what was spent in a slice.
func (s *Spent) in(slice crdt.Slice) uint64 {
	for i := len(s.cells) - 1; i >= 0; i-- {
		if s.cells[i].slice == slice {
			return s.cells[i].cost
		}
	}
	return 0
}

// Spend notes that cost was spent now, of so many rights.
func (s *Spent) Spend(r *Rate, cost, held uint64, now Instant) {
	s.turn(r, held, now)
	if r.Bucket() {
		s.level += float64(cost)
		return
	}
	slice := s.label
	if s.last = now.Boot; !r.Labelled() {
		_, width := r.spendSlices()
		slice = crdt.Slice(now.Boot / width)
	}
	if n := len(s.cells); n > 0 && s.cells[n-1].slice >= slice {
		s.cells[n-1].cost = crdt.SatAdd(s.cells[n-1].cost, cost)
		return
	}
	s.cells = append(s.cells, spending{slice, cost})
}

// GiveBack frees rights that were spent in a slice of the rate at an instant of Boot, as
// that was refunded; at 0 nobody knows when, and what was spent first is taken for it. Of
// what has left the window nothing is free for it, as that is already; of a bucket, of which
// nobody knows what drained since, nothing.
func (s *Spent) GiveBack(r *Rate, cost uint64, slice crdt.Slice, at time.Duration) {
	if r.Bucket() {
		return
	}
	if at > 0 && !r.Labelled() { // that spend itself, and else what is free sooner
		_, width := r.spendSlices()
		for i := len(s.cells) - 1; i >= 0 && cost > 0; i-- {
			if c := &s.cells[i]; c.slice <= crdt.Slice(at/width) {
				took := min(cost, c.cost)
				c.cost, cost = c.cost-took, cost-took
			}
		}
		return
	}
	for i := range s.cells {
		c := &s.cells[i]
		if cost == 0 {
			return
		}
		if r.Labelled() && c.slice != slice {
			continue
		}
		took := min(cost, c.cost)
		c.cost, cost = c.cost-took, cost-took
	}
}

// Used is how many of so many rights are spent now. It rounds up.
func (s *Spent) Used(r *Rate, held uint64, now Instant) uint64 {
	s.turn(r, held, now)
	switch {
	case r.Bucket():
		return uint64(math.Ceil(s.level))
	case r.Labelled():
		return s.in(s.label)
	}
	sum := uint64(0)
	for _, c := range s.cells {
		sum = crdt.SatAdd(sum, c.cost)
	}
	return sum
}

// Bound is how many rights cannot be given to others now: those that are spent, or
// were in an aligned window in which others may still be.
func (s *Spent) Bound(r *Rate, held uint64, now Instant) uint64 {
	most := s.Used(r, held, now)
	if r.Labelled() {
		for _, c := range s.cells {
			most = max(most, c.cost)
		}
	}
	return most
}

// Frees is when so many rights will be free for sure that are spent now, from now on,
// if some of them are: when the next spend leaves the window. 0: none is spent.
func (s *Spent) Frees(r *Rate, held uint64, now Instant) time.Duration {
	switch {
	case s.Used(r, held, now) == 0:
		return 0
	case r.Bucket():
		if held == 0 {
			return r.drains()
		}
		return min(r.drains(), time.Duration(float64(r.Drain.Per)/float64(r.Drain.Refill)*float64(r.Ceiling)/float64(held)))
	case r.Labelled():
		end := time.Duration(max(0, r.EndOf(s.label)-now.Wall))
		if s.setBack(now) {
			end = min(end, max(0, s.over(r)-now.Boot))
		}
		return end
	}
	n, width := r.spendSlices()
	return time.Duration(s.cells[0].slice+n+1)*width - now.Boot
}

// FreesFor is when cost of so many rights is free, if no more is spent. 0: it is now, or never.
func (s *Spent) FreesFor(r *Rate, cost, held uint64, now Instant) time.Duration {
	used := s.Used(r, held, now)
	over := crdt.SatSub(crdt.SatAdd(used, cost), held)
	switch {
	case over == 0 || cost > held:
		return 0
	case r.Bucket():
		rate := float64(r.Drain.Refill) / float64(r.Drain.Per) * float64(held) / float64(max(1, r.Ceiling))
		return time.Duration(math.Ceil((s.level + float64(cost) - float64(held)) / rate))
	case r.Labelled():
		return s.Frees(r, held, now)
	}
	n, width := r.spendSlices()
	for _, c := range s.cells {
		if over = crdt.SatSub(over, c.cost); over == 0 {
			return time.Duration(c.slice+n+1)*width - now.Boot
		}
	}
	return 0
}

// End is when so much of what is spent is free.
type End struct {
	Cost uint64
	In   time.Duration
}

// Ends is when so many rights are free that cannot be returned now, if nothing is spent of them any more, in
// so many parts at the most: each when the last of it is, of an aligned window by its label. Nil of
// a bucket, which drains the slower the less of it there is.
func (s *Spent) Ends(r *Rate, bound uint64, now Instant, parts int) (ends []End) {
	if r.Bucket() || bound == 0 {
		return nil
	}
	s.turn(r, bound, now)
	n, width := r.spendSlices()
	in := func(slice crdt.Slice) time.Duration {
		if r.Labelled() {
			return time.Duration(r.EndOf(slice)-now.Wall) + labelSkew
		}
		return time.Duration(slice+n+1)*width - now.Boot
	}
	left, each := bound, max(1, (bound+uint64(parts)-1)/uint64(parts))
	for i := len(s.cells) - 1; i >= 0 && left > 0; i-- { // what is spent beyond was by no rights of these
		took := min(s.cells[i].cost, left)
		switch last := len(ends) - 1; {
		case took == 0:
		case last >= 0 && (ends[last].Cost < each || r.Labelled()):
			ends[last].Cost += took // free with what was spent later
		default:
			ends = append(ends, End{took, min(max(0, in(s.cells[i].slice)), r.Lasts())})
		}
		left -= took
	}
	if left > 0 { // nobody knows
		return []End{{bound, r.Lasts()}}
	}
	return ends
}
