package edge

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// CheckBatch decides requests at one instant, each as Check would, in their
// order, and appends the decisions to dst. Each request is one of its own:
// none is used twice. What stands in memory is asked for while other requests are
// matched, which pays where memory is slow and there are more keys than a processor's
// cache has room for: a decision took from 0.73 of the time of a Check to as long, by the
// machine (test/bench/RESULTS.md).
func (n *Node) CheckBatch(now time.Time, reqs []*limit.Request, dst []limit.Decision) []limit.Decision {
	t := n.clock.Present(now)
	var room [batch]keyed
	for len(reqs) > 0 {
		part := reqs[:min(batch, len(reqs))]
		reqs = reqs[len(part):]
		for i, req := range part {
			req.At(t)
			room[i].match(n, req)
		}
		for i, req := range part {
			dst = append(dst, limit.Decision{})
			d := &dst[len(dst)-1]
			if k := &room[i]; k.short {
				n.checkHash(t, req, k.rules[0], k.key, d)
			} else {
				*d = n.checkAll(t, req, k.rules)
			}
		}
	}
	return dst
}

// batch is how many requests are matched before the first is decided: as many
// misses as a processor works on at once, a few times over.
const batch = 16

// keyed is a request that was matched; one that is short has counters of that
// name.
type keyed struct {
	rules []*limit.Rule
	key   named
	short bool
}

// match fills in a request, and has its counters fetched.
func (k *keyed) match(n *Node, req *limit.Request) {
	k.rules = req.Rules()
	if k.short = short(req, k.rules); !k.short {
		return
	}
	k.key, k.short = n.hash(req, k.rules[0])
}
