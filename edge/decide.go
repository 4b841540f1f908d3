package edge

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// decide asks every counter, charges all or none, and reports. All shards that
// the counters stand in are locked.
func (n *Node) decide(now int64, req *limit.Request, counters []counter) limit.Decision {
	n.gather(now, counters)
	defer n.leave(counters)
	n.drainLent(now, counters)
	denied, shadowed, tried := false, false, false
	for i := range counters {
		c := &counters[i]
		if c.lends {
			continue
		}
		if req.Peek && !req.Ahead || req.Lump > 0 { // it asks how things stand, to the instant
			c.record.until = 0
		}
		if c.record.covers(c, now) {
			c.heedClass()
			continue
		}
		n.judge(now, c, counters)
		if c.heedClass(); !c.over {
			continue
		}
		if c.rule.Mode == limit.Shadow {
			shadowed = shadowed || c.rule.Live == nil
			tried = true
			continue
		}
		denied = true
		c.offends = !req.Peek && c.rule.Punishes() && n.offends(now, c)
	}
	if denied {
		n.punishAll(now, counters)
	}
	if tried {
		spareTrials(counters)
	}
	// Who may ask again as soon as rights come is not charged now. Whoever is charged though
	// he is denied is told how things stand with that: after the wait there must be room.
	waits := denied && req.Awaits && await(counters) > 0
	if (denied || tried) && !req.Peek && !waits {
		n.chargeRefused(now, counters, denied)
	}
	if !req.Peek && !waits {
		n.tryCandidates(counters)
	}
	if !denied && !req.Peek {
		raise(counters)
	}
	d := n.report(now, req, counters, denied)
	for i := range counters {
		c := &counters[i]
		if !d.Allowed || c.lends && !c.lent { // nothing is borrowed of it
			continue
		}
		if c.rate.Queue && c.cost > 0 { // what costs nothing takes no place in it
			c.delay = max(c.delay, n.shard(c.key).delay(c.record.block, c.record.block.rate, now))
		}
		if c.rule.Mode == limit.Enforce {
			d.Delay = max(d.Delay, c.delay)
		}
	}
	switch {
	case req.Ahead: // others are asked when it comes
	case req.Peek:
		n.wantAll(counters)
	case denied:
		n.wantAll(counters)
		for i := range counters {
			n.refusedAsk(&counters[i], waits)
		}
	default:
		n.chargeAll(now, req, counters)
	}
	if shadowed && d.Allowed {
		d.Zone = limit.ZoneShadow
	}
	return d
}

// punishAll keeps out whoever has offended, by each rate of the rule that he did at once. Who is out
// already does not by what he asks for meanwhile, be it of another rate than that by which he is.
func (n *Node) punishAll(now int64, counters []counter) {
	for i := range counters {
		c := &counters[i]
		c.offends = c.offends && !slices.ContainsFunc(counters, func(o counter) bool {
			return o.rule == c.rule && !o.lends && o.record.block.punished(now)
		})
	}
	for i := range counters {
		if c := &counters[i]; c.offends && n.shard(c.key).punish(c, now) {
			n.hurry.Store(true)
		}
	}
}

// offends says that the counter denies for its own limit, which anybody's request of that
// cost is over: not for a reserve that others may spend, be it that this edge's share is
// used up beside that, nor for a limit that the request named for itself, and no operator
// for all of the key. Only for that
// there are penalties, as they keep all of the key out.
func (n *Node) offends(now int64, c *counter) bool {
	if c.dropped || c.cutOff || c.short || c.foreign && !c.operators || c.record.left(c.rate) >= c.cost {
		return false
	}
	if c.need == c.cost {
		return true
	}
	if n.refold(c, now); c.record.left(c.rate) >= c.cost { // a denial that was remembered folds nothing
		return false
	}
	_, soon := n.delayOf(now, c, c.cost)
	return !soon
}

