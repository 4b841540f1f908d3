package regional

import (
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// excess is what was too much in a slice.
type excess struct {
	slice crdt.Slice
	// hits is the cost that a limiter which knows all at once would have denied: what
	// was charged in the slice beyond what still fitted under the ceiling, given what
	// it would have denied before. So windows that overlap never count a hit twice.
	hits uint64
	// over is by how much the window that ends with the slice, or the bucket, was
	// above the ceiling, all that was admitted counted.
	over uint64
}

// mostSpent bounds what a slice counts here, so that the sum of 1024 of them fits.
const mostSpent = 1 << 53

func spentIn(c crdt.Cell) uint64 { return min(c.Net(), mostSpent) }

// ruling is what verdicts go by.
type ruling struct {
	slices  int                     // of a window; 0: it is a bucket
	drain   limit.Drain             // of a bucket
	ceiling func(crdt.Slice) uint64 // in force in the window that ends with a slice
	settled crdt.Slice              // verdicts on slices before it stand
	to      crdt.Slice              // the first slice that is not judged yet
}

// judgeWindows appends the verdicts on slices before r.to to found, of what everybody
// counted, ascending; before holds the earlier ones.
func judgeWindows(found []excess, cells []crdt.Cell, before []excess, r ruling) []excess {
	type spend struct{ all, fits uint64 }
	window, spends := spend{}, make([]spend, len(cells))
	first, next := 0, 0 // of the cells in the window, and after it
	for s := crdt.Slice(0); ; s++ {
		for first < next && cells[first].Slice <= s-crdt.Slice(r.slices) {
			window.all -= spends[first].all
			window.fits -= spends[first].fits
			first++
		}
		if first == next { // nothing is in it: on to the next charge
			if next == len(cells) {
				return found
			}
			s = cells[next].Slice
		}
		if s >= r.to {
			return found
		}
		for len(before) > 0 && before[0].slice < s {
			before = before[1:]
		}
		stands := excess{slice: s}
		if len(before) > 0 && before[0].slice == s {
			stands = before[0]
		}
		now, ceiling := excess{slice: s}, r.ceiling(s)
		if next < len(cells) && cells[next].Slice == s {
			spent := spentIn(cells[next])
			if now.hits = min(spent, crdt.SatSub(window.fits+spent, ceiling)); s < r.settled {
				now.hits = min(spent, stands.hits)
			}
			spends[next] = spend{spent, spent - now.hits}
			window.all, window.fits = window.all+spent, window.fits+spent-now.hits
			next++
		}
		if now.over = crdt.SatSub(window.all, ceiling); s < r.settled {
			now.over = stands.over
		}
		if now != (excess{slice: s}) {
			found = append(found, now)
		}
	}
}

// levels are those of a bucket when a slice begins: as it was, and as it would have
// been without what was too much.
type levels struct{ all, fits crdt.Carry }

// pour advances levels over a slice that holds a cell: the level at its end is the
// least that it can have been, as nobody knows when in the slice hits came.
func (v *levels) pour(d limit.Drain, c crdt.Cell, ceiling uint64) excess {
	one := []crdt.Cell{{Slice: c.Slice, Charges: spentIn(c)}}
	v.all = d.Advance(v.all, one, c.Slice+1)
	v.fits = d.Advance(v.fits, one, c.Slice+1)
	if ceiling > mostSpent {
		return excess{slice: c.Slice}
	}
	most := ceiling * micro
	hits := min(crdt.SatSub(v.fits.Level, most)/micro, one[0].Charges)
	v.fits.Level -= hits * micro
	return excess{slice: c.Slice, hits: hits, over: crdt.SatSub(v.all.Level, most) / micro}
}

// judgeBucket is judgeWindows of a bucket that had levels when its first cell's slice
// began, or before it.
func judgeBucket(found []excess, cells []crdt.Cell, at levels, r ruling) []excess {
	for _, c := range cells {
		if c.Slice >= r.to {
			break
		}
		if now := at.pour(r.drain, c, r.ceiling(c.Slice)); now.hits > 0 || now.over > 0 {
			found = append(found, now)
		}
	}
	return found
}
