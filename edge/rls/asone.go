package rls

import (
	"context"
	"slices"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillgate/spillgate/edge/limit"
)

// A domain may have the descriptors of a call be one question (defaults: {descriptors:
// all_or_nothing}; the reference's STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT): where one of them is
// denied the others are charged nothing, as the request that they describe does not go on. All are
// asked before any is charged. One that is denied is so as it is by itself: its rule may charge it
// (charge: each, count_denied), or punish it. Those that give back, or say what was spent, ask for
// nothing and are heeded in any case.

// asOne says that the descriptors of the call are charged all, or none.
func (c *call) asOne() bool {
	return len(c.reqs) > 1 && c.ns.DescriptorCharge() == limit.ChargeAllOrNothing
}

// judgeAsOne decides about all of them, those first that would be denied now: rights may come
// for them yet. What was charged before another is denied after all, as calls come between the
// question and the charge, is given back.
func (c *call) judgeAsOne(ctx context.Context, in *rlsv3.RateLimitRequest) {
	order, deny := make([]int, 0, len(c.reqs)), 0
	for i, req := range c.reqs {
		switch gives := in.Descriptors[i].IsNegativeHits; {
		case gives && !req.Peek, c.spent[i]:
			c.judge(ctx, i, gives)
		case c.serving.Ahead(req, c.now).Allowed || gives: // which looks, and asks for nothing
			order = append(order, i)
		default:
			order = slices.Insert(order, deny, i)
			deny++
		}
	}
	over := false
	for n, i := range order {
		req, j := c.reqs[i], &c.judged[i]
		req.Receipt = true
		req.Peek = req.Peek || over && n >= deny // it says how things stand
		c.judge(ctx, i, false)
		switch denied := !j.Decision().Allowed && !in.Descriptors[i].IsNegativeHits; {
		case denied && !over:
			over = true
			for _, before := range slices.Backward(order[:n]) {
				c.revoke(before)
			}
		case over && !denied:
			c.revoke(i)
		}
	}
}

// revoke has a descriptor that was charged be as one that was looked at.
func (c *call) revoke(i int) {
	if req := c.reqs[i]; !req.Peek {
		c.serving.Revoke(req, c.now, &c.judged[i])
	}
}
