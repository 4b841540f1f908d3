package edge

import (
	"maps"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// A penalty is a denial that holds whatever a request costs and whatever room
// there is. It is set by the edge that denies and told to all others, which heed
// it as if they had set it: of two the one that ends later holds. A rule that has
// no penalty, or has none any more, heeds none.

// penalty is the cost of such a denial.
const penalty = 1<<64 - 1

// punished says that the block's key is denied whatever room it has, by a rule
// that punishes. A penalty that would last longer than the rule's was set before
// a clock was set back: from here on it lasts as long as one that is set now.
func (b *block) punished(now int64) bool {
	d := &b.denied
	if d.cost != penalty || now >= d.until {
		return false
	}
	d.until = min(d.until, now+longestPenalty(b.rate))
	return true
}

// longestPenalty is how long a penalty lasts at the most, and a second for
// clocks that differ. A rate whose rule has none, and heeds none, still keeps
// those that it hears of.
func longestPenalty(rate *limit.Rate) int64 {
	if rate.Penalty == 0 {
		return int64(limit.MaxWindow)
	}
	return int64(min(rate.Penalty, limit.MaxWindow) + time.Second)
}

// sentence is when the block's penalty ends, in ns since 1970; 0: it has none.
func (b *block) sentence(now int64) int64 {
	if !b.punished(now) {
		return 0
	}
	return b.denied.until
}

// heeds says that all there is to tell of the record is a penalty. One that was only
// heard is told to a region whose store is new: who set it may be gone.
func (r *record) heeds() bool {
	return !r.sparse() && r.block.denied.cost == penalty && r.block.own.Len() == 0
}

// tells says that the region has something to keep of the block.
func (b *block) tells(now int64) bool { return b.own.Len() > 0 || b.punished(now) }

// punish keeps out whoever was denied, for as long as the rule says. Trying
// again meanwhile makes it no longer. It says whether others are to hear of it.
func (s *shard) punish(c *counter, now int64) (news bool) {
	p, r := c.rule.Penalty, c.record
	if !c.rule.Punishes() || c.cost == 0 || r.block.punished(now) {
		return false
	}
	wait := p.For
	if p.UntilReset { // what is more than ever fits waits until nothing is used
		wait = s.wait(s.whole(r), crdt.SatAdd(c.rate.Ceiling, 1), now)
	}
	s.banish(r, now+int64(min(wait, limit.MaxWindow)))
	if c.rate.Scope == limit.ScopeEdge {
		return false
	}
	s.mark(r, untold|urgent)
	return true
}

// mostWithheld is of how many keys it is remembered that their penalties are to be told.
const mostWithheld = 4096

// withhold takes a penalty out of what is told: others would heed it until the instant that
// an unsure clock gave, and this node, once it is set right, for as long as its rule says.
// It says whether anything is left to tell. n.mu is held.
func (n *Node) withhold(d *deltasync.Delta) bool {
	if _, known := n.withheld[d.Key]; known || len(n.withheld) < mostWithheld {
		if n.withheld == nil {
			n.withheld = map[deltasync.Key]int64{}
		}
		n.withheld[d.Key] = d.Until
	}
	d.Until = 0
	return d.Tells()
}

// tellWithheld has penalties told that were not while the clock was unsure.
func (n *Node) tellWithheld(now int64) {
	n.mu.Lock()
	maps.DeleteFunc(n.withheld, func(_ deltasync.Key, until int64) bool { return until <= now })
	var due map[deltasync.Key]int64
	if !n.clock.Unsure() {
		due, n.withheld = n.withheld, nil
	}
	n.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(due)) { // the same order in each run
		s := n.shard(key)
		s.mu.Lock()
		if r := s.find(key); r != nil && !r.sparse() && r.block.punished(now) {
			s.mark(r, untold|urgent)
		}
		s.mu.Unlock()
	}
}

// obey takes in a penalty that others told of, where it is later than ours. It
// is for the rule to say at the next request whether it heeds it.
func (s *shard) obey(r *record, until, now int64) {
	if until > now && until > r.block.sentence(now) {
		s.banish(r, min(until, now+int64(limit.MaxWindow)))
		r.until = 0 // a rule that heeds none has to fold
	}
}

// banish denies the record everything until an instant.
func (s *shard) banish(r *record, until int64) {
	s.whole(r).denied = denial{cost: penalty, until: until}
	r.flags |= refused
	r.allowance, r.scale = 0, full
}
