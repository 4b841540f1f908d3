package edge

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// decide asks every counter, charges all or none, and reports. All shards that
// the counters stand in are locked.
func (n *Node) decide(now int64, req *limit.Request, counters []counter) limit.Decision {
	n.gather(now, counters)
	defer leave(counters)
	denied, shadowed := false, false
	for i := range counters {
		c := &counters[i]
		if c.lends {
			continue
		}
		if req.Peek { // it asks how things stand, to the instant
			c.record.until = 0
		}
		if c.record.covers(c, now) {
			continue
		}
		if n.judge(now, c, counters); !c.over {
			continue
		}
		if c.rule.Mode == limit.Shadow {
			shadowed = true
			continue
		}
		denied = true
		if !req.Peek && c.rule.Punishes() && n.offends(now, c) {
			if n.shard(c.key).punish(c, now) {
				n.hurry.Store(true)
			}
		}
	}
	if shadowed {
		spareTrials(counters)
	}
	// Who may ask again as soon as rights come is not charged now. Whoever is charged though
	// he is denied is told how things stand with that: after the wait there must be room.
	waits := denied && req.Awaits && await(counters) > 0
	if (denied || shadowed) && !req.Peek && !waits {
		n.chargeRefused(now, counters, denied)
	}
	d := n.report(now, req, counters, denied)
	for i := range counters {
		c := &counters[i]
		if !d.Allowed || c.rule.Mode != limit.Enforce {
			continue
		}
		if d.Delay = max(d.Delay, c.delay); c.rate.Queue {
			d.Delay = max(d.Delay, n.shard(c.key).delay(c.record.block, now))
		}
	}
	switch {
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

// offends says that the counter denies for its own limit, which anybody's request of that
// cost is over: not for a reserve that others may spend, be it that this edge's share is
// used up beside that, nor for a limit that the request named for itself. Only for that there are penalties, as they keep all of the key out.
func (n *Node) offends(now int64, c *counter) bool {
	if c.dropped || c.cutOff || c.short || c.foreign || c.record.left(c.rate) >= c.cost {
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
	if r.allowance < c.need {
		n.shard(c.key).stretch(r, c.rate, c.cost, c.need, now)
	}
	switch {
	case r.allowance < c.need && !n.delays(now, c):
		c.over = true
		c.short = c.rate.Consistency >= limit.Adaptive && r.left(c.rate) >= c.need
	case c.delay > 0:
	case c.rule.Drop == limit.DropProbabilistic && c.cost > 0:
		used := limit.Level{Whole: crdt.SatSub(c.rate.Ceiling, r.left(c.rate))}
		if share := c.rate.DropShare(used); share > 0 && n.cfg.Rand() < share {
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
			cost = crdt.SatAdd(cost, l.cost)
		}
	}
	return cost
}

// opens says whether there is room elsewhere for a request that has none left
// here: the capacity that the rule names has some, or all limits of its parent
// do. Who lends is charged with what was borrowed.
func (n *Node) opens(now int64, c *counter, counters []counter) bool {
	e := c.rule.Elastic
	if e.Parent == nil {
		used, ok := n.capacities.get(now, e.Signal)
		return ok && used.value < e.Below
	}
	found := false
	for i := range counters {
		l := &counters[i]
		if l.rule.Name != e.Parent.Name || l.rule.Namespace != e.Parent.Namespace || l.borrower != nil && l.borrower != c.rule {
			continue
		}
		found = true
		if l.foreign || !l.record.fits(l.rule, l.rate, now) {
			n.refold(l, now)
		}
		want := crdt.SatAdd(l.cost, lentBy(l.record, c.rule, counters))
		if l.lendable() < want && fades(l.rate) && !l.record.momentary(l.rate, now) {
			n.refold(l, now)
			l.record.limitTo(l.rate, now)
		}
		if s := n.shard(l.key); l.lendable() < want && s.shares(l.rate) { // it lends of all of its share
			n.refold(l, now)
			s.stretch(l.record, l.rate, want, crdt.SatAdd(want, margin(l.rate)), now)
		}
		if l.lendable() < want {
			return false
		}
	}
	for i := range counters {
		if l := &counters[i]; found && l.borrower == c.rule {
			l.lent = true
		}
	}
	return found
}

// lendable is what a counter may lend: its limit's room, not its margin's.
func (c *counter) lendable() uint64 { return crdt.SatSub(c.record.allowance, margin(c.rate)) }

// gather finds the record of each counter, or makes it. All shards are locked.
func (n *Node) gather(now int64, counters []counter) {
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
// were charged under: it is that which drains them between two requests, as far
// as others are told of it.
func leave(counters []counter) {
	for i := range counters {
		c := &counters[i]
		if b := c.record.block; c.was != nil && b.rate != c.was && c.record.fresh == 0 {
			b.rate, c.record.until = c.was, 0
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
	for i := range counters {
		c := &counters[i]
		if c.rule.CountsAfter() || c.lends && (!c.lent || !c.borrower.Pays()) {
			continue
		}
		if c.spared {
			n.want(n.shard(c.key), c.record, c.rate)
			n.refusedAsk(c, false)
			continue
		}
		n.book(c)
		if req.Receipt && c.cost > 0 {
			req.Charges = append(req.Charges, limit.Charge{
				Rule: c.rule, Rate: c.rate, Counter: uint64(c.key), Slice: c.record.block.slice, At: now, Cost: c.cost,
			})
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
// denied.
func (c *counter) chargedDenied() bool {
	return !c.lends && (c.rate.CountDenied || c.rule.Charge == limit.ChargeEach && !c.rule.CountsAfter())
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

// report says what was decided, before anything is charged.
func (n *Node) report(now int64, req *limit.Request, counters []counter, denied bool) limit.Decision {
	best := 0
	var wait, filled time.Duration
	share := 2 * loosest
	charges, nearAny := !denied && !req.Peek, false
	for i := range counters {
		c := &counters[i]
		if c.lends {
			continue
		}
		uncharged := !charges || c.spared
		nearAny = nearAny || c.near(uncharged)
		var retry time.Duration
		if (c.over || c.full) && (c.rule.Mode == limit.Enforce || req.Details) {
			retry = n.retryAfter(c, now)
		}
		if req.Details {
			req.States = append(req.States, limit.State{
				Rule: c.rule, Rate: c.rate, Remaining: remaining(c, uncharged), RetryAfter: retry, Denied: c.over, Why: c.why(now),
			})
		}
		if denied {
			if c.over && c.rule.Mode == limit.Enforce && retry > wait {
				best, wait = i, retry
			}
			if c.full && c.rule.Mode == limit.Enforce {
				filled = max(filled, retry)
			}
		} else if left := c.share(uncharged); left < share {
			best, share = i, left
		}
	}
	var d limit.Decision
	counters[best].decision(now, !charges || counters[best].spared, &d)
	d.Near = nearAny // the tightest need not be the one that a rule calls near
	for i := range counters {
		if c := &counters[i]; !c.lends {
			c.mark(&d)
		}
	}
	if denied {
		d.Allowed, d.Zone, d.RetryAfter = false, limit.ZoneHard, max(wait, filled)
		d.Basis.Short, d.Basis.CutOff = counters[best].short, counters[best].cutOff
		if d.Basis.Short {
			d.Basis.Await = await(counters)
		}
	}
	return d
}

// decision fills in that of a request which this counter admits, as the counter
// is before it is charged.
func (c *counter) decision(now int64, uncharged bool, d *limit.Decision) {
	cost := c.cost
	if uncharged {
		cost = 0
	}
	c.record.decision(now, c.rule, c.rate, cost, d)
	d.Cost = c.cost
	d.Remaining = remaining(c, uncharged)
	if c.marks() {
		d.Zone = c.zone()
	}
}

// why the counter denies the request.
func (c *counter) why(now int64) limit.Why {
	switch {
	case !c.over:
		return limit.WhyNot
	case c.cutOff:
		return limit.WhyCutOff
	case c.dropped:
		return limit.WhyChance
	case c.record.block.punished(now) && c.rule.Punishes():
		return limit.WhyPenalty
	case c.short:
		return limit.WhyShare
	case c.rate.PerRequest:
		return limit.WhyGap
	}
	return limit.WhyLimit
}

// await is how long a denied request may wait for rights: all counters that deny it may
// soon have some. 0: it is in vain.
func await(counters []counter) (least time.Duration) {
	for i := range counters {
		c := &counters[i]
		switch {
		case !c.over || c.lends || c.rule.Mode != limit.Enforce:
			continue
		case !escrows(c.rate) || !asks(c.rate) || !c.short:
			return 0
		case !c.record.block.share.rights.expects(c.rate, c.need):
			return 0
		case least == 0 || c.rate.StrictWait < least:
			least = c.rate.StrictWait
		}
	}
	return least
}

// marks says that the counter admits the request in a margin.
func (c *counter) marks() bool {
	return c.cost > 0 && c.record.allowance >= c.cost && c.record.left(c.rate)-c.cost < margin(c.rate)
}

// zone is that of a counter that marks.
func (c *counter) zone() limit.Zone {
	if c.open {
		return limit.ZoneElastic
	}
	return limit.ZoneSoft
}

// mark marks an admitted request that is in a margin of any rate that is
// enforced: the tightest need not be the one.
func (c *counter) mark(d *limit.Decision) {
	if c.rule.Mode == limit.Enforce && c.marks() {
		d.Zone = max(d.Zone, c.zone()) // elastic is beyond soft, and both are beyond normal
	}
}

// decision fills in that of a request which is charged a cost that there is room
// for, as the record is before it.
func (r *record) decision(now int64, rule *limit.Rule, rate *limit.Rate, cost uint64, d *limit.Decision) {
	left, over := crdt.SatSub(r.left(rate), cost), margin(rate)
	d.Allowed, d.Zone, d.Rule, d.Rate = true, limit.ZoneNormal, rule, rate
	d.Cost, d.Limit, d.Remaining = cost, rate.Limit, crdt.SatSub(left, over)
	if left < over && cost > 0 {
		d.Zone = limit.ZoneSoft
	}
	d.Near = near(rate, left)
	local, merged := r.counted(rate)
	d.Basis = limit.Basis{Local: crdt.SatAdd(local, crdt.SatAdd(r.fresh, cost)), Merged: merged, Age: -1, Regions: int(r.regions & mostRegions)}
	if r.heard != 0 {
		d.Basis.Age = time.Duration(max(0, now-r.heard))
	}
}

// counted is what was counted here, and by others, at the last fold. A record
// has room for 32 bits of each; of what is more, the allowance tells one.
func (r *record) counted(rate *limit.Rate) (local, merged uint64) {
	if r.sparse() {
		return 0, 0
	}
	const most = 1<<32 - 1
	local, merged = uint64(r.local), uint64(r.merged)
	used := crdt.SatSub(rate.Ceiling, crdt.SatAdd(r.allowance, r.fresh))
	switch {
	case local == most:
		local = max(local, crdt.SatSub(used, merged))
	case merged == most:
		merged = max(merged, crdt.SatSub(used, local))
	}
	return local, merged
}

// near says that a rate with so much of its ceiling left is near its limit.
func near(rate *limit.Rate, left uint64) bool {
	return rate.Near > 0 && crdt.SatSub(rate.Ceiling, left) >= rate.Near
}

// near is that of the counter as the request leaves it.
func (c *counter) near(uncharged bool) bool {
	left := c.record.left(c.rate)
	if !uncharged {
		left = crdt.SatSub(left, c.cost)
	}
	return near(c.rate, left)
}

// margin is how far above its limit a rate admits.
func margin(rate *limit.Rate) uint64 { return crdt.SatSub(rate.Ceiling, rate.Limit) }

// share is the part of the limit that is left, by which the tightest is told. A gap
// between requests is not what is told as long as there is a limit: none is left of it
// after any request. Nor is a trial, as long as there is a limit in force; but it is where
// it would have denied, as the decision says that somebody would have.
func (c *counter) share(uncharged bool) float64 {
	share := 1.5 // more than all
	if !c.rate.PerRequest {
		share = float64(remaining(c, uncharged)) / float64(max(1, c.rate.Limit))
	}
	switch {
	case c.rule.Mode != limit.Shadow:
		return share
	case c.over:
		return share - loosest
	}
	return share + loosest
}

// loosest is more than any share of a limit that is in force.
const loosest = 2.0

// remaining is what is left of the limit, no margin counted, after the request
// was charged, or as it is where it is not.
func remaining(c *counter, uncharged bool) uint64 {
	if c.cutOff {
		return 0
	}
	left := crdt.SatSub(c.record.left(c.rate), margin(c.rate))
	if uncharged || c.rule.CountsAfter() {
		return left
	}
	return crdt.SatSub(left, c.cost)
}

// retryAfter is how long a denied request has to wait.
func (n *Node) retryAfter(c *counter, now int64) time.Duration {
	s := n.shard(c.key)
	b := s.whole(c.record)
	switch {
	case c.cutOff:
		return contactWait
	case c.need > c.rate.Ceiling: // it never fits: who asks again as soon as he is told to shall not ask at once
		return max(s.wait(b, c.need, now), c.rate.Window)
	case c.short: // it has room
		return s.shareWait(c.rate)
	case c.dropped: // the next one may be luckier; up to the limit all are
		return s.wait(b, max(c.need, margin(c.rate)), now)
	case b.punished(now): // whoever came sooner than there is room would be punished anew
		return max(s.wait(b, c.need, now), b.held.wait(c.rate, c.need, now))
	case !c.record.denies(c, now):
		wait := max(s.wait(b, c.need, now), b.held.wait(c.rate, c.need, now))
		b.denied = denial{cost: c.need, until: now + int64(wait)}
		c.record.flags |= refused
	}
	return time.Duration(b.denied.until - now)
}
