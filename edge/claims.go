package edge

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Claims hands out what the authorities of strict limits should hear now, in frames to
// be sent as requests, as many as Config.Budget has bytes for. An answer goes to
// ReceiveGrants; nothing is to be done about a loss. Call it every Config.Urgent.
func (n *Node) Claims(now time.Time) []Claiming {
	e := &n.cluster.escrow
	if !e.due.Swap(false) {
		return nil
	}
	boot, t := e.boot(), n.clock.At(now)
	left, begin := n.claimable(t)
	if left == 0 {
		e.due.Store(true)
		return nil
	}
	frames := map[authority]*deltasync.Claims{}
	ends := map[*deltasync.Claims]int{}
	var order []authority // a map's is not the same each time
	add := func(home string, c deltasync.Claim) {
		to := authority{home: cmp.Or(home, n.cfg.Region), lane: c.Key.Lane(n.cfg.Lanes)}
		f := frames[to]
		for ; f != nil && (len(f.Claims) == deltasync.MaxClaims || ends[f]+len(c.Ends) > deltasync.MaxClaims); f = frames[to] {
			to.part++
		}
		if f == nil {
			f = &deltasync.Claims{
				Region: to.home, Lane: to.lane, Lanes: n.cfg.Lanes,
				From: n.cfg.Region, Pop: n.cfg.Pop, Name: n.cfg.Name, SentAt: int64(boot),
			}
			frames[to] = f
			order = append(order, to)
		}
		f.Claims = append(f.Claims, c)
		ends[f] += len(c.Ends)
	}
	next := -1 // the shard to begin with the next time: where the bytes end
	for i := range n.shards {
		at := (begin + i) % shards
		s := &n.shards[at]
		s.mu.Lock()
		waiting := s.claims[:0]
		for nth, key := range s.claims {
			if left == 0 {
				switch {
				case next >= 0:
				case i > 0:
					next = at
				default: // it would have all bytes again, as what went comes back
					next = (at + 1) % shards
				}
				waiting = append(waiting, s.claims[nth:]...)
				break
			}
			r := s.find(key)
			if r == nil || r.sparse() || r.block.share == nil || r.block.share.rights == nil {
				continue // it was forgotten
			}
			if !escrows(r.block.rate) || !asks(r.block.rate) {
				r.block.share.rights.listed = false
				continue
			}
			r.settle()
			if rate := n.inForce(r.block.rate); rate.Epoch() != r.block.share.rights.epoch { // nobody asked since
				s.lower(r, rate, boot, t)
			}
			c, home, ok := s.dueClaim(r, boot, t)
			if !ok {
				waiting = append(waiting, key)
				continue
			}
			add(home, c)
			left--
		}
		if s.claims = waiting; len(waiting) > 0 {
			e.due.Store(true)
		}
		s.mu.Unlock()
	}
	for _, l := range e.lastWords(boot, left) { // those that live go first, where there are few bytes
		add(l.home, l.claim)
	}
	out, bytes := make([]Claiming, 0, len(order)), 0
	for _, to := range order {
		payload, err := frames[to].AppendBinary(nil)
		if err != nil { // our own bug
			n.cfg.Logger.Error("claims dropped", "home", to.home, "err", err)
			continue
		}
		bytes += len(payload)
		out = append(out, Claiming{
			Home: to.home, Lane: to.lane, Payload: payload,
			Subject: deltasync.ClaimSubject(to.home, to.lane, n.cfg.Region, n.cfg.Pop, n.cfg.Name),
		})
	}
	n.mu.Lock()
	n.budget.Spend(bytes)
	if next >= 0 {
		n.firstClaim = next
	}
	n.mu.Unlock()
	return out
}

const (
	// claimBytes is about what a claim takes with its answer, and leastClaims how many
	// go at once where Config.Budget has no bytes for more: a frame each would be
	// heads for the most part.
	claimBytes  = 96
	leastClaims = 12
)

// claimable is how many claims there are bytes for, as pressing as they are, and the
// shard to begin with.
func (n *Node) claimable(now int64) (most, first int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	room := n.budget.Room(now) / claimBytes
	if room < leastClaims {
		n.stats.overBudget.Add(1)
		return 0, n.firstClaim
	}
	return int(min(room, math.MaxInt32)), n.firstClaim
}

// Claiming is a frame of claims, and the region whose authority it goes to.
type Claiming struct {
	Home    string
	Lane    int
	Subject string
	Payload []byte
}

// authority is where claims go; part counts frames that are full.
type authority struct {
	home       string
	lane, part int
}

// ReceiveGrants takes in what an authority answered, or told this region's edges
// unasked.
func (n *Node) ReceiveGrants(now time.Time, payload []byte) error {
	var g deltasync.Grants
	if err := g.UnmarshalBinary(payload); err != nil {
		n.stats.unread(err, &n.stats.badPushes)
		return fmt.Errorf("grants: %w", err)
	}
	if g.Status != deltasync.StatusOK {
		return fmt.Errorf("grants: aggregator of %s refused the claims: %s", g.Region, g.Status) // it is asked again
	}
	if g.Echo != 0 { // it answers, and was not pushed
		n.mu.Lock()
		n.budget.Spend(len(payload))
		n.mu.Unlock()
	}
	t := n.clock.At(now)
	lease := g.Lease
	if lease == 0 {
		return nil
	}
	n.cluster.escrow.lease.Store(int64(lease))
	for i := range g.Grants {
		k := &g.Grants[i]
		s := n.shard(k.Key)
		s.mu.Lock()
		if r := s.find(k.Key); r != nil {
			r.settle()
			s.hearGrant(r, k, &g, n.cfg.Region, t)
		}
		s.mu.Unlock()
	}
	if g.Echo != 0 {
		n.cluster.escrow.heard(g.Grants, time.Duration(g.Echo))
	}
	n.cluster.escrow.queue.wake(g.Grants)
	return nil
}

// Rights are what a node holds of a strict limit.
type Rights struct{ Held, Spent uint64 }

// RightsOf is what the node holds of all counters of the rates of that generation; for
// tests that add up what all nodes hold.
func (n *Node) RightsOf(generation uint64) (sum Rights) {
	boot := n.cluster.escrow.boot()
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		for j := range s.table {
			r := &s.table[j]
			if r.key == 0 || r.sparse() || r.block.rate.Generation != generation || r.block.share == nil || r.block.share.rights == nil {
				continue
			}
			rt := r.block.share.rights
			held := rt.held(boot)
			sum.Held += held
			sum.Spent += rt.spent.Used(r.block.rate, held, limit.Instant{Boot: boot, Wall: rt.wall}) + r.fresh // which is not noted yet
		}
		s.mu.Unlock()
	}
	return sum
}
