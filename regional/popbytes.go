package regional

import (
	"math"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// What a lane may take is shared by the PoPs whose edges fill it. Lives, incarnations and
// keys are theirs to invent, and what is being written to the store can make no room: one
// that goes on telling all that it invented would keep everybody else's keys out. So a
// PoP may have some times what is left of a lane, and half of its even part whatever is
// left; with more than that its own keys make room for its next, and nobody else's. Nor
// can it so have keys of others forgotten, and with them what it did to those.
//
// A key of which the edges of one PoP alone have counts is all that PoP's. Of others each
// has so much as it has entries. What other regions tell is nobody's.

const (
	// popBytesShare is how many times what is left of a lane a PoP may have: one alone
	// has fifteen sixteenths, two have fifteen parts of 31 each.
	popBytesShare = 15
	// mostOwn is how many of its keys make room for a PoP's next, should others have
	// come who leave it less: it has time.
	mostOwn = 4
)

// popBytes is what a PoP has of a lane.
type popBytes struct {
	bytes int
	searches
}

// owned is a PoP's part of a counter.
type owned struct {
	pop   uint64
	bytes int
}

// charge has those pay for a counter of some weight, until now c.weight, whose it is.
func (l *lane) charge(c *counter, weight int) {
	pop := c.soleOf()
	switch {
	case c.parts == nil && pop == c.pop:
		l.pay(pop, weight-int(c.weight))
		return
	case c.parts != nil && pop == several && weight == int(c.weight):
		return
	}
	l.uncharge(c)
	if pop != several {
		c.pop = pop
		l.pay(pop, weight)
		return
	}
	entries := c.edges.Entries()
	c.parts = &[]owned{}
	for rest := entries; len(rest) > 0; {
		pop := deltasync.PopOf(rest[0].Replica.Node)
		n := len(entriesIn(rest, pop))
		part := owned{pop, int(int64(weight) * int64(n) / int64(len(entries)))}
		*c.parts, rest = append(*c.parts, part), rest[n:]
		l.pay(pop, part.bytes)
	}
}

// uncharge gives everybody back what a counter took.
func (l *lane) uncharge(c *counter) {
	if c.parts == nil {
		l.pay(c.pop, -int(c.weight))
		return
	}
	for _, part := range *c.parts {
		l.pay(part.pop, -part.bytes)
	}
	c.parts = nil
}

// nobody is whose counters are that no edge has told of.
const (
	nobody  uint64 = 0
	several uint64 = math.MaxUint64
)

func (l *lane) pay(pop uint64, bytes int) {
	if pop == nobody || bytes == 0 {
		return
	}
	p := l.pops[pop]
	if p == nil {
		if l.pops == nil {
			l.pops = map[uint64]*popBytes{}
		}
		p = &popBytes{searches: searches{enough: little}}
		l.pops[pop] = p
	}
	if p.bytes += bytes; p.bytes == 0 {
		delete(l.pops, pop)
	}
}

// soleOf is the PoP of all edges that told of a key, of whoever named it where none has
// counts; several, or nobody.
func (c *counter) soleOf() uint64 {
	entries := c.edges.Entries()
	if len(entries) == 0 {
		if c.pop == nobody || c.regions.Len() > 0 {
			return nobody
		}
		return c.pop
	}
	first, last := deltasync.PopOf(entries[0].Replica.Node), deltasync.PopOf(entries[len(entries)-1].Replica.Node)
	if first != last {
		return several
	}
	return first
}

// overdrawn says that a PoP may not have so much more of the lane.
func (l *lane) overdrawn(pop uint64, more int) bool {
	p := l.pops[pop]
	if p == nil {
		return false
	}
	has := p.bytes + more
	return has > l.room.bytes/(2*len(l.pops)) && has > popBytesShare*(l.room.bytes-l.size()-more)
}

// makeOwnRoom forgets keys of a PoP's own while it may have no more of the lane, a few,
// and none that is kept. It says whether it found any, if it had to.
func (a *Aggregator) makeOwnRoom(l *lane, pop uint64, more int, keep *counter, why need, now int64) bool {
	for range mostOwn {
		if !l.overdrawn(pop, more) {
			return true
		}
		if !a.evictOwn(l, pop, keep, why, now) {
			return false
		}
	}
	return true
}

// evictOwn forgets the one of a PoP's own keys, of a stretch, that is worth least. One
// alone has any forgotten.
func (a *Aggregator) evictOwn(l *lane, pop uint64, keep *counter, why need, now int64) bool {
	p := l.pops[pop]
	switch {
	case p == nil:
		return false
	case len(l.pops) == 1 && keep == nil:
		return a.evict(l, why, now)
	}
	return a.evictBy(l, &p.searches, search{now: now, why: why, pop: pop, keep: keep})
}

// relieveOf forgets a key of the PoP that has most of the lane, if that is more than its
// part.
func (a *Aggregator) relieveOf(l *lane, now int64) bool {
	if len(l.pops) < 2 {
		return false
	}
	most, bytes := nobody, 0
	for pop, p := range l.pops {
		if p.bytes > bytes || p.bytes == bytes && pop < most { // the same every run
			most, bytes = pop, p.bytes
		}
	}
	return l.overdrawn(most, 0) && a.evictOwn(l, most, nil, forAny, now)
}

// hasRoom says whether a PoP may have counts in a counter that it does not have there
// yet, and makes some of its own keys make room for them.
func (a *Aggregator) hasRoom(l *lane, c *counter, replica crdt.Replica, cells []crdt.Cell, oldest crdt.Slice, now int64) bool {
	pop := deltasync.PopOf(replica.Node)
	if len(l.pops) < 2 || !l.overdrawn(pop, 0) {
		return true
	}
	has, news := c.edges.Of(replica), 0
	for _, cell := range cells {
		if cell.Slice >= oldest && (has == nil || has.Get(cell.Slice).Zero()) {
			news++
		}
	}
	if news == 0 || a.makeOwnRoom(l, pop, 0, c, forAny, now) || a.makeOwnRoom(l, pop, 0, c, forTheRest, now) {
		return true
	}
	a.stats.overdrawn.Add(1)
	return false
}
