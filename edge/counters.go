package edge

import (
	"slices"

	"github.com/spillgate/spillgate/edge/limit"
)

// counters resolves the request to the counters that its rules need.
func (n *Node) counters(now int64, req *limit.Request, rules []*limit.Rule, dst []counter) []counter {
	if req.Ambiguous() {
		return n.appendReadings(now, dst, req, rules)
	}
	for _, rule := range rules {
		if !rule.Allow {
			dst = n.appendCounters(now, dst, req, rule, rule.CostOf(req))
			if rule.Candidate != nil {
				dst = n.appendCounters(now, dst, req, rule.Candidate.For(req), rule.CostOf(req))
			}
		}
	}
	for _, rule := range rules {
		if rule.Elastic != nil && rule.Elastic.Parent != nil {
			dst = n.appendLenders(now, dst, req, rule, rule.CostOf(req))
		}
	}
	return dst
}

// appendLenders appends the counters that a rule may borrow from, but for those that are
// asked and charged on their own account.
func (n *Node) appendLenders(now int64, dst []counter, req *limit.Request, rule *limit.Rule, cost uint64) []counter {
	from := len(dst)
	dst = n.appendCounters(now, dst, req, rule.Elastic.Parent.For(req), cost)
	if len(dst) > from && slices.ContainsFunc(dst[:from], func(c counter) bool { return c.key == dst[from].key && (!c.lends || c.borrower == rule) }) {
		return n.appendLent(dst[:from], req, rule, cost)
	}
	for i := range dst[from:] {
		dst[from+i].lends, dst[from+i].borrower = true, rule
	}
	lenders := slices.DeleteFunc(dst[from:], func(c counter) bool { return c.rate.PerRequest }) // a gap is nothing to lend
	return n.appendLent(dst[:from+len(lenders)], req, rule, cost)
}

// appendReadings is counters for all readings of the request's path: each counter once, and
// all of those that lend must have room.
func (n *Node) appendReadings(now int64, dst []counter, req *limit.Request, rules []*limit.Rule) []counter {
	var of *limit.Rule
	var cost uint64 // the same in all readings
	req.Readings(func(rule *limit.Rule) {
		if rule.Allow || !slices.Contains(rules, rule) {
			return
		}
		if rule != of {
			of, cost = rule, rule.CostOf(req)
		}
		for _, r := range []*limit.Rule{rule, rule.Candidate} {
			if r == nil {
				continue
			}
			from := len(dst)
			dst = n.appendCounters(now, dst, req, r.For(req), cost)
			if len(dst) > from && slices.ContainsFunc(dst[:from], func(c counter) bool { return c.key == dst[from].key }) {
				dst = dst[:from]
			}
		}
	})
	req.Readings(func(rule *limit.Rule) {
		if rule.Elastic == nil || rule.Elastic.Parent == nil || !slices.Contains(rules, rule) {
			return
		}
		if rule != of {
			of, cost = rule, rule.CostOf(req)
		}
		dst = n.appendLenders(now, dst, req, rule, cost)
	})
	return dst
}

// appendCounters appends those of one rule; none where a part of its key is
// absent.
func (n *Node) appendCounters(now int64, dst []counter, req *limit.Request, rule *limit.Rule, cost uint64) []counter {
	key, ok := n.hash(req, rule)
	if !ok {
		return dst
	}
	for _, rate := range rule.Rates {
		dst = append(dst, counter{})
		dst[len(dst)-1].count(now, key, rule, rate, req, cost)
	}
	return dst
}
