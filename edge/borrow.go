package edge

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// A rule with a parent borrows what it has no room for itself: what is counted above its
// own limit (and soft margin) stands at its parent, too, by whatever it came there, and
// leaves it with the other.

// lacks is how much of its cost a counter has no room for, of which there is so much by what
// it counts: a slot, or a gap, is lacking for all of the request. Of what it counts some was
// borrowed, and stands at the parent: where its window slides, that leaves it later than what
// was there before, and there is room for others meanwhile.
func (n *Node) lacks(now int64, c *counter, room uint64, counters []counter) uint64 {
	switch {
	case room >= c.need:
		return 0
	case c.rate.CountsRequests():
		return everything
	}
	for i := range counters {
		if l := &counters[i]; l.beside != nil && l.beside.Forgets() && l.besideKey == c.key {
			room = max(room, n.ownRoom(now, c, l))
		}
	}
	return min(c.cost, crdt.SatSub(c.need, room))
}

// ownRoom is the room of a counter that is above its limit, by what it counts and was not
// borrowed.
func (n *Node) ownRoom(now int64, c, lent *counter) uint64 {
	used := c.rate.Rounded(n.levelOf(now, c))
	if crdt.SatAdd(used, c.need) <= c.rate.Ceiling {
		return 0 // it is this edge's share that has none
	}
	if open := c.rate.Open; open != nil && c.rate.Algorithm == limit.SlidingLog && used >= open.Ceiling {
		return 0 // of what was reported the log may hold no more than that, and the other all that was borrowed
	}
	n.shard(lent.key).whole(lent.record)
	n.refold(lent, now)
	of := n.levelOf(now, lent).Whole
	if of > used { // of what was borrowed some is not known, as where others' counts are yet to come
		return 0
	}
	return n.shard(c.key).shareOf(c, used, of, now)
}

// shareOf is this edge's share of the room of a counter that has used so much, some of it
// borrowed. What nobody else has seen of that counts as spent of the share.
func (s *shard) shareOf(c *counter, used, lent uint64, now int64) uint64 {
	room, b := crdt.SatSub(c.rate.Ceiling, used-lent), c.record.block
	if !s.shares(c.rate) || b.share == nil || s.cluster.opens(c.rate, now) {
		return room
	}
	p := b.share.parts(s.cluster, c.rate, used, s.spentHere(c.record, now), now)
	b.share.aside.turn(c.rate, &p, b, used, now)
	g := c.rate.Grant(limit.Level{Whole: used - lent}, &p)
	if g.Half < c.need { // else half of it is left, as others need not hear of soon
		s.hurry(c.record)
	}
	if c.lump > 1 {
		g.Cost = g.Lump
	}
	if room = min(room, g.Cost); room < c.need && c.lump <= 1 && s.lucky(&g, c.cost, c.need) {
		return c.need
	}
	return room
}

// ownWait is how long it is until a counter has room by what was not borrowed: by slices. ok is
// false where nothing was.
func (n *Node) ownWait(now int64, c *counter, counters []counter) (wait time.Duration, ok bool) {
	i := slices.IndexFunc(counters, func(l counter) bool { return l.beside != nil && l.beside.Forgets() && l.besideKey == c.key })
	if i < 0 || c.open || c.cutOff || c.short || c.dropped || c.need > c.rate.Ceiling || c.record.block.punished(now) {
		return 0, false
	}
	l, s, b := &counters[i], n.shard(c.key), n.shard(c.key).whole(c.record)
	c.record.settle()
	lent := n.levelOf(now, l).Whole
	if lent == 0 {
		return 0, false
	}
	rate, least := *c.rate, time.Duration(0)
	if s.shares(c.rate) { // of the room that there is it may have no share
		least = s.shareWait(c.rate)
	}
	if rate.Bucket() {
		rate.Ceiling = crdt.SatAdd(rate.Ceiling, lent)
		return max(least, rate.Wait(&b.memory.exact, s.heard(b), s.sums(b), b.memory.carry, c.need, now)), true
	}
	own := slices.Clone(s.sums(b))
	for _, of := range s.sums(l.record.block) {
		if k := slices.IndexFunc(own, func(cell crdt.Cell) bool { return cell.Slice == of.Slice }); k >= 0 {
			own[k] = crdt.Cell{Slice: of.Slice, Charges: crdt.SatSub(own[k].Net(), of.Net())}
		}
	}
	if rate.Algorithm == limit.SlidingLog {
		rate.Algorithm, rate.Oldest = limit.SubWindows, limit.OldestFull
	}
	need := crdt.SatAdd(c.need, 1) // as both are rounded
	return max(least, rate.RetryAfter(own, crdt.Carry{}, need, now)), need <= rate.Ceiling
}