// spareTrials marks the counters of shadow rules that would have denied the request, were
// they live: they would be charged nothing, and who is charged on and on with what he was
// not to get would stay over its limit for good.
func spareTrials(counters []counter) {
	for i := range counters {
		if c := &counters[i]; !c.over || c.rule.Mode != limit.Shadow {
			continue
		}
		for j := range counters {
			if other := &counters[j]; other.rule == counters[i].rule && !other.lends {
				other.spared = true
			}
		}
	}
}

// judge says whether a counter has room for the request, in its elastic margin
// if that is open.
func (n *Node) judge(now int64, c *counter, counters []counter) {
	r := c.record
	// Whoever is punished is told a wait, which brings an exact state to now: what
	// is charged next must not be booked at an instant before.
	if r.block.punished(now) || !r.denies(c, now) {
		n.refold(c, now)
	}
	if r.allowance < c.need && n.cluster.closes(c.rate, now) {
		c.over, c.cutOff = true, true
		return
	}
	if r.allowance < c.need && c.rate.Open != nil && !r.block.punished(now) && n.opens(now, c, counters) {
		c.rate, c.open = c.rate.Open, true
		n.refold(c, now)
	}
	switch s := n.shard(c.key); {
	case c.lump > 1 && s.shares(c.rate):
		s.lump(r, c.rate, c.cost, c.need, now)
		defer func() { r.until = 0 }() // it is for this one alone
	case r.allowance < c.need:
		s.stretch(r, c.rate, c.cost, c.need, now)
	}
	switch {
	case r.allowance < c.need && !n.delays(now, c):
		c.over = true
		c.short = c.rate.Consistency >= limit.Adaptive && r.left(c.rate) >= c.need
	case c.delay > 0:
	case c.rule.Drop == limit.DropProbabilistic && c.cost > 0:
		used := limit.Level{Whole: crdt.SatSub(c.rate.Ceiling, r.left(c.rate))}
		share := c.rate.DropShare(used)
		if share > 0 && c.rate.Open != nil && n.mayOpen(now, c, cmp.Or(n.lacks(now, c, c.record.allowance, counters), c.cost), counters) { // the ceiling is that one, though there is room yet below it
			share = c.rate.Open.DropShare(used)
		}
		if share > 0 && n.cfg.Rand() < share {
			c.over, c.dropped = true, true
		}
	}
}

// delays says that a request which has no room now has some soon enough to wait
// for it, as its rule may have it. It is charged at once, so that those who
// come later wait longer. Of a strict limit nobody does: room is no right.
func (n *Node) delays(now int64, c *counter) (soon bool) {
	c.delay, soon = n.delayOf(now, c, c.need)
	return soon
}

// delayOf is how long a request that needs so much room has to wait for it, where that is
// soon enough.
func (n *Node) delayOf(now int64, c *counter, need uint64) (wait time.Duration, soon bool) {
	if c.rule.MaxDelay == 0 || c.cost == 0 || escrows(c.rate) || need > c.rate.Ceiling-c.rate.Drain.Floor || c.record.block.punished(now) {
		return 0, false
	}
	if c.rate.Consistency == limit.Adaptive && c.record.left(c.rate) >= need {
		return 0, false // it is short of a share, and nobody knows when others leave more of that
	}
	b := n.shard(c.key).whole(c.record)
	wait = n.shard(c.key).wait(b, need, now) // of a bucket, as all are that delay: none of them is held
	if wait > c.rule.MaxDelay {
		return 0, false
	}
	return wait, true
}

// opened marks the epoch of an allowance that was made with the elastic margin
// open, or under a limit that a request named: it is not good for others.
const opened = 1 << 31

// lentBy is what a record lends in this decision to others than a borrower:
// what it lends to that one it lends once, however many of its rates need it.
func lentBy(r *record, borrower *limit.Rule, counters []counter) (cost uint64) {
	for i := range counters {
		if l := &counters[i]; l.lent && l.record == r && l.borrower != borrower {
			cost = crdt.SatAdd(cost, l.borrowed(l.part))
		}
	}
	return cost
}

