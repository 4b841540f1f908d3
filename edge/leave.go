package edge

import (
	"slices"
	"time"
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
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaves = false
	n.cluster.escrow.leaves.Store(false)
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
		if s.returns(r, 0, now); rt.unheard != 0 { // it may be granted some yet
			s.claim(r)
		}
		if rt.ungiven() {
			n.ungivenKeys = append(n.ungivenKeys, r.key)
		}
	})
}

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