// drainLent takes off what buckets that forget their loans last have forgotten of them: they
// hold less than was lent.
func (n *Node) drainLent(now int64, counters []counter) {
	for i := range counters {
		l := &counters[i]
		if l.beside == nil || !l.beside.Bucket() || l.record.sparse() && l.record.fresh == 0 {
			continue
		}
		lent := n.levelOf(now, l).Whole
		if lent == 0 {
			continue
		}
		k := slices.IndexFunc(counters, func(c counter) bool { return !c.lends && c.key == l.besideKey })
		if k < 0 {
			continue
		}
		holds := crdt.SatSub(n.levelOf(now, &counters[k]).Whole, counters[k].rate.Drain.Floor)
		if lent > holds {
			n.giveBackCounted(now, l, ever(lent-holds), theirs)
		}
	}
}

// confineLent takes off what this edge was lent in slices that have less than that by now, as it was
// given back: it would leave the window later than what it stands for.
func (n *Node) confineLent(now int64, lent *counter) {
	s := n.shard(lent.key)
	r, beside := s.find(lent.key), s.find(lent.besideKey)
	if r == nil || beside == nil {
		return
	}
	s.whole(beside)
	beside.settle()
	counted := slices.Clone(s.sums(beside.block))
	s.whole(r)
	r.settle()
	for _, of := range slices.Clone(s.sums(r.block)) {
		if over := min(crdt.SatSub(of.Net(), netOf(counted, of.Slice)), r.block.own.Get(of.Slice).Net()); over > 0 {
			n.giveBack(s, r, &limit.Charge{Slice: of.Slice}, over, now, theirs)
		}
	}
}

// levelOf is what counts of a counter.
func (n *Node) levelOf(now int64, c *counter) limit.Level {
	s := n.shard(c.key)
	s.whole(c.record)
	c.record.settle()
	return s.measure(c.record, now)
}

// appendLent appends the counters of what a rule borrowed beside its own.
func (n *Node) appendLent(dst []counter, req *limit.Request, rule *limit.Rule, cost uint64) []counter {
	name, ok := n.hash(req, rule)
	if !ok {
		return dst
	}
	for i, rate := range rule.Elastic.Lent {
		if rate == nil {
			continue
		}
		key := name.hash.Key(rate.Generation)
		if slices.ContainsFunc(dst, func(c counter) bool { return c.key == key }) {
			continue // by another reading
		}
		dst = append(dst, counter{key: key, rule: rule, rate: rate, cost: cost, need: cost, bar: everything, lends: true, borrower: rule, beside: rule.Rates[i], besideKey: name.hash.Key(rule.Rates[i].Generation)})
	}
	return dst
}

// withLent leaves out the counters of what was borrowed of which there is no record, where the
// rule has nothing to borrow yet: it is asked at this edge alone, and far from its limits. What
// others borrowed is to be known before it matters, and of a bucket before that drains.
func (n *Node) withLent(counters []counter) []counter {
	return slices.DeleteFunc(counters, func(l counter) bool {
		return l.beside != nil && !l.beside.Bucket() && n.shard(l.key).find(l.key) == nil && !slices.ContainsFunc(counters, func(c counter) bool {
			if c.lends || c.rule != l.rule || c.rate.PerRequest {
				return false
			}
			used := c.need
			if r := n.shard(c.key).find(c.key); r != nil {
				if used = crdt.SatAdd(used, r.known()); !r.sparse() && r.merged > 0 {
					return true
				}
			}
			return used > c.rate.Ceiling/2
		})
	})
}

// lend has a counter lend a part. What it lends to one borrower it lends once, however many
// of its rates need it.
func (c *counter) lend(part uint64) {
	if c.lent {
		part = max(part, c.part)
	}
	c.lent, c.part = true, part
}

// borrowed is what a part of a request's cost is for the counter that lends it: a slot is
// lent whole.
func (c *counter) borrowed(part uint64) uint64 {
	if c.rate.CountsRequests() {
		return c.cost
	}
	return min(c.cost, part)
}