// opens says whether there is room elsewhere for what a request has none left for
// here: the capacity that the rule names has some, or all limits of its parent
// do. Who lends is charged with what was borrowed.
func (n *Node) opens(now int64, c *counter, counters []counter) bool {
	part := uint64(0)
	if c.rule.Elastic.Parent != nil {
		if part = n.lacks(now, c, c.record.allowance, counters); part == 0 {
			return true
		}
	}
	if !n.mayOpen(now, c, part, counters) {
		return false
	}
	for i := range counters {
		switch l := &counters[i]; {
		case l.borrower == c.rule:
			if l.lend(part); l.beside != nil {
				n.refold(l, now)
			}
		case l.lendsTo(c) && c.rule.Pays():
			l.part = max(l.part, l.covering(part, c.rule, counters))
		}
	}
	return true
}

// mayOpen says whether there is room elsewhere for a part of a request's cost. Nothing is
// charged.
func (n *Node) mayOpen(now int64, c *counter, part uint64, counters []counter) bool {
	e := c.rule.Elastic
	if e.Parent == nil {
		used, ok := n.capacities.get(now, e.Signal)
		return ok && used.value < e.Below
	}
	found := false
	for i := range counters {
		l := &counters[i]
		if !l.lendsTo(c) {
			continue
		}
		found = true
		if l.foreign || !l.record.fits(l.rule, l.rate, now) {
			n.refold(l, now)
		}
		lent := lentBy(l.record, c.rule, counters)
		cost := l.covering(part, c.rule, counters)
		want := crdt.SatAdd(crdt.SatAdd(l.withheld(), cost), lent)
		if l.lendable() < want && fades(l.rate) && !l.record.momentary(l.rate, now) {
			n.refold(l, now)
			l.record.limitTo(l.rate, now)
		}
		if s := n.shard(l.key); l.lendable() < want && s.shares(l.rate) { // it lends of all of its share
			n.refold(l, now)
			s.stretch(l.record, l.rate, crdt.SatAdd(cost, lent), crdt.SatAdd(want, margin(l.rate)), now)
		}
		if l.lendable() < want {
			return false
		}
	}
	return found
}

// lendable is what a counter may lend: its limit's room, not its margin's.
func (c *counter) lendable() uint64 { return crdt.SatSub(c.record.allowance, margin(c.rate)) }

// gather finds the record of each counter, or makes it. All shards are locked.
func (n *Node) gather(now int64, counters []counter) {
	if known := n.formers.Load(); known != nil {
		for i := range counters {
			n.comesBack(known, &counters[i], now)
		}
	}
	for i := range counters {
		if s := n.shard(counters[i].key); s.outgrown() { // one makes room for what a few charges added
			n.evict(s, counters[i].key, now, counters)
		}
	}
	for n.missing(counters) {
		for i := range counters {
			c := &counters[i]
			if s := n.shard(c.key); c.record == nil && s.find(c.key) == nil {
				n.want(s, n.admit(s, c.key, c.rate, now, counters), c.rate)
			}
		}
	}
}

// leave leaves buckets that were asked, and not charged, with the rate that they
// were charged under, as rules have it now: it is that which drains them between two
// requests, as far as others are told of it.
func (n *Node) leave(counters []counter) {
	for i := range counters {
		c := &counters[i]
		if b := c.record.block; c.was != nil && b.rate != c.was && c.record.fresh == 0 {
			b.rate, c.record.until = n.inForce(c.was), 0
		}
	}
}

// missing looks up every record, and says whether one is missing. Inserting
// moves records, so that all are looked up anew after it.
func (n *Node) missing(counters []counter) (any bool) {
	for i := range counters {
		c := &counters[i]
		c.record = n.shard(c.key).find(c.key)
		any = any || c.record == nil
		if c.record != nil && c.rate.Bucket() {
			c.was = c.record.block.rate
		}
	}
	return any
}

