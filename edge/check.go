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
	rate   *limit.Rate // or its Open, while that is open
	cost   uint64
	need   uint64 // room that there must be: the cost, and what is reserved for others
	bar    uint64 // an allowance of so much lets the request pass without a second look
	record *record
	was    *limit.Rate // of a bucket: the rate that it was charged under

	over    bool          // it has no room for the request
	short   bool          // its limit has, and this edge's share of it has not
	offends bool          // it denies for its limit, which its rule punishes
	full    bool          // it was charged though the request was denied, and has no room for another
	delay   time.Duration // it has room that much later, which will do
	dropped bool          // by chance: it has room
	cutOff  bool          // others cannot be heard of, and the rate is closed then
	open    bool          // it admits in its elastic margin
	foreign bool          // the request has its rate decide by another limit
	lump    uint64        // of how many requests that are to come its cost is; 0: of itself
	kept    bool          // what is left is kept for higher classes: a request that is denied is not charged to it
	spared  bool          // its rule is a shadow and would have denied: as if it was live, it is charged nothing
	tried   bool          // of a candidate: it was charged with what is denied

	// A counter that lends is not of a rule that applies, but of the parent of
	// one that does, the borrower.
	lends, lent bool
	part        uint64 // of the cost: what is borrowed; of a parent that applies itself what it is charged at the least
	borrower    *limit.Rule
	// beside: of one that lends nothing itself, and counts what the others of its borrower do,
	// the rate that it stands beside, and the key of that rate's counter.
	beside    *limit.Rate
	besideKey deltasync.Key

	except    *excepted // of the key, where there is something for it and no other; nil: nothing
	operators bool      // the limit is one of these
}

// count makes c the counter of a rate for a request that costs cost.
func (c *counter) count(now int64, key named, rule *limit.Rule, rate *limit.Rate, req *limit.Request, cost uint64) {
	c.key = key.hash.Key(rate.Generation)
	if req.Overrides() { // first: what is reserved is a part of the limit that decides
		other := req.RateFor(rate)
		rate, c.foreign = other, other != rate
	}
	if c.except = key.except; c.except.limits() {
		other := c.except.rateFor(rate, now)
		c.operators = other != rate
		rate, c.foreign = other, c.foreign || c.operators
	}
	cost = rate.CostOf(cost)
	c.rule, c.rate = rule, rate
	c.cost, c.need, c.bar = cost, cost, cost
	if rate.Withheld(0) > 0 && cost > 0 { // from the least class most
		c.need = crdt.SatAdd(cost, rate.Withheld(rule.ClassOf(req)))
		c.bar = c.need
	}
	if rule.Drop == limit.DropProbabilistic {
		c.bar = crdt.SatAdd(c.bar, margin(rate))
	}
	if c.foreign {
		c.bar = everything
	}
	if req.Lump > 0 {
		c.lump, c.bar = req.Lump, everything
		if rule.CountsAfter() {
			c.lump = 1
		}
	}
}

// everything is more than any allowance: whoever wants so much is looked at
// twice.
const everything = 1<<64 - 1

// maxCounters bounds the rates in one decision; the compiler of rules does. Of a path that
// can be read in several ways there may be more.
const maxCounters = limit.MaxCounters

// Check decides whether the request may pass, and charges it if it may: to all
// rates of all rules that apply, or to none. It waits for no I/O, and in steady
// state it allocates nothing.
func (n *Node) Check(now time.Time, req *limit.Request) (d limit.Decision) {
	t := n.clock.Present(now)
	req.At(t)
	rules := req.Rules()
	if short(req, rules) {
		n.checkShort(t, req, rules[0], &d) // filled in place: it is large
	} else {
		d = n.checkAll(t, req, rules)
	}
	return d
}

// few is how many rates a rule may have whose requests are short.
const few = 4