// lendsTo says that a counter is of the parent of another's rule, be it that this applies by
// itself, or lends to that one.
func (c *counter) lendsTo(other *counter) bool {
	parent := other.rule.Elastic.Parent
	return parent != nil && c.rule.Name == parent.Name && c.rule.Namespace == parent.Namespace && (!c.lends || c.borrower == other.rule)
}

// covering is what a part of a borrower's cost is for a counter of its parent. One that
// applies by itself is charged once, be the request dearer there or for the borrower.
func (c *counter) covering(part uint64, borrower *limit.Rule, counters []counter) uint64 {
	switch {
	case c.lends:
		return c.borrowed(part)
	case c.rate.CountsRequests():
		return c.cost
	}
	whole := uint64(0)
	for i := range counters {
		if b := &counters[i]; b.rule == borrower && !b.lends {
			whole = max(whole, b.cost)
		}
	}
	return max(c.cost, min(part, whole))
}

// raise has the parents that apply by themselves be charged with what was borrowed of them.
func raise(counters []counter) {
	for i := range counters {
		if c := &counters[i]; !c.lends && c.part > c.cost {
			c.need += c.part - c.cost
			c.cost = c.part
		}
	}
}

// costs has the counter be charged, or given back, a part of the request's cost.
func (c *counter) costs(part uint64) {
	c.need -= c.cost
	c.cost = c.borrowed(part)
	c.need = crdt.SatAdd(c.need, c.cost)
}

// forReports takes out the counters that are not charged with what is reported, and those
// that would lend to no other: a trial is charged to nobody else.
func forReports(counters []counter, not func(*limit.Rate) bool) []counter {
	counters = slices.DeleteFunc(counters, func(c counter) bool {
		return not(c.rate) || c.rule.CountsAfter() || c.lends && !c.borrower.Pays()
	})
	if !slices.ContainsFunc(counters, func(c counter) bool { return !c.lends }) {
		return nil
	}
	return counters
}

// borrows is what a rule has to borrow for a request that is charged whatever room there is.
func (n *Node) borrows(now int64, rule *limit.Rule, counters []counter) (part uint64) {
	for i := range counters {
		if c := &counters[i]; c.rule == rule && !c.lends && !c.rate.PerRequest {
			part = max(part, n.lacks(now, c, n.room(c, now), counters))
		}
	}
	return part
}

// lendsYet is what those that lend have left, be it this edge's share or not, for a counter of
// what was borrowed by a request that is charged whatever room there is. What is beyond that
// stands at the parent, and is the rule's own as well: were it lent, the rule had room again as
// soon as a bit of its own leaves the window, each time, though nobody has any.
func (n *Node) lendsYet(now int64, lent *counter, counters []counter) uint64 {
	most := uint64(everything)
	for i := range counters {
		if l := &counters[i]; l.lendsTo(lent) {
			spoken := crdt.SatAdd(l.withheld(), lentBy(l.record, lent.borrower, counters))
			most = min(most, crdt.SatSub(n.room(l, now), crdt.SatAdd(margin(l.rate), spoken)))
		}
	}
	return most
}

// withheld is what a counter keeps for higher classes, and does not lend to lower ones.
func (c *counter) withheld() uint64 {
	if c.cost == 0 {
		return c.rate.Withheld(0) // it is free there, whatever its class
	}
	return c.need - c.cost
}

// room is what is left to a counter, whatever this edge's share of that is, and be its key
// kept out by a penalty.
func (n *Node) room(c *counter, now int64) uint64 {
	left := c.record.left(c.rate)
	if s := n.shard(c.key); c.record.block.punished(now) {
		s.whole(c.record)
		c.record.settle()
		left = max(left, c.rate.Room(s.measure(c.record, now)))
	}
	return left
}

// owes is what a rule has borrowed, as far as its counters tell: by how much they are above
// its limits, a request of the same class asked.
func (n *Node) owes(now int64, rule *limit.Rule, counters []counter) (most uint64) {
	for i := range counters {
		c := &counters[i]
		if c.rule != rule || c.lends {
			continue
		}
		s := n.shard(c.key)
		r := s.find(c.key)
		if r == nil {
			continue
		}
		s.whole(r)
		r.settle()
		s.retire(r, now)
		used := crdt.SatAdd(c.rate.Rounded(s.measure(r, now)), c.need-c.cost)
		most = max(most, crdt.SatSub(used, c.rate.Ceiling))
	}
	return most
}
