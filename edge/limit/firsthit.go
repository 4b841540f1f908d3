package limit

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// hitWindow is what an Exact knows of a fixed window that begins with the first
// hit: when the present one began, and what this edge charged in it. The next
// begins with the first hit after its end.
//
// Others' hits are known by slice. One that stands before the anchor and after
// the windows known to be over began the window earlier, so that edges that
// hear of each other come to one anchor: the start of the slice of the first
// hit. It is found in the slices of the last two windows. An anchor that moves
// back ends the window sooner, so what is used may fall at that time: it is no
// bound in either direction until the edges agree.
//
// Who comes to a key amid its window, or had a clock set back, cannot tell from two windows
// of slices which of their hits began one. Its windows may be out of step with the others'
// then, for as long as the key is busy: it strays, and what was charged in the last window's
// time counts for it as well, so that no more passes at all edges than the limit.
//
// Hits that are given back begin none, whoever made them, or edges would never come to
// one anchor: the first that is left does.
type hitWindow struct {
	anchor int64
	past   int64 // windows before this are over
	count  uint64
	open   bool
	lent   bool // it began with a hit of others
	stray  bool // it may be out of step with theirs

	// Of what this edge charged: the first hit, how much in its slice, and the first in a
	// later one; 0: none; unknown: there are some.
	first, next int64
	inFirst     uint64
}

// roll brings the window to now, with what others counted.
func (w *hitWindow) roll(r *Rate, others []crdt.Cell, now int64) {
	w.follow(r, now)
	if w.open && satAdd(w.anchor, int64(r.Window)) <= now {
		w.close(r)
	}
	if w.lent && len(others) > 0 {
		w.begin() // that hit may have been given back meanwhile
	}
	first, beyond := r.sliceFrom(w.past), r.beyond(r.SliceAt(now))
	if first < r.Reach(now) && (w.past == 0 || !w.open) { // it came amid that window, or may have been asked before it heard of it
		w.stray = w.stray || r.before(others, now)
	}
	for i := range others {
		c := &others[i]
		if c.Slice < first || c.Slice >= beyond || c.Net() == 0 {
			continue
		}
		start := min(r.StartOf(c.Slice), now)
		switch end := satAdd(start, int64(r.Window)); {
		case w.open && start >= w.anchor:
			return
		case end > now:
			w.anchor, w.open, w.lent = start, true, true
			return
		default: // the hits in that window begin none
			first = r.sliceFrom(end)
			if !w.open {
				w.past = end
			}
		}
	}
}

// follow has a window that begins ahead of a clock that was set back begin now.
func (w *hitWindow) follow(r *Rate, now int64) {
	if w.open && r.setBack(w.anchor, now) {
		w.anchor, w.stray = now, true
	}
	if w.first != 0 && r.setBack(w.first, now) {
		w.first = now
	}
	w.past = min(w.past, now) // also for threads out of order, who do no harm here
}

// begin has the window begin with this edge's own hits, if there are any.
func (w *hitWindow) begin() { w.anchor, w.open, w.lent = w.first, w.first != 0, false }

// sliceFrom is the first slice that begins at an instant or later: the one that
// it falls in may have counts of the window before.
func (r *Rate) sliceFrom(at int64) crdt.Slice { return r.SliceAt(at-1) + 1 }

func (w *hitWindow) close(r *Rate) {
	*w = hitWindow{past: w.anchor + int64(r.Window), stray: w.stray}
}

// before says that something was charged longer ago than a window, as far as is known: of
// what was charged since nothing tells what began the window that there is.
func (r *Rate) before(sums []crdt.Cell, now int64) bool {
	from, to := r.Reach(now), r.SliceAt(now-int64(r.Window))
	for i := range sums {
		if c := &sums[i]; c.Slice >= from && c.Net() > 0 {
			return c.Slice <= to
		}
	}
	return false
}

// begun is the cells of slices that have begun, as far as clocks agree: what lies ahead of
// one that was set back is in the window that began then.
func (r *Rate) begun(sums []crdt.Cell, now int64) []crdt.Cell {
	ahead := r.SliceAt(satAdd(now, int64(time.Second))) + 1
	n := len(sums)
	for n > 0 && sums[n-1].Slice > ahead {
		n--
	}
	return sums[:n]
}

