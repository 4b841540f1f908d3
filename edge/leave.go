package edge

import (
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Leave is Flush of everything, as the node stops: its region is told that it takes its
// leave, and keeps nothing for it. What rights it has of strict limits and did not spend it
// returns, by Claims. Call both until all is sent.
func (n *Node) Leave(now time.Time) []Outgoing {
	n.mu.Lock()
	n.leaves = true
	n.mu.Unlock()
	n.giveUp(n.clock.At(now))
	return n.flushAll(now)
}

// stay is that the node runs, be it once more after it left.
func (n *Node) stay() {
	if n.cluster.escrow.leaves.Swap(false) {
		n.eachRights(func(s *shard, r *record) {
			if r.block.share.rights.ended { // that holder is no more
				s.void(r)
			}
		})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaves = false
	n.ungivenKeys = nil
	for i := range n.lanes {
		n.lanes[i].bye, n.lanes[i].left = 0, false
	}
}

// Left says that all was told, and that the node leaves.
func (n *Node) Left(now time.Time) bool {
	return n.unsent() == 0 && !n.leaving(n.clock.At(now)) && n.ungiven() == 0
}

// leaving says that some lane is yet to be told that the node leaves.
func (n *Node) leaving(now int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.lanes, func(l service) bool { return l.leaves(now) })
}

// giveUp returns what rights were not spent, as the node leaves: whoever comes after it is another
// holder, and what this one kept would be nobody's until a lease and the window are over. Called again
// it has those told again that nobody has answered.
func (n *Node) giveUp(now int64) {
	e := &n.cluster.escrow
	if e.leaves.Swap(true) {
		boot := e.boot()
		n.eachUngiven(func(s *shard, r *record) {
			if boot-r.block.share.rights.asked > n.cfg.Timeout {
				s.claim(r)
			}
		})
		return
	}
	n.eachRights(func(s *shard, r *record) {
		r.settle()
		rt := r.block.share.rights
		rt.wall = now
		if s.finish(r, now); rt.unheard != 0 { // it may be granted some yet
			s.claim(r)
		}
		if rt.ungiven() {
			n.ungivenKeys = append(n.ungivenKeys, r.key)
		}
	})
}

// finish returns what was not spent, and has the holder be over, so that what it spent is free as it
// leaves the window, and not all a window after the last word.
func (s *shard) finish(r *record, now int64) {
	rt := r.block.share.rights
	boot := rt.escrow.boot()
	switch more := crdt.SatSub(rt.granted-rt.returned, rt.left); {
	case r.block.rate.Bucket(): // that is returned as it drains
		s.returns(r, 0, now)
	case !rt.ended && boot < rt.until:
		s.returns(r, 0, now)
		if rt.ended, rt.left = true, rt.granted-rt.returned; rt.left > 0 {
			rt.gave = boot
			s.claim(r)
		}
	case rt.ended && more > 0: // it was asked for before
		rt.returned += more
		rt.gave = boot
		s.claim(r)
	}
}

// ends is when what is left of a holder that is over is free, as all of it is spent.
func (rt *rights) ends(rate *limit.Rate, left uint64, now int64, boot time.Duration) (ends []deltasync.End) {
	if left > 0 && boot < rt.unbound && !rate.Bucket() { // they back more than was spent, whichever leaves first
		return []deltasync.End{{Cost: left, In: rate.Lasts()}}
	}
	parts := min(left, math.MaxUint64/finest) * finest / max(1, rt.ceiling)
	margin := time.Duration(0)
	if rate.Labelled() { // clocks say when that is free, and may be set
		margin = time.Duration(rt.escrow.lease.Load())
	}
	for _, e := range rt.spent.Ends(rate, left, limit.Instant{Boot: boot, Wall: now}, int(max(1, min(parts, deltasync.MaxEnds)))) {
		ends = append(ends, deltasync.End{Cost: e.Cost, In: min(e.In+margin, rate.Lasts())})
	}
	return ends
}

// finest is the part of the limit below which what was spent is not told in parts, as each is a
// holding at the authority.
const finest = 24

// ungiven says that the authority may take the counter to hold more than it does.
func (rt *rights) ungiven() bool { return rt.gave > rt.answered || rt.unheard != 0 }

// ungiven is how many counters returned rights of which the authority has not said that it knows.
func (n *Node) ungiven() (counters int) {
	n.eachUngiven(func(*shard, *record) { counters++ })
	if n.cluster.escrow.leaves.Load() {
		counters += n.cluster.escrow.unheard()
	}
	return counters
}

// eachUngiven is given the counters that giveUp returned rights of, as long as that is not answered,
// each with its shard locked.
func (n *Node) eachUngiven(do func(*shard, *record)) {
	kept := n.ungivenKeys[:0]
	for _, key := range n.ungivenKeys {
		s := n.shard(key)
		s.mu.Lock()
		if r := s.find(key); r != nil && !r.sparse() && r.block.share != nil && r.block.share.rights != nil && r.block.share.rights.ungiven() {
			do(s, r)
			kept = append(kept, key)
		}
		s.mu.Unlock()
	}
	n.ungivenKeys = kept
}

// eachRights is given all counters that have rights which somebody else grants, each with its
// shard locked.
func (n *Node) eachRights(do func(*shard, *record)) {
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		for j := range s.table {
			r := &s.table[j]
			if r.key != 0 && !r.sparse() && r.block.share != nil && r.block.share.rights != nil && escrows(r.block.rate) && asks(r.block.rate) {
				do(s, r)
			}
		}
		s.mu.Unlock()
	}
}
