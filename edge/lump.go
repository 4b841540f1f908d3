package edge

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// A lump is the cost of many requests that are yet to come, as a data plane is assigned
// them. All that lets a single request pass beyond an edge's share, as the limit is far off
// or by chance, takes requests to come one by one, and others to hear of them in between:
// of lumps that came to all edges at once it would admit one each.

// lump confines an allowance that was just made to what this edge may have at once. With
// less than is needed it has others tell what they ask for.
func (s *shard) lump(r *record, rate *limit.Rate, cost, need uint64, now int64) {
	if s.cluster.opens(rate, now) || r.allowance == 0 {
		return
	}
	b := s.whole(r)
	if b.share == nil {
		level := s.measure(r, now)
		share := s.cluster.unknown(rate, s.spentHere(r, now), now)
		if g := rate.Grant(level, &share); g.Lump >= need {
			r.allowance = min(r.allowance, g.Lump)
			return
		}
		s.beginShare(r, rate, now)
		s.regrant(r, rate, level, now)
	}
	g := b.share.grant
	g.Cost = g.Lump
	left := r.left(rate)
	if r.allowance = min(left, g.Cost); need > cost && left >= need && g.Spares(cost, need-cost) {
		r.allowance = need
	}
	s.hurry(r)
}

// roomForLump is what a lump that was denied may have of all counters that deny it.
func roomForLump(counters []counter) (room uint64) {
	room = everything
	for i := range counters {
		if c := &counters[i]; c.over && !c.lends && c.rule.Mode == limit.Enforce {
			if c.rule.CountsAfter() { // it has no room for one
				return 0
			}
			room = min(room, crdt.SatSub(c.record.allowance, c.need-c.cost))
		}
	}
	return room
}

// unasked takes a lump that was charged out of what is asked for: who asks for it tells
// what it is of as it comes.
func (c *counter) unasked() {
	r := c.record
	r.settle()
	if !r.sparse() && r.block.share != nil {
		r.block.share.own.Unask(c.cost)
	}
}

// Asked notes that a request's cost was asked for, which was charged in a lump, or denied
// by who was granted that. It charges nothing. A new counter is not told of it.
func (n *Node) Asked(now time.Time, req *limit.Request) {
	req.At(n.clock.Present(now))
	rules := req.Rules()
	if n.cluster.regions.Load() == 0 || denier(rules) != nil {
		return
	}
	var room [few]counter
	counters := n.counters(n.clock.Present(now), req, rules, room[:0])
	if len(counters) == 0 {
		return
	}
	held := n.lock(counters)
	defer n.unlock(&held)
	for i := range counters {
		c := &counters[i]
		if r := n.shard(c.key).find(c.key); r != nil && !c.lends && !c.rule.CountsAfter() && !r.sparse() && r.block.share != nil {
			r.block.share.own.Ask(c.cost)
		}
	}
}