// short says that the request meets one rule with a few rates, and wants
// nothing but a decision: as most do.
func short(req *limit.Request, rules []*limit.Rule) bool {
	if len(rules) != 1 || req.Ambiguous() || req.Peek || req.Details || req.Receipt || req.Bounds || req.Lump > 0 {
		return false
	}
	rates := len(rules[0].Rates)
	return rates > 0 && rates <= few && rules[0].Elastic == nil && rules[0].Candidate == nil && !rules[0].CountsAfter()
}

// checkShort is checkAll for a request that is short.
func (n *Node) checkShort(now int64, req *limit.Request, rule *limit.Rule, d *limit.Decision) {
	key, ok := n.hash(req, rule)
	if !ok {
		d.Allowed = true
		return
	}
	n.checkHash(now, req, rule, key, d)
}

// named is what a request's counters are called under a rule.
type named struct {
	hash   deltasync.Hash
	except *excepted // nil: nothing is otherwise for this key
}

// hash is that of the request's counters under a rule. Their place is fetched at once:
// after the lock, which waits for all that was written, it would be late. ok is false
// where a part of the key is absent.
func (n *Node) hash(req *limit.Request, rule *limit.Rule) (key named, ok bool) {
	if key.hash, ok = written(req, rule); !ok {
		return key, false
	}
	if x := n.exceptions.Load(); x != nil {
		key = x.find(req, rule, key.hash)
	}
	n.fetch(key.hash, len(rule.Rates))
	return key, true
}

// written is the hash of the request's key as it is written.
func written(req *limit.Request, rule *limit.Rule) (hash deltasync.Hash, ok bool) {
	if rule.KeyIsText() {
		text := rule.Text(req)
		if text == "" {
			return 0, false
		}
		return deltasync.Keyer(rule.Sub).HashText(limit.TextMark, text), true
	}
	material, ok := rule.AppendKey(req.Scratch(), req)
	req.KeepScratch(material)
	if !ok {
		return 0, false
	}
	return deltasync.Keyer(rule.Sub).Hash(material), true
}

// checkHash is checkShort for counters that are known: they share a shard. Most
// requests find allowances that will do.
func (n *Node) checkHash(now int64, req *limit.Request, rule *limit.Rule, key named, d *limit.Decision) {
	cost := rule.CostOf(req)
	s := n.shardOf(key.hash)
	s.mu.Lock()
	defer s.mu.Unlock() // also if a bug of ours panics: surfaces recover, and the shard must not stay locked
	now = s.steady(now)
	if !rule.Plain() || req.Overrides() || key.except.limits() || !n.passShort(s, now, rule, key.hash, cost, d) {
		n.decideShort(now, req, rule, key, cost, d)
	} else if req.Dates {
		req.Spent = n.cfg.Boot()
	}
}

// passShort is pass for a request that is short.
func (n *Node) passShort(s *shard, now int64, rule *limit.Rule, hash deltasync.Hash, cost uint64, d *limit.Decision) bool {
	rates := rule.Rates
	if len(rates) == 1 {
		rate := rates[0]
		r, cost := s.find(hash.Key(rate.Generation)), rate.CostOf(cost)
		if r == nil {
			return false
		}
		if !r.admits(rule, rate, cost, now) {
			if !s.renews(r, rule, rate, cost, now) {
				return false
			}
			r = s.bringHome(r)
		}
		r.decision(now, rule, rate, cost, d)
		n.charge(s, r, rate, cost)
		return true
	}
	return n.passRates(s, now, rule, hash, cost, d)
}

