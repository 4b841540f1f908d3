package edge

import (
	"math/bits"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// counter is one rate of one rule in one decision.
type counter struct {
	key    deltasync.Key
	rule   *limit.Rule
	rate   *limit.Rate
	cost   uint64
	record *record
}

// maxCounters bounds the rates in one decision; the compiler of rules does.
const maxCounters = limit.MaxCounters

// Check decides whether the request may pass, and charges it if it may: to all
// rates of all rules that apply, or to none. It waits for no I/O, and in steady
// state it allocates nothing.
func (n *Node) Check(now time.Time, req *limit.Request) (d limit.Decision) {
	rules := req.Rules()
	if len(rules) == 1 && len(rules[0].Rates) == 1 && !req.Peek && !req.Details && !req.Receipt {
		n.checkOne(now.UnixNano(), req, rules[0], &d) // filled in place: it is large
	} else {
		d = n.checkAll(now.UnixNano(), req, rules)
	}
	return d
}

// checkOne is checkAll for one counter: most requests meet one rule with one
// rate, and most of these find an allowance that will do.
func (n *Node) checkOne(now int64, req *limit.Request, rule *limit.Rule, d *limit.Decision) {
	material, ok := rule.AppendKey(req.Scratch(), req)
	req.KeepScratch(material)
	if !ok {
		d.Allowed = true
		return
	}
	rate := rule.Rates[0]
	c := counter{
		key:  deltasync.Keyer(rule.Sub).Hash(material).Key(rate.Generation),
		rule: rule, rate: rate, cost: rule.CostOf(req),
	}
	s := n.shard(c.key)
	s.mu.Lock()
	if r := s.find(c.key); r != nil && r.covers(&c, now) {
		c.record = r
		c.decision(now, false, d)
		n.charge(s, &c)
		s.mu.Unlock()
		return
	}
	defer s.mu.Unlock() // deferred only here: folding is long enough to hide a bug that panics
	counters := [1]counter{c}
	*d = n.decide(now, req, counters[:])
}

// denies says that the record denied the same cost and nothing has changed
// since: whoever hammers at a limit costs no fold a request.
func (r *record) denies(c *counter, now int64) bool {
	if r.flags&refused == 0 {
		return false
	}
	d := r.block.denied
	return d.cost == c.cost && c.cost > 0 && now < d.until && r.fits(c, now)
}

// checkAll is Check for any number of counters.
func (n *Node) checkAll(now int64, req *limit.Request, rules []*limit.Rule) limit.Decision {
	const few = 6
	if rates(rules) <= few { // clearing room for all that there may be takes its time
		var room [few]counter
		return n.checkThese(now, req, rules, n.counters(req, rules, room[:0]))
	}
	var room [maxCounters]counter
	return n.checkThese(now, req, rules, n.counters(req, rules, room[:0]))
}

// rates is how many rates the rules have.
func rates(rules []*limit.Rule) (total int) {
	for _, rule := range rules {
		total += len(rule.Rates)
	}
	return total
}

func (n *Node) checkThese(now int64, req *limit.Request, rules []*limit.Rule, counters []counter) limit.Decision {
	if req.Details {
		req.States = req.States[:0]
	}
	listed := denier(rules)
	if listed != nil && listed.Mode == limit.Enforce {
		return limit.Decision{Rule: listed, Zone: limit.ZoneHard}
	}
	d := limit.Decision{Allowed: true}
	if len(counters) > 0 {
		held := n.lock(counters)
		defer n.unlock(&held)
		if req.Peek || req.Details || req.Receipt || !n.pass(now, counters, &d) {
			d = n.decide(now, req, counters)
		}
	}
	if listed != nil && d.Allowed { // it is a trial
		d.Zone = limit.ZoneShadow
		if d.Rule == nil {
			d.Rule = listed
		}
	}
	return d
}

// denier is the rule that denies all it matches, an enforced one first; nil
// where no such rule applies.
func denier(rules []*limit.Rule) (found *limit.Rule) {
	for _, rule := range rules {
		if rule.Deny && (found == nil || found.Mode == limit.Shadow) {
			found = rule
		}
	}
	return found
}

// counters resolves the request to the counters that its rules need.
func (n *Node) counters(req *limit.Request, rules []*limit.Rule, dst []counter) []counter {
	for _, rule := range rules {
		if rule.Allow {
			continue
		}
		material, ok := rule.AppendKey(req.Scratch(), req)
		req.KeepScratch(material)
		if !ok {
			continue
		}
		hash := deltasync.Keyer(rule.Sub).Hash(material)
		cost := rule.CostOf(req)
		for _, rate := range rule.Rates {
			dst = append(dst, counter{key: hash.Key(rate.Generation), rule: rule, rate: rate, cost: cost})
		}
	}
	return dst
}

// covers says that the record's allowance is good at now and enough.
func (r *record) covers(c *counter, now int64) bool {
	return r.allowance >= c.cost && r.fits(c, now)
}

// fits says that the record was folded under the counter's rules, in the slice
// of now. A clock that was set back ends an allowance as one that goes on does.
func (r *record) fits(c *counter, now int64) bool {
	return now < r.until && now >= r.until-int64(c.rate.Hold) && r.epoch == c.rule.Epoch
}

// lockSet is the shards that a decision needs, a bit each.
type lockSet [shards / 64]uint64

// lock takes the locks of all shards that the counters stand in, in the order
// of the ledger, so that two decisions never wait for each other in a circle.
func (n *Node) lock(counters []counter) (held lockSet) {
	for i := range counters {
		k := uint64(counters[i].key) >> 56
		held[k/64] |= 1 << (k % 64)
	}
	for i, word := range held {
		for ; word != 0; word &= word - 1 {
			n.shards[i*64+bits.TrailingZeros64(word)].mu.Lock()
		}
	}
	return held
}

func (n *Node) unlock(held *lockSet) {
	for i, word := range held {
		for ; word != 0; word &= word - 1 {
			n.shards[i*64+bits.TrailingZeros64(word)].mu.Unlock()
		}
	}
}

// pass is decide for a request that every counter has an allowance for, as most
// do; it is false, and has changed nothing, where one has not.
func (n *Node) pass(now int64, counters []counter, d *limit.Decision) bool {
	best, share := 0, 2.0
	for i := range counters {
		c := &counters[i]
		c.record = n.shard(c.key).find(c.key)
		if c.record == nil || !c.record.covers(c, now) {
			return false
		}
		if left := c.share(false); left < share {
			best, share = i, left
		}
	}
	counters[best].decision(now, false, d)
	for i := range counters {
		n.charge(n.shard(counters[i].key), &counters[i])
	}
	return true
}

// decide asks every counter, charges all or none, and reports. All shards that
// the counters stand in are locked.
func (n *Node) decide(now int64, req *limit.Request, counters []counter) limit.Decision {
	n.gather(now, counters)
	denied, shadowed := false, false
	for i := range counters {
		c := &counters[i]
		r := c.record
		if r.covers(c, now) {
			continue
		}
		if !r.denies(c, now) {
			n.shard(c.key).fold(r, c.rule, c.rate, now)
		}
		if r.allowance >= c.cost {
			continue
		}
		if c.rule.Mode == limit.Shadow {
			shadowed = true
		} else {
			denied = true
		}
	}
	d := n.report(now, req, counters, denied)
	for i := range counters {
		if c := &counters[i]; c.rate.Queue && d.Allowed && c.rule.Mode == limit.Enforce {
			d.Delay = max(d.Delay, n.shard(c.key).delay(c.record.block, now))
		}
	}
	if denied || req.Peek {
		for i := range counters {
			c := &counters[i]
			n.want(n.shard(c.key), c.record, c.rate)
			if denied && c.rate.CountDenied && !req.Peek {
				n.charge(n.shard(c.key), c)
			}
		}
	} else {
		n.chargeAll(req, counters)
	}
	if shadowed && d.Allowed {
		d.Zone = limit.ZoneShadow
	}
	return d
}

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

// missing looks up every record, and says whether one is missing. Inserting
// moves records, so that all are looked up anew after it.
func (n *Node) missing(counters []counter) (any bool) {
	for i := range counters {
		c := &counters[i]
		c.record = n.shard(c.key).find(c.key)
		any = any || c.record == nil
	}
	return any
}

// chargeAll books the costs with all counters, and what may be given back.
func (n *Node) chargeAll(req *limit.Request, counters []counter) {
	if req.Receipt {
		req.Charges = req.Charges[:0]
	}
	for i := range counters {
		c := &counters[i]
		n.charge(n.shard(c.key), c)
		if req.Receipt && c.cost > 0 {
			req.Charges = append(req.Charges, limit.Charge{
				Rule: c.rule, Rate: c.rate, Counter: uint64(c.key), Slice: c.record.block.slice, Cost: c.cost,
			})
		}
	}
}

// charge books the cost with one counter.
func (n *Node) charge(s *shard, c *counter) {
	r := c.record
	r.allowance = crdt.SatSub(r.allowance, c.cost)
	r.fresh = crdt.SatAdd(r.fresh, c.cost)
	if r.flags&refused != 0 { // something smaller got in: the wait is longer now
		r.flags &^= refused
		r.block.denied = denial{}
	}
	if c.rate.Scope == limit.ScopeEdge || c.cost == 0 {
		return
	}
	if r.flags&charged == 0 {
		r.block.unsent = min(r.block.unsent, r.block.slice)
		s.mark(r, charged)
	}
	if r.flags&urgent == 0 && r.allowance < c.rate.Ceiling/2 {
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

// report says what was decided, before anything is charged.
func (n *Node) report(now int64, req *limit.Request, counters []counter, denied bool) limit.Decision {
	best := 0
	var wait time.Duration
	share := 2.0
	uncharged := denied || req.Peek
	for i := range counters {
		c := &counters[i]
		over := c.record.allowance < c.cost
		var retry time.Duration
		if over && (c.rule.Mode == limit.Enforce || req.Details) {
			retry = n.retryAfter(c, now)
		}
		if req.Details {
			req.States = append(req.States, limit.State{
				Rule: c.rule, Rate: c.rate, Remaining: remaining(c, uncharged), RetryAfter: retry, Denied: over,
			})
		}
		if denied {
			if over && c.rule.Mode == limit.Enforce && retry > wait {
				best, wait = i, retry
			}
		} else if left := c.share(uncharged); left < share {
			best, share = i, left
		}
	}
	var d limit.Decision
	counters[best].decision(now, uncharged, &d)
	if denied {
		d.Allowed, d.Zone, d.RetryAfter = false, limit.ZoneHard, wait
	}
	return d
}

// decision fills in that of a request which this counter admits, as the counter
// is before it is charged.
func (c *counter) decision(now int64, uncharged bool, d *limit.Decision) {
	r := c.record
	d.Allowed, d.Zone, d.Rule, d.Rate = true, limit.ZoneNormal, c.rule, c.rate
	d.Cost, d.Limit, d.Remaining = c.cost, c.rate.Limit, remaining(c, uncharged)
	d.Basis = limit.Basis{Local: uint64(r.local) + r.fresh, Merged: uint64(r.merged), Age: -1, Regions: int(r.regions)}
	if !uncharged {
		d.Basis.Local += c.cost
	}
	if r.heard != 0 {
		d.Basis.Age = time.Duration(max(0, now-r.heard))
	}
	if r.allowance >= c.cost && r.allowance-c.cost < c.rate.Ceiling-c.rate.Limit && c.cost > 0 {
		d.Zone = limit.ZoneSoft
	}
}

// share is the part of the limit that is left.
func (c *counter) share(uncharged bool) float64 {
	return float64(remaining(c, uncharged)) / float64(max(1, c.rate.Limit))
}

// remaining is what is left of the limit, its soft margin not counted, after
// the request was charged, or as it is where it is not.
func remaining(c *counter, uncharged bool) uint64 {
	left := crdt.SatSub(c.record.allowance, c.rate.Ceiling-c.rate.Limit)
	if uncharged {
		return left
	}
	return crdt.SatSub(left, c.cost)
}

// retryAfter is how long a denied request has to wait.
func (n *Node) retryAfter(c *counter, now int64) time.Duration {
	if b := c.record.block; !c.record.denies(c, now) {
		wait := n.shard(c.key).wait(b, c.cost, now)
		wait = max(wait, b.held.wait(c.cost, now))
		b.denied = denial{cost: c.cost, until: now + int64(wait)}
		c.record.flags |= refused
	}
	return time.Duration(c.record.block.denied.until - now)
}