// chargeAll books the costs with all counters, and what may be given back.
func (n *Node) chargeAll(now int64, req *limit.Request, counters []counter) {
	if req.Dates { // the counters are locked: none is forgotten before it is charged
		req.Spent = n.cfg.Boot()
	}
	for i := range counters {
		c := &counters[i]
		if c.rule.CountsAfter() || c.lends && (!c.lent || !c.borrower.Pays()) {
			continue
		}
		if c.lends {
			c.costs(c.part)
		}
		if c.spared {
			n.want(n.shard(c.key), c.record, c.rate)
			n.refusedAsk(c, false)
			continue
		}
		if n.book(c); c.lump > 0 {
			c.unasked()
		}
		switch {
		case c.rate.Queue && c.cost > 0:
			c.record.block.memory.exact.Queued(c.rate, c.cost, now+int64(c.delay), now)
		case c.delay > 0 && c.rate.Bucket():
			c.record.block.memory.exact.Waits(c.rate, c.need-c.cost, now+int64(c.delay), now)
		}
		if req.Receipt && c.cost > 0 {
			req.Charges = append(req.Charges, limit.Charge{
				Rule: c.rule, Rate: c.rate, Counter: uint64(c.key), Slice: c.record.block.slice,
				At: now, Boot: c.record.spentRights(c.rate), Turn: now + int64(c.delay), Withheld: c.need - c.cost, Cost: c.cost,
			})
			if last := &req.Charges[len(req.Charges)-1]; c.lends && swaps(c) {
				n.loans.note(c.record, last, borrowerOf(c, counters), now)
			}
		}
	}
}

// chargeRefused books the costs with the counters that are charged with what is denied.
func (n *Node) chargeRefused(now int64, counters []counter, denied bool) {
	for i := range counters {
		c := &counters[i]
		if !denied && !c.spared || !c.chargedDenied() {
			continue
		}
		if c.kept = c.need > c.cost && c.record.left(c.rate) < c.need; c.kept {
			continue
		}
		n.book(c)
		if c.over { // a wait will be asked for
			n.shard(c.key).whole(c.record)
			c.record.settle()
			continue
		}
		again := *c
		n.judge(now, &again, counters) // another such request
		c.rate, c.open, c.full = again.rate, again.open, again.over && !again.dropped
	}
}

// chargedDenied says that the counter is charged with a request that was
// denied: but for what is kept for higher classes.
func (c *counter) chargedDenied() bool {
	return !c.lends && !c.kept && (c.rate.CountDenied || c.rule.Charge == limit.ChargeEach && !c.rule.CountsAfter())
}

// book charges one counter with its cost.
func (n *Node) book(c *counter) { n.charge(n.shard(c.key), c.record, c.rate, c.cost) }

// charge books a cost with a record that was folded in the slice of now.
func (n *Node) charge(s *shard, r *record, rate *limit.Rate, cost uint64) {
	r.allowance = crdt.SatSub(r.allowance, cost)
	before := r.fresh
	r.fresh = crdt.SatAdd(r.fresh, cost)
	if r.flags&refused != 0 { // something smaller got in: the wait is longer now
		r.forgive()
	}
	if rate.Scope == limit.ScopeEdge || cost == 0 {
		return
	}
	if r.flags&charged == 0 {
		if !r.sparse() {
			r.block.unsent = min(r.block.unsent, r.block.slice)
		}
		switch {
		case r.flags&dirty != 0: // it stands in a list
		case r.calm(rate):
			s.enlist(r, cold)
		default:
			s.enlist(r, hot)
		}
		r.flags |= charged
	} else if patient(rate, before) && !patient(rate, r.fresh) {
		s.enlist(r, hot)
	}
	if half := rate.Ceiling / 2; r.allowance < half && !s.shares(rate) && !escrows(rate) && (r.flags&urgent == 0 || crdt.SatAdd(r.allowance, cost) >= half) {
		s.enlist(r, pressing)
		r.flags |= urgent
		n.hurry.Store(true)
	}
}

// want asks for others' counts of one record, soon.
func (n *Node) want(s *shard, r *record, rate *limit.Rate) {
	if rate.Scope != limit.ScopeEdge && r.flags&touch == 0 {
		s.mark(r, touch|urgent)
		n.hurry.Store(true)
	}
}

func (n *Node) wantAll(counters []counter) {
	for i := range counters {
		n.want(n.shard(counters[i].key), counters[i].record, counters[i].rate)
	}
}
