package edge

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// report says what was decided, before what is admitted is charged.
func (n *Node) report(now int64, req *limit.Request, counters []counter, denied bool) limit.Decision {
	best := 0
	var wait, filled, least time.Duration
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
			if own, ok := n.ownWait(now, c, counters); ok {
				retry = min(retry, own)
			}
		}
		if c.rule.Mode == limit.Enforce && c.rate.Lease == 0 {
			least = max(least, retry)
		}
		if req.Details {
			req.States = append(req.States, limit.State{
				Rule: c.rule, Rate: c.rate, Counter: uint64(c.key), Remaining: remaining(c, uncharged), RetryAfter: retry, Denied: c.over, Why: c.why(now),
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
	if counters[best].rule.Live == nil { // else no rule that is in force counts it
		counters[best].decision(now, !charges || counters[best].spared, &d)
	} else {
		d.Allowed = true
	}
	d.Near = nearAny // the tightest need not be the one that a rule calls near
	for i := range counters {
		if c := &counters[i]; !c.lends {
			c.mark(&d)
		}
	}
	if denied {
		d.Allowed, d.Zone, d.RetryAfter, d.Least = false, limit.ZoneHard, max(wait, filled), least
		if req.Lump > 0 {
			d.Remaining = roomForLump(counters)
		}
		d.Basis.Short, d.Basis.CutOff = counters[best].short, counters[best].cutOff
		d.Basis.Penalty = counters[best].record.block.punished(now)
		if d.Basis.Short {
			d.Basis.Await, req.Awaited = await(counters), uint64(counters[best].key)
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
// enforced, or of the rule that is told: the tightest need not be the one.
func (c *counter) mark(d *limit.Decision) {
	if (c.rule.Mode == limit.Enforce || c.rule == d.Rule) && c.marks() {
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
	case c.rule.Live != nil:
		return 2*loosest - 0.1
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
	if c.cutOff || c.short && escrows(c.rate) { // there is room, and no right to it
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
		return max(s.shareWait(c.rate), b.rightsWait(c.need))
	case c.dropped: // the next one may be luckier; up to the limit all are
		return s.wait(b, max(c.need, margin(c.rate)), now)
	case b.punished(now): // whoever came sooner than there is room would be punished anew
		return max(s.wait(b, c.need, now), b.held.wait(c.rate, c.need, now))
	case !c.record.denies(c, now):
		wait := max(s.wait(b, c.need, now), b.held.wait(c.rate, c.need, now))
		b.denied = denial{cost: c.need, until: now + int64(wait)}
		c.record.flags |= refused
	}
	return max(time.Duration(b.denied.until-now), b.rightsWait(c.need))
}
