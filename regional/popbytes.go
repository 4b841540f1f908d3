package regional

import (
	"math"
	"slices"
	"unsafe"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// What a lane may take is shared by the PoPs whose edges fill it. Lives, incarnations and
// keys are theirs to invent, and what is being written to the store can make no room: one
// that goes on telling all that it invented would keep everybody else's keys out. So a
// PoP may have some times what is left of a lane, and half of its even part whatever is
// left. With more than that its own keys make room for its next, and nobody else's; where
// none of them can as yet, and it has more than its even part, these are turned away.
//
// A key of which the edges of one PoP alone have counts is all that PoP's. Of others each
// has so much as it has entries, and who has half of them may have the key forgotten as
// long as little of its limit is used. What other regions tell, and who asks for how much,
// is nobody's; that of which little is used makes room for everybody.

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

// charge has those pay for a counter of some weight, until now c.paid, whose it is.
func (l *lane) charge(c *counter, weight int) {
	pop := c.soleOf()
	switch {
	case c.parts == nil && pop == c.pop:
		l.pay(pop, weight-int(c.paid))
		return
	case c.parts != nil && pop == several && weight == int(c.paid):
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
		l.pay(c.pop, -int(c.paid))
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

// payer is the PoP that alone pays for a counter; several, or nobody.
func (c *counter) payer() uint64 {
	if c.parts != nil {
		return several
	}
	return c.pop
}

// gives says that a counter may be forgotten to make room for a PoP's: it is its own, or
// it has half of it; or it is nobody's.
func (c *counter) gives(pop uint64) bool {
	if c.parts == nil {
		return c.pop == pop || c.pop == nobody
	}
	own, all := 0, 0
	for _, part := range *c.parts {
		if all += part.bytes; part.pop == pop {
			own = part.bytes
		}
	}
	return own > 0 && own >= all/2
}

// makeOwnRoom forgets keys of a PoP's own while it may have no more of the lane, a few,
// and none that is kept. It says whether it may have more then: it has no more than its
// part, or than its even part, or what it has is forgotten by others' needs as well.
func (a *Aggregator) makeOwnRoom(l *lane, pop uint64, more int, keep *counter, why need, now int64) bool {
	for range mostOwn {
		if !l.overdrawn(pop, more) {
			return true
		}
		if a.evictOwn(l, pop, keep, why, now) {
			continue
		}
		p := l.pops[pop]
		return !p.locked || p.bytes+more <= l.room.bytes/len(l.pops)
	}
	return true
}

// evictOwn forgets the one of a PoP's own keys, of a stretch, that is worth least.
func (a *Aggregator) evictOwn(l *lane, pop uint64, keep *counter, why need, now int64) bool {
	p := l.pops[pop]
	return p != nil && a.evictBy(l, &p.searches, search{now: now, why: why, pop: pop, keep: keep})
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
// yet, and makes some of its own keys make room for them. While the store is away, and
// nothing can be read again, what is held grows by a tenth before anything makes room.
func (a *Aggregator) hasRoom(l *lane, c *counter, replica crdt.Replica, cells []crdt.Cell, oldest crdt.Slice, now int64) bool {
	pop, more := deltasync.PopOf(replica.Node), c.edges.Len()/4*int(unsafe.Sizeof(crdt.Entry{})) // a list of many grows by a quarter
	if !l.overdrawn(pop, more) {
		return true
	}
	has := c.edges.Of(replica)
	if has != nil && (len(l.pops) < 2 || a.store.away.Load() > 0) {
		return true
	}
	grows := slices.ContainsFunc(cells, func(cell crdt.Cell) bool {
		return cell.Slice >= oldest && (has == nil || has.Get(cell.Slice).Zero())
	})
	if !grows || a.makeOwnRoom(l, pop, more, c, forAny, now) {
		return true
	}
	a.stats.overdrawn.Add(1)
	return false
}