// passRates is passShort for several rates.
func (n *Node) passRates(s *shard, now int64, rule *limit.Rule, hash deltasync.Hash, cost uint64, d *limit.Decision) bool {
	rates := rule.Rates
	var room [few]*record
	records := room[:len(rates)]
	renewed := false
	for i, rate := range rates {
		r, cost := s.find(hash.Key(rate.Generation)), rate.CostOf(cost)
		if r == nil {
			return false
		}
		if !r.admits(rule, rate, cost, now) {
			if !s.renews(r, rule, rate, cost, now) {
				return false
			}
			renewed = true
		}
		records[i] = r
	}
	if renewed {
		s.bringAllHome(records)
	}
	tightest := tightestOf(rates, records, cost)
	rate := rates[tightest]
	records[tightest].decision(now, rule, rate, rate.CostOf(cost), d)
	for i, rate := range rates {
		r, cost := records[i], rate.CostOf(cost)
		left := crdt.SatSub(r.left(rate), cost)
		if left < margin(rate) && cost > 0 {
			d.Zone = limit.ZoneSoft
		}
		d.Near = d.Near || near(rate, left) // the tightest need not be the one
		n.charge(s, r, rate, cost)
	}
	return true
}

// admits says that the record's allowance is good at now and enough for a cost
// that nothing is added to.
func (r *record) admits(rule *limit.Rule, rate *limit.Rate, cost uint64, now int64) bool {
	return r.allowance >= cost && r.fits(rule, rate, now) && !r.faded(rate, cost, now)
}

// renews makes an allowance anew where one merely ended, with its slice or its
// moment, as decide would, and says whether the record admits the cost now. What
// else may be is left to decide; it need not fold for who is denied again, or has
// to in any case.
func (s *shard) renews(r *record, rule *limit.Rule, rate *limit.Rate, cost uint64, now int64) bool {
	if r.fits(rule, rate, now) || r.flags&refused != 0 || rate.Queue || s.outgrown() {
		return false
	}
	prefetchBlock(r.block)
	if r.block.rate != rate {
		return false
	}
	s.refold(r, rule, rate, cost, cost, now)
	return r.admits(rule, rate, cost, now)
}

// tightestOf is which of a rule's rates has the smallest part of its limit left
// after the cost. A gap between requests, the last of the rates, is it only where
// there is no limit: none is left of it after any request.
func tightestOf(rates []*limit.Rate, records []*record, cost uint64) (tightest int) {
	var left, limit uint64
	for i, rate := range rates {
		if rate.PerRequest && i > 0 {
			continue
		}
		l, of := crdt.SatSub(crdt.SatSub(records[i].left(rate), margin(rate)), rate.CostOf(cost)), max(1, rate.Limit)
		// l / of < left / limit, in whole numbers
		high, low := bits.Mul64(l, limit)
		than, lower := bits.Mul64(left, of)
		if i == 0 || high < than || high == than && low < lower {
			tightest, left, limit = i, l, of
		}
	}
	return tightest
}

// decideShort is decide for a request that is short; its counters' shard is
// locked.
func (n *Node) decideShort(now int64, req *limit.Request, rule *limit.Rule, key named, cost uint64, d *limit.Decision) {
	var room [few]counter
	counters := room[:len(rule.Rates)]
	for i, rate := range rule.Rates {
		counters[i].count(now, key, rule, rate, req, cost)
	}
	*d = n.decide(now, req, counters)
}

// denies says that the record denied the same cost and nothing has changed
// since: whoever hammers at a limit costs no fold a request.
func (r *record) denies(c *counter, now int64) bool {
	if r.flags&refused == 0 || c.cost == 0 {
		return false
	}
	if r.block.punished(now) && c.rule.Punishes() {
		return true
	}
	d := r.block.denied
	if c.need > 1 && fades(c.rate) {
		return false // what is left grows until then, and is told
	}
	return c.rule.MaxDelay == 0 && d.cost == c.need && now < d.until && r.fits(c.rule, c.rate, now) && c.rate.Open == nil && !c.foreign
}

// checkAll is Check for any number of counters.
func (n *Node) checkAll(now int64, req *limit.Request, rules []*limit.Rule) limit.Decision {
	if rates(rules) <= few && !req.Ambiguous() { // clearing room for all that there may be takes its time
		var room [few]counter
		return n.checkThese(now, req, rules, n.counters(now, req, rules, room[:0]))
	}
	var room [maxCounters]counter
	return n.checkThese(now, req, rules, n.counters(now, req, rules, room[:0]))
}

