package regional

import (
	"iter"
	"math"
	"slices"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// A region whose store was wiped as its aggregators and edges died knows nothing
// of what it counted, but the other regions do. The first time that a key is told
// here of which the store has nothing, they are asked what they hold of this
// region: S, a lower bound of its subtotal as the sum of its edges' entries is
// one. The subtotal is the larger of both, cell by cell: in the slice that was
// under way the region may spend again what it had spent there, for nobody can
// tell whose hits are in S.
//
// S has hits of edges that live and have not told them again yet. So it is never
// in a reply to an edge, which would take its own for others': edges hear of it by
// pushes, from which each takes its own hits off. A bucket needs none of this: its
// carry comes back with every reply.

// subtotal is what the region counted in slices from one on, as far as is known.
func (c *counter) subtotal(from crdt.Slice) []crdt.Cell {
	if c.taken == nil {
		return c.edges.Sums().From(from, nil)
	}
	return slices.Collect(c.own(from))
}

// own is subtotal, a cell after the other.
func (c *counter) own(from crdt.Slice) iter.Seq[crdt.Cell] {
	return larger(c.edges.Sums(), c.of(FromPeers).Sums(), from)
}

// larger is the larger cell of two vectors in each slice from one on.
func larger(a, b *crdt.Vector, from crdt.Slice) iter.Seq[crdt.Cell] {
	return func(yield func(crdt.Cell) bool) {
		for i, j := 0, 0; i < a.Len() || j < b.Len(); {
			var cell crdt.Cell
			switch {
			case j == b.Len() || i < a.Len() && a.At(i).Slice < b.At(j).Slice:
				cell = a.At(i)
				i++
			case i == a.Len() || b.At(j).Slice < a.At(i).Slice:
				cell = b.At(j)
				j++
			default:
				cell = a.At(i).Join(b.At(j))
				i, j = i+1, j+1
			}
			if cell.Slice >= from && !yield(cell) {
				return
			}
		}
	}
}

// freshen looks, when the store has answered, whether a key is one that the
// region's edges have told for the first time, or for the first time since the
// store lost it.
func (a *Aggregator) freshen(l *lane, key deltasync.Key, c *counter, it *Item) {
	if !c.fresh {
		return
	}
	if c.knownOf(it) {
		c.fresh = false
	} else if c.edges.Len() > 0 {
		c.fresh = false
		a.claim(l, key, c)
	}
}

// knownOf says that the store had something of what the own region counted. It answers
// with all that it has once it had anything, so that what was just written comes back
// beside what it had of others.
func (c *counter) knownOf(it *Item) bool {
	others, written := false, false
	for _, v := range it.Vectors {
		switch v.Source {
		case FromPeers:
			return true
		case FromEdge:
			has := c.edges.Of(v.Replica)
			if has == nil || slices.ContainsFunc(v.Cells, func(cell crdt.Cell) bool { return has.Get(cell.Slice).Join(cell) != has.Get(cell.Slice) }) {
				return true
			}
			written = true
		default:
			others = true
		}
	}
	return written && !others
}

// claim asks the peers what they hold of this region.
func (a *Aggregator) claim(l *lane, key deltasync.Key, c *counter) {
	if c.shape.Regional || c.past != nil {
		return
	}
	for j := range a.homes.targets(key).each {
		l.peers[j].outbox.Put(c.shape, 0, deltasync.Delta{Key: key, Flags: deltasync.FlagTouch | deltasync.FlagOwn}) // where it is full somebody waits for more
	}
}

// takeBack joins what a peer holds of this region. It is kept where it is more
// than the region's edges have told. Of a guest that is in the store, which keeps both:
// edges and other regions hear of it when the store has answered.
func (a *Aggregator) takeBack(l *lane, key deltasync.Key, c *counter, cells []crdt.Cell, oldest crdt.Slice, now int64) {
	if c.shape.Regional || c.past != nil {
		return
	}
	more := cells[:0:0]
	for _, cell := range cells {
		if has := c.edges.Sums().Get(cell.Slice); cell.Slice >= oldest && has.Join(cell) != has {
			more = append(more, cell)
		}
	}
	from, rose := c.join(FromPeers, crdt.Replica{}, more, oldest, now)
	if !rose {
		return
	}
	a.stats.takenBack.Add(1)
	c.lacks(FromPeers, crdt.Replica{}, from)
	l.again(key, c)
	if c.guest {
		return
	}
	a.announce(l, key, c)
	a.export(l, key, c, math.MinInt64, 0, now) // to the others, who may lack it
}
