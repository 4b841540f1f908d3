package escrow

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// mostSplit is how many holdings a key may have so that more are made of one.
const mostSplit = 512

// end has what a life spent that is over come free in parts, as it leaves the window: for each there is
// a holding, under a name that no life has, of one whose lease was over when that was spent, or what is
// as old: so the log tells it. The life has nothing any more: what it was granted since it never
// spends. Said late, it ends later.
func (d *deposit) end(h *holding, ends []deltasync.End, lasts, lease, now time.Duration, name func() uint64) {
	ends = slices.Clone(ends)
	for len(ends) > 1 && d.lives(h.Node)+len(ends) > maxLives && d.fold(h.Node, lease, now, name) {
	}
	for most := min(maxLives-d.lives(h.Node), (mostSplit-len(d.holdings))/(mostSplit/deltasync.MaxEnds)); len(ends) > max(1, most); {
		ends = joinEnds(ends)
	}
	for _, e := range ends {
		part := &holding{Holding: h.Holding, heard: now - lease - max(0, lasts-e.In), bound: e.Cost}
		part.Holder, part.Granted, part.Returned, part.Silent = name(), e.Cost, 0, 0
		d.holdings = append(d.holdings, part)
	}
	h.Returned = h.Granted
	d.version++
}

// joinEnds makes one of the two ends that are next to each other.
func joinEnds(ends []deltasync.End) []deltasync.End {
	slices.SortFunc(ends, func(a, b deltasync.End) int { return int(a.In - b.In) })
	best := 1
	for i := 2; i < len(ends); i++ {
		if ends[i].In-ends[i-1].In < ends[best].In-ends[best-1].In {
			best = i
		}
	}
	ends[best].Cost += ends[best-1].Cost
	return slices.Delete(ends, best-1, best)
}

// lives is how many holdings an edge has.
func (d *deposit) lives(node uint64) (n int) {
	for _, h := range d.holdings {
		if h.Node == node {
			n++
		}
	}
	return n
}
