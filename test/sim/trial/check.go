package trial

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
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

// verify holds all parts to the truth: invariant 1, and 5 where nothing is
// evicted.
func (t *trial) verify() {
	for _, c := range t.counters {
		for _, name := range t.w.Edges() {
			t.verifyAt(name, c)
		}
		for _, r := range t.regionNames {
			for _, v := range t.w.Servers(r) {
				if v.Aggregator() != nil {
					t.verifyVectors(v.Name, r, c, v.Aggregator().Vectors(c.key))
				}
			}
			vectors, err := t.w.Store(r).Holds(c.key, c.rate.Width, c.rate.Span)
			if err != nil {
				t.failf(1, "store of %s: %v", r, err)
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
	if cell, is := above(believed, &c.all); is {
		t.failf(1, "%s believes %+v of %s (%s), the truth is %+v", name, cell, c.user, c.rate.Policy, c.all.Get(cell.Slice))
	}
	s := t.w.Site(name)
	mine := of(c.byLife, life{name, s.Lives()})
	if cell, is := above(own, mine); is {
		t.failf(1, "%s has %+v of its own of %s, the truth is %+v", name, cell, c.user, mine.Get(cell.Slice))
	}
	if t.has[Evict] {
		return
	}
	reach := c.rate.Reach(t.w.NowAt(name).UnixNano())
	for _, cell := range mine.Cells(nil) {
		if got := cellOf(own, cell.Slice); cell.Slice >= reach && got != cell {
			t.failf(5, "%s has %+v of its own hits of %s, the truth is %+v", name, got, c.user, cell)
		}
	}
}

// verifyVectors holds what a region has of a counter to the truth.
func (t *trial) verifyVectors(who, region string, c *counter, vectors []regional.Vector) {
	sums := map[life]*crdt.Vector{}
	for _, v := range vectors {
		if v.Source == regional.FromRegion {
			other, ok := t.nodes[v.Replica.Node]
			if cell, is := above(v.Cells, of(c.byRegion, other)); is || !ok || other == region {
				t.failf(1, "%s has %+v of %s from %q, the truth is %+v", who, cell, c.user, other, of(c.byRegion, other).Get(cell.Slice))
			}
			continue
		}
		if v.Source == regional.FromPeers {
			if cell, is := above(v.Cells, of(c.byRegion, region)); is {
				t.failf(1, "%s took back %+v of %s, the truth is %+v", who, cell, c.user, of(c.byRegion, region).Get(cell.Slice))
			}
			continue
		}
		l, ok := t.lifeOf(region, v.Replica)
		if !ok {
			t.failf(1, "%s has counts of %s from %+v, who is none of its edges", who, c.user, v.Replica)
			continue
		}
		for _, cell := range v.Cells {
			of(sums, l).Add(cell)
		}
	}
	for l, v := range sums {
		if cell, is := above(v.Cells(nil), of(c.byLife, l)); is {
			t.failf(1, "%s has %+v of %s from %v, the truth is %+v", who, cell, c.user, l, of(c.byLife, l).Get(cell.Slice))
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

// onUp holds what an edge sends to invariants 1 and 9: no more than the truth,
// and never less than before.
func (t *trial) onUp(s *world.Site, payload []byte) {
	var up deltasync.Up
	if err := up.UnmarshalBinary(payload); err != nil {
		t.failf(1, "%s sends what cannot be read: %v", s.Name, err)
		return
	}
	for _, sec := range up.Sections {
		replica := up.Replica(sec.Life)
		for _, d := range sec.Deltas {
			c := t.keys[d.Key]
			if c == nil {
				t.failf(1, "%s sends counts of a key that nobody asked for", s.Name)
				continue
			}
			if cell, is := above(d.Cells, of(c.byLife, life{s.Name, s.Lives()})); is {
				t.failf(1, "%s sends %+v of %s, the truth is %+v", s.Name, cell, c.user, of(c.byLife, life{s.Name, s.Lives()}).Get(cell.Slice))
			}
			last := of(t.sent, sentBy{d.Key, replica, sec.Shape})
			for _, cell := range d.Cells {
				if was := last.Get(cell.Slice); cell.Charges < was.Charges || cell.Refunds < was.Refunds {
					t.failf(9, "%s sends %+v of %s after %+v", s.Name, cell, c.user, was)
				}
				last.Join(cell)
			}
		}
	}
}

// onDown notes what is acknowledged, and holds answers to invariant 6.
func (t *trial) onDown(v *world.Server, payload, reply []byte) {
	var up deltasync.Up
	var down deltasync.Down
	if err := up.UnmarshalBinary(payload); err != nil {
		t.failf(6, "%s is sent what cannot be read: %v", v.Name, err)
		return
	}
	if err := down.UnmarshalBinary(reply); err != nil {
		t.failf(6, "%s answers what cannot be read: %v", v.Name, err)
		return
	}
	if up.Kind != deltasync.KindEdge {
		return
	}
	i := -1
	for _, sec := range up.Sections {
		replica := up.Replica(sec.Life)
		for _, d := range sec.Deltas {
			i++
			c := t.keys[d.Key]
			if c == nil {
				continue
			}
			if down.Status != deltasync.StatusStoreDown && down.Took(i) {
				if l, ok := t.lifeOf(v.Region, replica); ok {
					if c.stored[l] == nil {
						c.stored[l] = map[crdt.Replica]*crdt.Vector{}
					}
					for _, cell := range d.Cells {
						of(c.stored[l], replica).Join(cell)
					}
				}
			}
			if i < len(down.Totals) {
				t.verifyAnswer(v, c, replica, &down.Totals[i])
			}
		}
	}
}

// verifyAnswer: totals are what the aggregator has, or the store of a key that it
// has no place for, less the asker's entry.
func (t *trial) verifyAnswer(v *world.Server, c *counter, asker crdt.Replica, totals *deltasync.Totals) {
	var peers, others crdt.Vector
	vectors := v.Aggregator().Vectors(c.key)
	if len(vectors) == 0 && t.has[EvictServer] {
		var err error
		if vectors, err = t.w.Store(v.Region).Holds(c.key, c.rate.Width, c.rate.Span); err != nil {
			t.failf(6, "store of %s: %v", v.Region, err)
		}
	}
	for _, vec := range vectors {
		for _, cell := range vec.Cells {
			switch {
			case vec.Source == regional.FromRegion:
				others.Add(cell)
			case vec.Source == regional.FromEdge && vec.Replica != asker:
				peers.Add(cell)
			}
		}
	}
	for _, cell := range totals.Peers {
		if peers.Get(cell.Slice) != cell {
			t.failf(6, "%s answers %+v of %s, it has %+v from others than the asker", v.Name, cell, c.user, peers.Get(cell.Slice))
		}
	}
	for _, cell := range totals.Others {
		if others.Get(cell.Slice) != cell {
			t.failf(6, "%s answers %+v of %s from other regions, it has %+v", v.Name, cell, c.user, others.Get(cell.Slice))
		}
	}
}

// forgotten: what a region's store had acknowledged is only where others have it.
func (t *trial) forgotten(region string) {
	for _, c := range t.counters {
		for l := range c.stored {
			if t.w.Site(l.edge).Region == region {
				delete(c.stored, l)
			}
		}
	}
}

// rest is how long after the faults all have agreed: a refresh of a window of a
// minute, and what is added by lanes that rest and exports.
const rest = window/6 + 6*time.Second

// refusal is the longest that an edge waits before it tells again what was turned
// away, and what it takes to tell it.
const refusal = 20 * time.Second

// settle demands agreement: invariant 4.
func (t *trial) settle() error {
	every := 200 * time.Millisecond
	if t.has[Evict] {
		every = 30 * time.Millisecond // there are many
	}
	agreed := t.w.Now().Add(rest)
	if t.has[EvictServer] { // who was turned away waits
		agreed = agreed.Add(refusal)
	}
	for user := 0; t.err == nil && t.w.Now().Before(agreed); user++ {
		if err := t.advance(t.w.Now().Add(every)); err != nil {
			return err
		}
		t.peek(user % t.users)
	}
	if err := t.advance(t.w.Now().Add(time.Second)); err != nil {
		return err
	}
	t.verify()
	for _, c := range t.counters {
		if t.err == nil {
			t.agree(c)
		}
	}
	if t.err == nil && t.Seed%8 == 0 { // it takes as long as all the rest
		return t.expire()
	}
	return nil
}

// expire demands that nothing is left of what has left all windows: invariant 8.
func (t *trial) expire() error {
	if err := t.advance(t.w.Now().Add(4 * window)); err != nil {
		return err
	}
	for _, name := range t.w.Edges() {
		if keys := t.w.Node(name).Keys(); keys > 0 {
			t.failf(8, "%s still has %d keys", name, keys)
		}
	}
	for _, r := range t.regionNames {
		for _, v := range t.w.Servers(r) {
			if st := v.Aggregator().Stats(t.w.Now()); st.Keys > 0 {
				t.failf(8, "%s still has %d keys", v.Name, st.Keys)
			}
		}
		for _, c := range t.counters {
			vectors, err := t.w.Store(r).Holds(c.key, c.rate.Width, c.rate.Span)
			if err != nil {
				return err
			}
			if len(vectors) > 0 {
				t.failf(8, "the store of %s still has %+v of %s", r, vectors, c.user)
			}
		}
	}
	return nil
}

// peek has all edges hear of a user's keys. Where keys compete all at once would
// put each other out before anybody was asked.
func (t *trial) peek(user int) {
	for _, name := range t.w.Edges() {
		n := t.w.Node(name)
		req := n.Rules().Only().NewRequest()
		req.Set("user", t.of(user)[0].user)
		req.Peek = true
		n.Check(t.w.NowAt(name), req)
		req.Release()
	}
}

// agree demands that all edges believe the same of a counter: all that was
// charged, but for what nobody was told who lives.
func (t *trial) agree(c *counter) {
	var least crdt.Vector // what cannot be lost
	for _, name := range t.w.Edges() {
		now := life{name, t.w.Site(name).Lives()}
		for l, truth := range c.byLife {
			if l.edge != name {
				continue
			}
			if l == now && !t.has[Evict] {
				for _, cell := range truth.Cells(nil) {
					least.Add(cell)
				}
				continue
			}
			for _, stored := range c.stored[l] {
				for _, cell := range stored.Cells(nil) {
					least.Add(cell)
				}
			}
		}
	}
	reach := c.rate.Reach(t.w.Now().UnixNano())
	if t.has[EvictServer] && t.mayForget() && little(least.Cells(nil), reach, c.rate.Limit) {
		return
	}
	var first []crdt.Cell
	for i, name := range t.w.Edges() {
		own, others, live := t.w.Node(name).Cells(c.key)
		if !live && (t.has[Evict] || c.rate.Bucket()) {
			continue // it was evicted, or has drained
		}
		believed := within(sum(own, others), reach)
		for _, cell := range within(least.Cells(nil), reach) {
			if got := cellOf(believed, cell.Slice); got.Charges < cell.Charges || got.Refunds < cell.Refunds {
				t.failf(4, "after the faults %s believes %+v of %s (%s), at least %+v is known to somebody", name, got, c.user, c.rate.Policy, cell)
			}
		}
		if i == 0 || t.has[Evict] || t.died && t.mayForget() {
			first = believed
			continue
		}
		if fmt.Sprint(believed) != fmt.Sprint(first) {
			t.failf(4, "after the faults %s believes %v of %s (%s), %s believes %v", name, believed, c.user, c.rate.Policy, t.w.Edges()[0], first)
		}
	}
}

// little says that less than a quarter of a limit is used: what aggregators forgot
// of such keys to make room they do not tell again to a region that lost what it
// was told; they have no list of them.
func little(cells []crdt.Cell, reach crdt.Slice, limit uint64) bool {
	var used uint64
	for _, cell := range within(cells, reach) {
		used = crdt.SatAdd(used, cell.Charges)
	}
	return used < limit/4
}

// mayForget says that regions may have lost counts that nobody lives to tell
// again: some edges heard of them, others never will.
func (t *trial) mayForget() bool {
	for _, f := range []Fault{CrashServer, Flap, KnowsNothing, StoreDown, StoreDeaf, StoreWipe, StoreFailTo} {
		if t.has[f] {
			return true
		}
	}
	return false
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
