package limit

import "github.com/spillgate/spillgate/crdt"

// firstFit is the first instant from now on at which what the slices count is
// target or less, and at the latest when nothing of them counts.
func (r *Rate) firstFit(sums []crdt.Cell, target uint64, now int64) int64 {
	current := r.SliceAt(now)
	last := current + crdt.Slice(r.Slices) + 1
	if n := len(sums); n > 0 && sums[n-1].Slice > current { // a clock was set back
		last = min(sums[n-1].Slice, r.beyond(current)) + crdt.Slice(r.Slices) + 1
	}
	w := sliding{rate: r, sums: sums}
	for s := current; s <= last; s++ {
		full, oldest := w.to(s)
		if full > target {
			continue
		}
		// Within slice s only the overlap of the oldest changes: find the
		// first instant at which what is left of it fits.
		at := r.StartOf(s)
		if left, ok := r.overlapThatFits(oldest, target-full); ok {
			at += int64(r.Width) - left
		}
		if at < r.StartOf(s+1) {
			return max(at, now)
		}
	}
	return max(r.StartOf(last), now)
}

// overlapThatFits is the longest overlap, in nanoseconds, by which the oldest
// slice may count without exceeding room; ok is false where all of it fits.
func (r *Rate) overlapThatFits(oldest, room uint64) (left int64, ok bool) {
	if oldest == 0 || oldest <= room {
		return 0, false
	}
	width := uint64(r.Width)
	if r.Round != RoundDown {
		q, _ := scale(width, room, oldest) // oldest*left/width <= room
		return int64(q), true
	}
	q, part := scale(width, room+1, oldest) // floor(oldest*left/width) <= room
	if !part {
		q--
	}
	return int64(q), true
}

// sliding is a window that moves on over the slices: it says of each in turn
// what split says, in one pass over all.
type sliding struct {
	rate       *Rate
	sums       []crdt.Cell
	first, end int  // of the cells that count in full
	full       wide // what they hold
}

// to moves the window on to current, a slice no older than the last.
func (w *sliding) to(current crdt.Slice) (full, oldest uint64) {
	r, edge, beyond := w.rate, current-crdt.Slice(w.rate.Slices), w.rate.beyond(current)
	for ; w.end < len(w.sums) && w.sums[w.end].Slice < beyond; w.end++ {
		w.full = w.full.plus(wide{lo: w.sums[w.end].Net()})
	}
	for ; w.first < w.end; w.first++ {
		if s := w.sums[w.first].Slice; s > edge || s == edge && r.Oldest == OldestFull {
			break
		}
		w.full = w.full.minus(wide{lo: w.sums[w.first].Net()})
	}
	if r.Oldest != OldestFull && r.Algorithm != FixedWindow && w.first > 0 && w.sums[w.first-1].Slice == edge {
		oldest = w.sums[w.first-1].Net()
	}
	full, _ = w.full.over(1)
	return full, oldest
}
