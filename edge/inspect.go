package edge

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Belief is what the node thinks is used of one rate for one key.
type Belief struct {
	Rule  *limit.Rule // nil from Believe
	Rate  *limit.Rate
	Key   deltasync.Key
	Own   uint64        // cost that counts against the limit, counted here
	Total uint64        // cost that counts against the limit, by whomever
	Age   time.Duration // since the key was last heard of; -1: never
	Live  bool          // the key stands in the ledger

	// Held is how long the key is confined because it had most of its limit used
	// when it was forgotten, or when the region pushed it, and Left what it may
	// spend for now. 0: it is not confined.
	Held time.Duration
	Left uint64
}

// Inspect says what the node believes of every rate that the request falls
// under. It decides, counts and asks nothing.
func (n *Node) Inspect(now time.Time, req *limit.Request) []Belief {
	var room [maxCounters]counter
	var out []Belief
	t := n.clock.Present(now)
	req.At(t)
	for _, c := range n.counters(t, req, req.Rules(), room[:0]) {
		if c.beside != nil { // it is no limit
			continue
		}
		belief := n.Believe(now, c.rate, c.key)
		belief.Rule = c.rule
		out = append(out, belief)
	}
	return out
}

// Believe says what the node believes of one rate of one key.
func (n *Node) Believe(now time.Time, rate *limit.Rate, key deltasync.Key) Belief {
	t := n.clock.Present(now)
	belief := Belief{Rate: rate, Key: key, Age: -1}
	used := func(cells []crdt.Cell, carry crdt.Carry) uint64 { return rate.Rounded(rate.Used(cells, carry, t)) }
	s := n.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(key)
	if r == nil {
		seen := n.seen(key)
		belief.Total = used(seen.Cells, seen.Carry)
		belief.heard(t, seen.Heard)
		if h := s.blocked.find(key, rate, t); h.until != 0 {
			belief.Held, belief.Left = time.Duration(h.until-t), h.left(rate)
		}
		return belief
	}
	r.settle()
	belief.Live = true
	if b := r.block; r.sparse() {
		belief.Own = used([]crdt.Cell{r.cell()}, crdt.Carry{})
		belief.Total = belief.Own
	} else if b.memory == nil {
		belief.Own = used(b.own.Cells(nil), crdt.Carry{})
		belief.Total = used(s.sums(b), crdt.Carry{})
	} else {
		belief.Own = rate.Rounded(rate.Own(&b.memory.exact, t))
		belief.Total = rate.Rounded(rate.Measure(&b.memory.exact, s.heard(b), s.sums(b), b.memory.carry, t))
	}
	belief.heard(t, r.heard)
	if h := r.block.confined(); h != nil && !h.ended(rate, t) {
		belief.Held, belief.Left = time.Duration(h.until-t), h.left(rate)
	}
	return belief
}

func (b *Belief) heard(now, at int64) {
	if at != 0 {
		b.Age = time.Duration(max(0, now-at))
	}
}

// Cells are the counts that the node has of a key that is live: its own, and
// everybody else's as last heard. They are copies.
func (n *Node) Cells(key deltasync.Key) (own, others []crdt.Cell, live bool) {
	s := n.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(key)
	if r == nil {
		return nil, nil, false
	}
	if r.sparse() {
		return []crdt.Cell{r.cell()}, nil, true
	}
	own = r.block.own.Cells(nil)
	if r.fresh > 0 { // charged since the last fold
		var v crdt.Vector
		for _, c := range own {
			v.Join(c)
		}
		v.Add(crdt.Cell{Slice: r.block.slice, Charges: r.fresh})
		own = v.Cells(nil)
	}
	return own, r.block.others.Cells(nil), true
}