// rates is how many rates the rules have, with their candidates, and those that they borrow from.
func rates(rules []*limit.Rule) (total int) {
	for _, rule := range rules {
		total += len(rule.Rates)
		if rule.Candidate != nil {
			total += len(rule.Candidate.Rates)
		}
		if rule.Elastic != nil && rule.Elastic.Parent != nil {
			total += len(rule.Elastic.Parent.Rates) + len(rule.Elastic.Lent)
		}
	}
	return total
}

func (n *Node) checkThese(now int64, req *limit.Request, rules []*limit.Rule, counters []counter) limit.Decision {
	req.Charges = req.Charges[:0] // of an earlier decision: it was given back, or will be
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
		now = n.steadyFor(counters, now)
		if counters[len(counters)-1].lends { // they stand last
			counters = n.withLent(counters)
		}
		if req.Peek || req.Details || req.Receipt || !n.pass(now, counters, &d) {
			d = n.decide(now, req, counters)
		}
		if req.Bounds {
			n.tellBound(now, req, counters, &d)
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

// covers says that the record's allowance is good at now and enough.
func (r *record) covers(c *counter, now int64) bool {
	return r.allowance >= c.bar && r.fits(c.rule, c.rate, now) && !r.faded(c.rate, c.cost, now)
}

// fits says that the record was folded under the rule, in the slice of now. A
// clock that was set back ends an allowance as one that goes on does.
func (r *record) fits(rule *limit.Rule, rate *limit.Rate, now int64) bool {
	return now < r.until && now >= r.until-int64(rate.Hold) && r.epoch == rule.Epoch
}

// lockSet is the shards that a decision needs: one, as with all rates of one
// rule, or a bit each.
type lockSet struct {
	one  *shard
	many [shards / 64]uint64
}

// lock takes the locks of all shards that the counters stand in, in the order
// of the ledger, so that two decisions never wait for each other in a circle.
func (n *Node) lock(counters []counter) (held lockSet) {
	differ := deltasync.Key(0)
	for i := range counters {
		differ |= counters[i].key ^ counters[0].key
	}
	if differ>>56 == 0 && len(counters) > 0 {
		held.one = n.shard(counters[0].key)
		held.one.mu.Lock()
		return held
	}
	for i := range counters {
		k := uint64(counters[i].key) >> 56
		held.many[k/64] |= 1 << (k % 64)
	}
	for i, word := range held.many {
		for ; word != 0; word &= word - 1 {
			n.shards[i*64+bits.TrailingZeros64(word)].mu.Lock()
		}
	}
	return held
}

func (n *Node) unlock(held *lockSet) {
	if held.one != nil {
		held.one.mu.Unlock()
		return
	}
	for i, word := range held.many {
		for ; word != 0; word &= word - 1 {
			n.shards[i*64+bits.TrailingZeros64(word)].mu.Unlock()
		}
	}
}

// pass is decide for a request that every counter has an allowance for, as most
// do; it is false, and has changed nothing, where one has not.
func (n *Node) pass(now int64, counters []counter, d *limit.Decision) bool {
	best, share, nearAny := 0, 2*loosest, false
	for i := range counters {
		c := &counters[i]
		c.record = n.shard(c.key).find(c.key)
		if c.record == nil || c.lends || c.rule.CountsAfter() || !c.record.covers(c, now) {
			return false
		}
		nearAny = nearAny || c.near(false)
		if left := c.share(false); left < share {
			best, share = i, left
		}
	}
	if counters[best].decision(now, false, d); d.Rule.Live != nil { // no rule that is in force counts it
		*d = limit.Decision{Allowed: true}
	}
	d.Near = nearAny
	for i := range counters {
		counters[i].mark(d)
		counters[i].heedClass()
		n.book(&counters[i])
		if rule := counters[i].rule; rule.Live != nil && firstOf(rule, counters) == i {
			rule.Live.Tried(false, false)
		}
	}
	return true
}
