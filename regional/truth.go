package regional

import (
	"slices"
	"time"
	"unsafe"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Some time after a slice has ended everybody has told what was counted in it. Then it
// is known what the limiter admitted in the window that ended with it, whoever decided,
// and that is compared with the limit: the truth after the fact. It is kept of keys
// that have used much of their limit, for as long as their counts can still come in
// late, and a little of each rule for good: see tally.go.
//
// A slice closes when every region has told of the time after it; who is silent holds
// it up for two windows, and then it closes as incomplete. What comes later is judged
// with the rest: the sums only rise, and by no hit twice.
//
// What was too much in a slice is the doing of those who spent in it, each in
// proportion to what it spent: who spends while nothing is left is the cause, however
// little it is and whoever used the limit up.

// truth is that of one key.
type truth struct {
	rate     *limit.Rate
	tally    *tally
	shape    deltasync.Shape
	ceiling  uint64     // in force
	before   uint64     // and the one before, where that was higher
	until    crdt.Slice // which counts in windows that end before this slice
	home     bool       // this region reports the key
	total    crdt.Vector
	spenders []spender
	base     levels // of a bucket, when its first slice begins
	found    []excess
	first    crdt.Slice  // that is held
	from     crdt.Slice  // what came before is another's to tell
	next     crdt.Slice  // the first that has not closed
	whole    crdt.Slice  // the first of which not all regions have told
	risen    bool        // since it was last judged, and
	late     uint64      // in so many slices that had closed
	owed     uint64      // hits that were told and then given back
	owedEnd  uint64      // and windows
	asked    []crdt.Cell // what was asked for in the windows that end with some slices, as Charges
	heard    crdt.Slice  // the last of them
	least    float64     // that was asked for since
	held     int         // bytes, as last weighed
}

// openTruth begins the truth of a counter; since is when its lane came to this aggregator.
func (a *Aggregator) openTruth(l *lane, key deltasync.Key, c *counter, k known, since, now int64) *truth {
	v := &truth{rate: k.rate, tally: k.tally, shape: c.shape, home: c.shape.Regional || a.homes.first(key), from: k.rate.SliceAt(since)}
	v.ceiling = k.rate.CeilingOf(c.shape.Limit)
	if c.past != nil {
		oldest := retirement(c.shape, now)
		carry := l.carryAt(c, oldest)
		v.base = levels{carry, carry}
	}
	v.first = retirement(c.shape, now)
	for _, cell := range l.everything(c) {
		if v.next == 0 || cell.Slice < v.next {
			v.next, v.whole = cell.Slice, cell.Slice
		}
	}
	return v
}

// bytes is about the memory that it takes.
func (v *truth) bytes() int {
	n := int(unsafe.Sizeof(*v)) + placeBytes + v.total.Bytes() + cap(v.found)*int(unsafe.Sizeof(excess{})) + cap(v.asked)*int(unsafe.Sizeof(crdt.Cell{}))
	for i := range v.spenders {
		n += v.spenders[i].cells.Bytes()
	}
	return n + cap(v.spenders)*int(unsafe.Sizeof(spender{}))
}

// adopt takes over a limit, or a margin, that has changed: a window is judged by the
// highest that was in force in it.
func (v *truth) adopt(shape deltasync.Shape, now int64) {
	if shape.Limit == 0 { // it is not known now
		shape.Limit = v.shape.Limit
	}
	if ceiling := v.rate.CeilingOf(shape.Limit); ceiling != v.ceiling {
		if ceiling < v.ceiling {
			at := sliceAt(shape, now)
			v.before, v.until = max(v.ceiling, v.inForce(at)), at+crdt.Slice(shape.Slices)
		}
		v.ceiling = ceiling
	}
	v.shape = shape
}

// inForce is the ceiling of the window that ends with a slice.
func (v *truth) inForce(s crdt.Slice) uint64 {
	if s < v.until {
		return max(v.before, v.ceiling)
	}
	return v.ceiling
}

// ends is what became of slices as they closed.
type ends struct{ windows, incomplete, toldSince uint64 }

// close closes the slices of which all regions have told, until an instant, and those
// that have waited for two windows; delay is how long after a slice they tell of it. What
// ended in a silence that was longer than edges keep what they have to tell closes as
// incomplete, though all have told: what edges of an aggregator that was frozen counted
// is gone.
func (v *truth) close(s *spoken, told, delay, now int64) (e ends) {
	rate, settled := v.rate, v.settled(now)
	if v.shape.Regional {
		told = now
	}
	v.whole = max(v.whole, min(settled, v.next)) // of what is before it nobody tells any more
	for v.whole < v.next {                       // those that closed as incomplete
		end := rate.EndOf(v.whole)
		if end+delay > told {
			break
		}
		if v.whole >= settled && v.whole >= v.from {
			e.toldSince++
		}
		v.whole = rate.SliceAt(end)
	}
	last, _ := v.total.Last()
	for v.next <= last+crdt.Slice(v.span()) {
		end := rate.EndOf(v.next)
		whole := end+delay <= told
		if end+delay > now || !whole && end+delay+2*int64(v.window()) > now {
			break
		}
		if v.next >= v.from {
			e.windows++
			switch {
			case !whole:
				e.incomplete++
			case s.missed(end, int64(v.window()+keptLonger), v.shape.Regional):
				e.incomplete++
				e.toldSince++
			}
		}
		after := rate.SliceAt(end)
		if whole && v.whole == v.next {
			v.whole = after
		}
		v.next = after
	}
	return e
}

// settled is the first slice of which somebody may still tell: of those before it the
// verdicts stand. Who is silent is waited for as long as amends.
func (v *truth) settled(now int64) crdt.Slice {
	settled := retirement(v.shape, now)
	if v.whole < settled {
		wait := min(max(4*v.window(), v.window()+amends), limit.MaxSlices*v.shape.Width)
		settled = min(settled, max(v.whole, sliceAt(v.shape, now-int64(wait))))
	}
	return settled
}

// keptLonger is how long after a slice has left its window edges still tell of it.
const keptLonger = time.Second

// amends is for how long at least what regions that were cut off had counted amends
// the truth when they are back; of windows of more than 10 s, for four of them.
const amends = 30 * time.Second

// span is how many slices a window has: it ends with the last of them.
func (v *truth) span() int {
	slices, _ := spanOf(v.shape, v.rate)
	return slices
}

// window is how long it is.
func (v *truth) window() time.Duration {
	_, window := spanOf(v.shape, v.rate)
	return window
}

// judge judges the slices that have closed; verdicts on those before settled stand.
func (v *truth) judge(settled crdt.Slice, cells []crdt.Cell) []excess {
	r := ruling{slices: v.span(), ceiling: v.inForce, settled: settled, to: v.next}
	if v.shape.Bucket() {
		r.drain = drain(v.shape)
		return judgeBucket(nil, cells, v.base, r)
	}
	return judgeWindows(nil, cells, v.found, r)
}

// retire drops what no verdict that can still change depends on, and says whether
// anything is left.
func (v *truth) retire(settled crdt.Slice) bool {
	settled = min(settled, v.next)
	keep := settled - crdt.Slice(v.rate.Slices)
	if v.shape.Bucket() {
		keep = settled
		for i := 0; i < v.total.Len() && v.total.At(i).Slice < keep; i++ {
			cell := v.total.At(i)
			v.base.pour(drain(v.shape), cell, v.inForce(cell.Slice))
		}
	}
	v.first = max(v.first, keep)
	v.total.Retire(keep)
	for i := range v.spenders {
		v.spenders[i].cells.Retire(keep)
	}
	v.spenders = slices.DeleteFunc(v.spenders, func(p spender) bool { return p.cells.Len() == 0 })
	v.found = slices.DeleteFunc(v.found, func(e excess) bool { return e.slice < keep })
	last, any := v.total.Last()
	return any && (last >= settled || v.next <= last+crdt.Slice(v.span()) || v.whole < v.next && v.next > settled)
}

// spend is the cost in the window that ends with a slice.
func (v *truth) spend(s crdt.Slice) (sum uint64) {
	for i := v.total.Len() - 1; i >= 0; i-- {
		switch cell := v.total.At(i); {
		case cell.Slice > s:
		case cell.Slice <= s-crdt.Slice(v.rate.Slices):
			return sum
		default:
			sum += spentIn(cell)
		}
	}
	return sum
}

// judged says that the algorithm's truth can be told by slices: of a window that the
// first hit begins, and of slots that were given back, it cannot, and what counts loans is
// no limit.
func judged(r *limit.Rate) bool {
	return r.Algorithm != limit.FirstHit && r.Algorithm != limit.Concurrency && !r.CountDenied && !r.Lent && r.Scope != limit.ScopeEdge
}