// strays says that the window may be out of step with others', at the instant that it was
// rolled to; sums are what all charged. Once nothing was for as long as a window lasts, the
// next begins with its first hit everywhere.
func (w *hitWindow) strays(r *Rate, sums []crdt.Cell, now int64) bool {
	if !w.stray || len(sums) == 0 { // who knows no others cannot tell
		return false
	}
	from := r.SliceAt(now - int64(r.Window))
	if !slices.ContainsFunc(sums, func(c crdt.Cell) bool { return c.Slice >= from && c.Net() > 0 }) {
		*w = hitWindow{}
	}
	return w.stray
}

// level is what counts at the instant that the window was rolled to.
func (w *hitWindow) level(r *Rate, others []crdt.Cell, now int64) Level {
	if !w.open {
		return Level{}
	}
	total, beyond := w.count, r.beyond(r.SliceAt(now))
	for i := len(others) - 1; i >= 0 && w.counts(r, others[i].Slice); i-- {
		if others[i].Slice < beyond {
			total = crdt.SatAdd(total, others[i].Net())
		}
	}
	return Level{Whole: total}
}

// counts says that what stands in a slice may be of the window that goes on.
func (w *hitWindow) counts(r *Rate, slice crdt.Slice) bool {
	return w.open && slice >= max(r.sliceFrom(w.past), r.SliceAt(w.anchor))
}

func (w *hitWindow) charge(r *Rate, cost uint64, at int64) {
	w.roll(r, nil, at)
	if cost == 0 {
		return
	}
	switch {
	case w.first == 0:
		w.first, w.inFirst, w.next = at, cost, 0
		if at == 0 { // is none
			w.first = 1
		}
	case r.SliceAt(at) == r.SliceAt(w.first):
		w.inFirst = crdt.SatAdd(w.inFirst, cost)
	case w.next == 0:
		w.next = at
	}
	if !w.open {
		w.begin()
	}
	w.count = crdt.SatAdd(w.count, cost)
}

// refund takes back what was charged in a slice, and returns what is left of
// cost.
func (w *hitWindow) refund(r *Rate, cost uint64, made crdt.Slice, own *crdt.Vector, now int64) (left uint64) {
	w.roll(r, nil, now)
	if !w.open || r.EndOf(made) <= w.anchor {
		return cost
	}
	back := min(cost, w.count)
	w.count -= back
	if made == r.SliceAt(w.first) {
		w.inFirst = crdt.SatSub(w.inFirst, back)
	}
	switch {
	case back == 0:
		return cost
	case w.count == 0:
		w.first, w.next, w.inFirst = 0, 0, 0
	case w.inFirst == 0 && own != nil: // others know by slice, too, which is the first
		w.after(r, own)
	case w.inFirst == 0 && w.next > 0: // which of the rest stands in that slice is not known: it holds it for long
		w.first, w.next, w.inFirst = w.next, 0, w.count
	default:
		return cost - back
	}
	if !w.lent {
		w.begin()
	}
	return cost - back
}

// after has this edge's first hit be the first that is left in later slices.
func (w *hitWindow) after(r *Rate, own *crdt.Vector) {
	for i := range own.Len() {
		c := own.At(i)
		if c.Slice <= r.SliceAt(w.first) || c.Net() == 0 {
			continue
		}
		at := r.StartOf(c.Slice)
		if w.next > 0 && r.SliceAt(w.next) == c.Slice {
			at = w.next
		}
		w.first, w.next, w.inFirst = at, 0, c.Net()
		for i++; i < own.Len(); i++ {
			if own.At(i).Net() > 0 {
				w.next = unknown
			}
		}
		return
	}
}

// unknown stands for the instant of a hit of which the slice alone is known.
const unknown = -1

// wait is how long after now there is room for cost: all of it comes when the
// window ends.
func (w *hitWindow) wait(r *Rate, others []crdt.Cell, cost uint64, now int64) time.Duration {
	w.roll(r, others, now)
	if !w.open || r.Room(w.level(r, others, now)) >= cost {
		return 0
	}
	return time.Duration(w.anchor - now + int64(r.Window))
}
