package trial

import (
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// above says in which cell a vector is larger than the truth.
func above(cells []crdt.Cell, truth *crdt.Vector) (crdt.Cell, bool) {
	for _, c := range cells {
		if most := truth.Get(c.Slice); c.Charges > most.Charges || c.Refunds > most.Refunds {
			return c, true
		}
	}
	return crdt.Cell{}, false
}

// above says in which cell a vector of the counter is larger than the truth, and
// what a hostile edge claims.
func (c *counter) above(cells []crdt.Cell, truth *crdt.Vector) (crdt.Cell, bool) {
	if c.claimed == nil {
		return above(cells, truth)
	}
	for _, cell := range cells {
		if most := truth.Get(cell.Slice).Plus(c.claimed.Get(cell.Slice)); cell.Charges > most.Charges || cell.Refunds > most.Refunds {
			return cell, true
		}
	}
	return crdt.Cell{}, false
}

// elsewhere is the truth about all regions but one.
func (c *counter) elsewhere(region string) *crdt.Vector {
	var sum crdt.Vector
	for other, v := range c.byRegion {
		for i := range v.Len() {
			if other != region {
				sum.Add(v.At(i))
			}
		}
	}
	return &sum
}

// verify holds all parts to the truth: invariant 1, and 5 where nothing is
// evicted.
func (t *trial) verify() {
	for _, name := range t.w.Edges() {
		t.bookLate(t.w.Site(name))
	}
	t.verifyBounds()
	for _, c := range t.counters {
		for _, name := range t.w.Edges() {
			t.verifyAt(name, c)
		}
		for _, r := range t.regionNames {
			for _, v := range t.w.Servers(r) {
				if v.Aggregator() != nil {
					vectors := v.Aggregator().Vectors(c.key)
					t.verifyVectors(v.Name, r, c, vectors)
					t.verifyCrossing(v, c, vectors)
				}
			}
			vectors, err := t.w.Store(r).Holds(c.key, c.rate.Width, c.rate.Span)
			if err != nil {
				t.failf("1", "store of %s: %v", r, err)
			}
			t.verifyVectors("the store of "+r, r, c, vectors)
		}
	}
}

// verifyAt holds what one edge believes of one counter to the truth.
func (t *trial) verifyAt(name string, c *counter) {
	own, others, live := t.w.Node(name).Cells(c.key)
	if !live {
		return
	}
	believed := sum(own, others)
	if cell, is := c.above(believed, &c.all); is {
		t.failf("1", "%s believes %+v of %s (%s), the truth is %+v", name, cell, c.user, c.rate.Policy, c.all.Get(cell.Slice))
	}
	s := t.w.Site(name)
	mine := of(c.byLife, life{name, s.Lives()})
	if cell, is := above(own, mine); is {
		t.failf("1", "%s has %+v of its own of %s, the truth is %+v", name, cell, c.user, mine.Get(cell.Slice))
	}
	if t.has[Evict] {
		return
	}
	reach := c.rate.Reach(t.w.NowAt(name).UnixNano())
	for _, cell := range mine.Cells(nil) {
		if got := cellOf(own, cell.Slice); cell.Slice >= reach && got != cell {
			if cell.Slice < c.rate.Reach(t.shown(name).UnixNano()) {
				continue // its clock was set back, and it goes on by what it takes for the time (seed 82028220)
			}
			t.failf("5", "%s has %+v of its own hits of %s, the truth is %+v", name, got, c.user, cell)
		}
	}
}

// verifyVectors holds what a region has of a counter to the truth.
func (t *trial) verifyVectors(who, region string, c *counter, vectors []regional.Vector) {
	sums := map[life]*crdt.Vector{}
	for _, v := range vectors {
		if v.Source == regional.FromRegion {
			other, ok := t.nodes[v.Replica.Node]
			if cell, is := c.above(v.Cells, of(c.byRegion, other)); is || !ok || other == region {
				t.failf("1", "%s has %+v of %s from %q, the truth is %+v", who, cell, c.user, other, of(c.byRegion, other).Get(cell.Slice))
			}
			continue
		}
		if v.Source == regional.FromHomes {
			truth := c.elsewhere(region)
			if cell, is := c.above(v.Cells, truth); is {
				t.failf("1", "%s heard %+v of %s from its homes, the truth is %+v", who, cell, c.user, truth.Get(cell.Slice))
			}
			continue
		}
		if v.Source == regional.FromPeers {
			if cell, is := c.above(v.Cells, of(c.byRegion, region)); is {
				t.failf("1", "%s took back %+v of %s, the truth is %+v", who, cell, c.user, of(c.byRegion, region).Get(cell.Slice))
			}
			continue
		}
		if t.hostile.is(region, v.Replica) {
			continue
		}
		l, ok := t.lifeOf(region, v.Replica)
		if !ok {
			t.failf("1", "%s has counts of %s from %+v, who is none of its edges", who, c.user, v.Replica)
			continue
		}
		for _, cell := range v.Cells {
			of(sums, l).Add(cell)
		}
	}
	t.verifyHostile(who, region, c, vectors)
	for l, v := range sums {
		if cell, is := above(v.Cells(nil), of(c.byLife, l)); is {
			t.failf("1", "%s has %+v of %s from %v, the truth is %+v", who, cell, c.user, l, of(c.byLife, l).Get(cell.Slice))
		}
	}
}

// lifeOf is the edge's life that a replica is of.
func (t *trial) lifeOf(region string, r crdt.Replica) (life, bool) {
	name, ok := t.nodes[r.Node]
	if !ok || t.w.Site(name) == nil || t.w.Site(name).Region != region {
		return life{}, false
	}
	return life{name, int(r.Incarnation>>deltasync.LifeBits - uint64(start.UnixMilli()))}, true
}

// forgotten: what a region's store had acknowledged is only where others have it.
func (t *trial) forgotten(region string) {
	t.replaced[region] = t.w.Now()
	t.disowned(region)
	t.sentences.forget(region)
	for _, c := range t.counters {
		for l := range c.stored {
			if t.w.Site(l.edge).Region == region {
				delete(c.stored, l)
			}
		}
	}
}

// sum is the sums by slice of two lists.
func sum(a, b []crdt.Cell) []crdt.Cell {
	var v crdt.Vector
	for _, list := range [][]crdt.Cell{a, b} {
		for _, c := range list {
			v.Add(c)
		}
	}
	return v.Cells(nil)
}

func cellOf(cells []crdt.Cell, slice crdt.Slice) crdt.Cell {
	for _, c := range cells {
		if c.Slice == slice {
			return c
		}
	}
	return crdt.Cell{Slice: slice}
}

// within is the cells from a slice on.
func within(cells []crdt.Cell, from crdt.Slice) (out []crdt.Cell) {
	for _, c := range cells {
		if c.Slice >= from {
			out = append(out, c)
		}
	}
	return out
}
