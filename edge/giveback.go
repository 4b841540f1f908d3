package edge

import (
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// GiveBack is Report the other way: it gives back the request's cost to all
// rates that a Report charges, no more than is counted of their keys. It is for
// callers that have no receipt, be it that another edge charged. It takes this edge's
// own charges first, as two edges that took the same one at once would give back one
// of both; then those of others; and of each the oldest that still count, so that what
// stays counted does so for as long as it can, or, of a bucket, the latest. What its
// slices have forgotten is given back here alone. Where nothing applies but concurrency
// limits, it releases a slot of each. Of strict limits the right is free again only where
// the request is Ours: freed here for what another edge admitted, and there when that has
// left the window, it would be two. As far as a rule that borrows was above its limit, and
// is no more, its parent is given back the same, and no more than was lent, in the parent's slices
// of then, where that is counted: nobody knows which requests borrowed, nor proves it, so that rights
// of a strict one are free when its window ends. So is what was lent in a slice that began before
// that window, and what was reported beyond what the parent had left.
func (n *Node) GiveBack(now time.Time, req *limit.Request) {
	t := n.clock.Present(now)
	var room [maxCounters]counter
	counters := forReports(n.counters(req, req.Rules(), room[:0]), func(r *limit.Rate) bool { return r.PerRequest })
	slots := !slices.ContainsFunc(counters, func(c counter) bool { return !c.lends && c.rate.Lease == 0 })
	counters = slices.DeleteFunc(counters, func(c counter) bool { return c.cost == 0 || slots != (c.rate.Lease > 0) })
	req.Recorded = false
	held := n.lock(counters)
	defer n.unlock(&held)
	for i := range counters {
		if c := &counters[i]; c.lends {
			c.part = n.owes(t, c.borrower, counters)
		}
	}
	for i := range counters {
		if c := &counters[i]; !c.lends {
			all := stretch{from: math.MinInt64, cost: c.cost}
			req.Recorded = n.giveBackCounted(t, c, all, charger(req.Ours)) > 0 || req.Recorded
		}
	}
	for i := range counters {
		c := &counters[i]
		if told := func(l counter) bool { return l.lends && l.borrower == c.borrower }; c.lends && !slices.ContainsFunc(counters[:i], told) {
			n.giveBackOwed(t, c.borrower, c.part, counters)
		}
	}
}

// giveBackOwed gives back to those who lend to a rule what it owes no more.
func (n *Node) giveBackOwed(now int64, borrower *limit.Rule, owed uint64, counters []counter) {
	back := []stretch{{from: math.MinInt64, to: math.MaxInt64, cost: crdt.SatSub(owed, n.owes(now, borrower, counters))}}
	if knowsLent(borrower) {
		back = n.lentBack(now, borrower, back[0].cost, counters)
	}
	for i := range counters {
		c := &counters[i]
		if !c.lends || c.beside != nil || c.borrower != borrower {
			continue
		}
		returned, reach := uint64(0), c.rate.StartOf(c.rate.Reach(now))
		for _, of := range back {
			if of.from >= reach || of.whole() {
				returned += n.giveBackCounted(now, c, of, theirs)
			}
		}
		if returned > 0 && swaps(c) {
			n.loans.returned(borrowerOf(c, counters), uint64(c.key), returned, now)
		}
	}
}

// stretch is some cost that was charged from an instant on, and before another.
type stretch struct {
	from, to int64
	cost     uint64
}

// whole says that nobody knows when it was charged.
func (of *stretch) whole() bool { return of.from == math.MinInt64 }

// has says that some of a slice was charged then.
func (of *stretch) has(rate *limit.Rate, slice crdt.Slice) bool {
	return of.whole() || rate.StartOf(slice) < of.to && rate.EndOf(slice) > of.from
}

// knowsLent says that what a rule borrowed is counted beside all that it has: what is above its limit
// without that was admitted by edges that did not know of each other yet, or under another limit,
// and nobody lent it.
func knowsLent(borrower *limit.Rule) bool {
	for i, rate := range borrower.Rates {
		if !rate.PerRequest && borrower.Elastic.Lent[i] == nil {
			return false
		}
	}
	return true
}

// lentBack takes so much off what a rule's loans are counted by, or more where they are of slices
// that have no more than that by now: what is given back is borrowed no more, whoever gave it. It
// says of which times that was, by the counter that knows of most; the loans of others are over
// there, and may count with those who lent.
func (n *Node) lentBack(now int64, borrower *limit.Rule, cost uint64, counters []counter) (back []stretch) {
	most := uint64(0)
	for i := range counters {
		c := &counters[i]
		if c.beside == nil || c.borrower != borrower {
			continue
		}
		had := n.cellsOf(now, c)
		if !c.beside.Bucket() {
			n.confineLent(now, c)
		}
		gone := crdt.SatSub(sumOf(had), sumOf(n.cellsOf(now, c)))
		n.giveBackCounted(now, c, stretch{from: math.MinInt64, cost: crdt.SatSub(cost, gone)}, theirs)
		left := n.cellsOf(now, c)
		if gone = crdt.SatSub(sumOf(had), sumOf(left)); gone <= most {
			continue
		}
		most, back = gone, back[:0]
		for _, cell := range had {
			if part := crdt.SatSub(cell.Net(), netOf(left, cell.Slice)); part > 0 {
				back = append(back, stretch{c.rate.StartOf(cell.Slice), c.rate.EndOf(cell.Slice), part})
			}
		}
	}
	return back
}

// cellsOf are the slices that a counter has by now; none where there is no record.
func (n *Node) cellsOf(now int64, c *counter) []crdt.Cell {
	s := n.shard(c.key)
	r := s.find(c.key)
	if r == nil {
		return nil
	}
	s.whole(r)
	r.settle()
	s.retire(r, now)
	return slices.Clone(s.sums(r.block))
}

func sumOf(cells []crdt.Cell) (sum uint64) {
	for _, cell := range cells {
		sum = crdt.SatAdd(sum, cell.Net())
	}
	return sum
}

// netOf is what stands in a slice.
func netOf(cells []crdt.Cell, slice crdt.Slice) uint64 {
	if k := slices.IndexFunc(cells, func(cell crdt.Cell) bool { return cell.Slice == slice }); k >= 0 {
		return cells[k].Net()
	}
	return 0
}

// giveBackCounted gives back what a counter was charged at some time, and says how much of it there
// was: charged by whom it is told, as far as that is this edge. The shard is locked.
func (n *Node) giveBackCounted(now int64, c *counter, of stretch, whose charger) (back uint64) {
	if of.cost == 0 {
		return 0
	}
	s := n.shard(c.key)
	r := s.find(c.key)
	if r == nil {
		if n.retired(c.rate) {
			return 0
		}
		r = n.admit(s, c.key, c.rate, now, nil)
	}
	b := s.whole(r)
	r.settle()
	s.retire(r, now)
	s.measure(r, now) // as of now, for Counting
	// Nobody knows whose charge it was: where there are turns, somebody may wait behind it.
	unknown := limit.Charge{Rule: c.rule, Rate: c.rate, Turn: now, Withheld: c.rate.Withheld(0), Cost: 1}
	free := s.waited(r, c.rate, now)
	if !s.mayReturn(r, &unknown, now) && !free {
		return 0
	}
	left := of.cost
	for _, by := range []charger{ours, theirs} {
		cells := slices.Clone(s.sums(b))
		if c.rate.Bucket() { // what was poured in first may have drained
			slices.Reverse(cells)
		}
		for _, cell := range cells {
			if !of.has(c.rate, cell.Slice) {
				continue
			}
			back := min(cell.Net(), left)
			if by == ours {
				back = min(back, b.own.Get(cell.Slice).Net())
			}
			if b.memory != nil {
				back = b.memory.exact.Counting(c.rate, cell.Slice, back, by == ours, now)
			}
			if back > 0 {
				n.giveBack(s, r, &limit.Charge{Slice: cell.Slice}, back, now, by && whose)
				left -= back
			}
		}
	}
	if m := b.memory; m != nil && left > 0 && of.whole() && (free || !c.rate.HasTurns(c.rule)) {
		// A bucket has what its slices have forgotten by now, until it has drained.
		took, carry := m.exact.Lower(c.rate, left, m.carry, now)
		m.carry = carry
		left -= took
		r.until = 0
		r.forgive()
		s.measure(r, now)
	}
	r.leaves(&unknown, of.cost-left)
	return of.cost - left
}
