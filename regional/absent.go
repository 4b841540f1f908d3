package regional

import (
	"slices"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Whoever takes a lane over has never heard of an edge that was cut off just before, and
// that goes on with what it had. But it has counted, as the store knows: one that has, in the
// window or a moment ago, and did not take its leave, is taken to be silent since, until it is
// heard of. What it had is the part that it has of what all spent by then.

// absent is an edge that nobody has heard of here, by what it counted.
type absent struct {
	node, incarnation uint64
	last              crdt.Slice
}

// findAbsent has what they had be kept for edges that are absent, as often as the store has
// answered since the lane was taken over, while that was just now. l.mu is held.
func (a *Aggregator) findAbsent(l *lane, c *counter, now int64) {
	t := c.contest
	if !t.taken || t.sought == c.asked || c.shape.Limit == 0 || now-t.born > int64(youngFor) {
		return
	}
	fell := l.absent(c, now)
	if len(fell) > 0 && !a.leavers.knows(t.born, now) {
		return
	}
	t.sought = c.asked
	fell = slices.DeleteFunc(fell, func(e absent) bool { return a.leavers.has(e.node, e.incarnation) })
	for _, e := range fell {
		if len(t.edges) >= mostAskers || len(l.present) >= mostAskers || !l.mayAsk(c, e.node) {
			break
		}
		at := (int64(e.last) + 1) * int64(c.shape.Width)
		p := l.present[e.node]
		if p == nil {
			p = &presence{incarnation: e.incarnation, supposed: true}
			l.present[e.node] = p
		}
		p.at = max(p.at, at)
		own, all := c.spentBefore(e)
		pace := own / c.shape.Window().Seconds()
		t.edges = append(t.edges, asker{
			node: e.node, demand: limit.Demand{Fast: pace, Mid: pace}, at: at, edge: p, life: e.incarnation,
			silent: true, part: own / all, fair: a.equalPart(c, e.node, len(fell), now),
		})
	}
	t.keptAt, t.sums.at = 0, 0
	l.bill(t)
}

// absent are those of a counter that may go on with what they had.
func (l *lane) absent(c *counter, now int64) (all []absent) {
	from := sliceAt(c.shape, now-int64(min(deltasync.ShareKept, c.shape.Window())))
	for _, entry := range c.edges.Entries() {
		node := entry.Replica.Node
		if p := l.present[node]; p != nil && !p.supposed || c.contest.knows(node) || entry.Vector.Len() == 0 {
			continue
		}
		if last := entry.Vector.At(entry.Vector.Len() - 1).Slice; last >= from {
			e := absent{node, entry.Replica.Incarnation >> deltasync.LifeBits, last}
			if n := len(all); n > 0 && all[n-1].node == node { // its latest life stands last
				e.last = max(last, all[n-1].last)
				all = all[:n-1]
			}
			all = append(all, e)
		}
	}
	return all
}

// spentBefore is what an edge spent in the window by when it counted last, and what all did.
func (c *counter) spentBefore(e absent) (own, all float64) {
	from := e.last - crdt.Slice(c.shape.Slices)
	sum := func(v *crdt.Vector) (sum float64) {
		for _, cell := range v.From(from, nil) {
			if cell.Slice <= e.last {
				sum += float64(cell.Net())
			}
		}
		return sum
	}
	for _, entry := range entriesOf(c.edges.Entries(), e.node) {
		own += sum(&entry.Vector)
	}
	if all = sum(c.edges.Sums()); !c.shape.Regional {
		all += sum(c.regions.Sums())
	}
	return own, max(1, own, all)
}
