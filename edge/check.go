package edge

import (
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

// maxCounters bounds the rates in one decision. Rules beyond it, which no
// sane namespace has, are not asked.
const maxCounters = 32

// Check decides whether the request may pass, and charges it if it may: to all
// rates of all rules that apply, or to none. It waits for no I/O, and in steady
// state it allocates nothing.
func (n *Node) Check(now time.Time, req *limit.Request) limit.Decision {
	var room [maxCounters]counter
	counters := n.counters(req, room[:0])
	if req.Details {
		req.States = req.States[:0]
	}
	if len(counters) == 0 {
		return limit.Decision{Allowed: true}
	}
	t := now.UnixNano()
	if len(counters) == 1 {
		s := n.shard(counters[0].key)
		s.mu.Lock()
		defer s.mu.Unlock()
		return n.decide(t, req, counters)
	}
	var locked [maxCounters]*shard
	held := n.lock(counters, locked[:0])
	defer unlock(held)
	return n.decide(t, req, counters)
}

// counters resolves the request to the counters it needs.
func (n *Node) counters(req *limit.Request, dst []counter) []counter {
	for _, rule := range req.Rules() {
		if rule.Allow || len(dst)+len(rule.Rates) > maxCounters {
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

// lock takes the locks of all shards that the counters stand in, in the order
// of the ledger, so that two decisions never wait for each other in a circle.
func (n *Node) lock(counters []counter, held []*shard) []*shard {
	var need [shards / 64]uint64
	for i := range counters {
		k := uint64(counters[i].key) >> 56
		need[k/64] |= 1 << (k % 64)
	}
	for i := range n.shards {
		if need[i/64] == 0 {
			continue
		}
		if need[i/64]&(1<<(i%64)) != 0 {
			n.shards[i].mu.Lock()
			held = append(held, &n.shards[i])
		}
	}
	return held
}

func unlock(held []*shard) {
	for _, s := range held {
		s.mu.Unlock()
	}
}

// decide asks every counter, charges all or none, and reports. All shards that
// the counters stand in are locked.
func (n *Node) decide(now int64, req *limit.Request, counters []counter) limit.Decision {
	for i := range counters {
		c := &counters[i]
		s := n.shard(c.key)
		if s.find(c.key) == nil {
			n.want(s, n.admit(s, c.key, c.rate, now, counters), c.rate)
		}
	}
	denied, shadowed := false, false
	for i := range counters {
		c := &counters[i]
		s := n.shard(c.key)
		c.record = s.find(c.key) // only now: inserting moves records
		r := c.record
		if r.allowance >= c.cost && now < r.until && r.epoch == c.rule.Epoch {
			continue
		}
		s.fold(r, c.rule, c.rate, now)
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
	if denied || req.Peek {
		n.ask(counters)
	} else {
		n.charge(counters)
		d.Basis.Local += d.Cost
	}
	if shadowed && d.Allowed {
		d.Zone = limit.ZoneShadow
	}
	return d
}

// charge books the cost with every counter.
func (n *Node) charge(counters []counter) {
	for i := range counters {
		c := &counters[i]
		r := c.record
		r.allowance = crdt.SatSub(r.allowance, c.cost)
		r.fresh = crdt.SatAdd(r.fresh, c.cost)
		if c.rate.Scope == limit.ScopeEdge || c.cost == 0 {
			continue
		}
		if r.flags&charged == 0 {
			r.block.unsent = min(r.block.unsent, r.block.slice)
			n.shard(c.key).mark(r, charged)
		}
		if r.flags&urgent == 0 && r.allowance < c.rate.Ceiling/2 {
			r.flags |= urgent
			n.hurry.Store(true)
		}
	}
}

// ask wants others' counts of what was denied or only looked at.
func (n *Node) ask(counters []counter) {
	for i := range counters {
		c := &counters[i]
		n.want(n.shard(c.key), c.record, c.rate)
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
	best := -1
	var wait time.Duration
	share := 2.0
	for i := range counters {
		c := &counters[i]
		over := c.record.allowance < c.cost
		var retry time.Duration
		if over && (c.rule.Mode == limit.Enforce || req.Details) {
			retry = n.retryAfter(c, now)
		}
		if req.Details {
			req.States = append(req.States, limit.State{
				Rule: c.rule, Rate: c.rate, Remaining: remaining(c, denied || req.Peek),
				RetryAfter: retry, Denied: over,
			})
		}
		if denied {
			if over && c.rule.Mode == limit.Enforce && retry > wait {
				best, wait = i, retry
			}
			continue
		}
		if left := float64(remaining(c, req.Peek)) / float64(max(1, c.rate.Limit)); left < share {
			best, share = i, left
		}
	}
	c := &counters[best]
	r := c.record
	d := limit.Decision{
		Allowed: !denied, Rule: c.rule, Rate: c.rate, Cost: c.cost, Limit: c.rate.Limit,
		Remaining: remaining(c, denied || req.Peek), RetryAfter: wait, Zone: limit.ZoneNormal,
		Basis: limit.Basis{Local: uint64(r.local) + r.fresh, Merged: uint64(r.merged), Age: -1, Regions: int(r.regions)},
	}
	if r.heard != 0 {
		d.Basis.Age = time.Duration(max(0, now-r.heard))
	}
	switch {
	case denied:
		d.Zone = limit.ZoneHard
	case r.allowance >= c.cost && r.allowance-c.cost < c.rate.Ceiling-c.rate.Limit && c.cost > 0:
		d.Zone = limit.ZoneSoft
	}
	return d
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

func (n *Node) retryAfter(c *counter, now int64) time.Duration {
	s := n.shard(c.key)
	return c.rate.RetryAfter(s.sums(c.record.block), limit.Carry{}, c.cost, now)
}
