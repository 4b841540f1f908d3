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
// slices have forgotten is given back here alone. What is not known of here, and may be another
// edge's, is given back once the region has told it; of rules that borrow it is not. Where nothing
// applies but concurrency limits, it releases a slot of each. Of strict limits the right is free again only where
// it is said when this edge charged it (Spent): freed here for what another edge admitted, and there when that has
// left the window, it would be two. As far as a rule that borrows was above its limit, and
// is no more, its parent is given back the same, of this edge's loans, in the parent's slices
// of then: nobody knows which requests borrowed, so that the parent keeps, until its window ends,
// all that may be others' by now: what was lent in a slice of the borrower's that began before that
// window; what of a bucket may have drained; all of a rule of which nobody knows what it
// borrowed of whom (limit.Elastic's Lent and Bound), or whose receipts alone give it back (see swaps);
// and what was reported beyond what the parent had left.
func (n *Node) GiveBack(now time.Time, req *limit.Request) {
	t := n.clock.Present(now)
	req.At(t)
	var room [maxCounters]counter
	counters := forReports(n.counters(t, req, req.Rules(), room[:0]), func(r *limit.Rate) bool { return r.PerRequest })
	slots := !slices.ContainsFunc(counters, func(c counter) bool { return !c.lends && c.rate.Lease == 0 && inForce(c.rule, counters) })
	counters = slices.DeleteFunc(counters, func(c counter) bool {
		return c.cost == 0 || slots != (c.rate.Lease > 0) || req.Made != 0 && c.except.forgotten(req.Made)
	})
	req.Recorded = false
	held := n.lock(counters)
	defer n.unlock(&held)
	for i := range counters {
		if c := &counters[i]; c.lends {
			c.part = n.owes(t, c.borrower, counters)
		}
	}
	lent := slices.ContainsFunc(counters, func(c counter) bool { return c.lends })
	for i := range counters {
		if c := &counters[i]; !c.lends {
			back := n.giveBackCounted(t, c, ever(c.cost), charger(req.Spent))
			later := back < c.cost && !lent && n.waits(t, c, c.cost-back, charger(req.Spent))
			req.Recorded = (back > 0 || later) && c.rule.Live == nil || req.Recorded
		}
	}
	for i := range counters {
		c := &counters[i]
		if told := func(l counter) bool { return l.lends && l.borrower == c.borrower }; c.lends && !slices.ContainsFunc(counters[:i], told) {
			n.giveBackOwed(t, c.borrower, c.part, counters)
		}
	}
}

// inForce says that a rule is, or that none of those that are asked is: a trial changes nothing beside one.
func inForce(rule *limit.Rule, counters []counter) bool {
	return rule.Mode == limit.Enforce || rule.Live == nil && !slices.ContainsFunc(counters, func(c counter) bool { return !c.lends && c.rule.Mode == limit.Enforce })
}

// giveBackOwed gives back to those who lend to a rule what it owes no more.
func (n *Node) giveBackOwed(now int64, borrower *limit.Rule, owed uint64, counters []counter) {
	gone := n.lentBack(now, borrower, crdt.SatSub(owed, n.owes(now, borrower, counters)), counters)
	if gone.rate == nil || !borrower.Elastic.Bound {
		return
	}
	for i := range counters {
		c := &counters[i]
		if !c.lends || c.beside != nil || c.borrower != borrower || !swaps(c) { // receipts give that back
			continue
		}
		back := uint64(0)
		for _, of := range n.lendsStill(now, c, gone) {
			back += n.giveBackCounted(now, c, of, theirs)
		}
		if back > 0 {
			n.loans.returned(borrowerOf(c, counters), uint64(c.key), back, now)
		}
	}
}

// stretch is some cost that was charged from an instant on, and before another.
type stretch struct {
	from, to int64
	cost     uint64
	mine     bool // by this edge
	others   bool // not by this edge
}

// ever is a cost that was charged at any time.
func ever(cost uint64) stretch { return stretch{from: math.MinInt64, to: math.MaxInt64, cost: cost} }

func (of *stretch) ever() bool { return of.from == math.MinInt64 }

// has says that some of a slice was charged then.
func (of *stretch) has(rate *limit.Rate, slice crdt.Slice) bool {
	return of.ever() || rate.StartOf(slice) < of.to && rate.EndOf(slice) > of.from
}

// returned is what stood in the slices of a counter before some of it was given back, and after.
type returned struct {
	rate      *limit.Rate
	had, left []crdt.Cell
}

// lentBack takes so much off what a rule's loans are counted by, or more where they are of slices
// that have no more than that by now: what is given back is borrowed no more, whoever gave it. It
// is of this edge's own loans, as another that is told the same gives back its own. It
// says what that was by one of the counters, each time the same, as they do not agree on which
// loans came back: the one that knows of the oldest. The rate is nil where nothing is counted, as
// nobody knows what was lent then.
func (n *Node) lentBack(now int64, borrower *limit.Rule, cost uint64, counters []counter) (gone returned) {
	for i := range counters {
		c := &counters[i]
		if c.beside == nil || c.borrower != borrower {
			continue
		}
		had := n.cellsOf(now, c)
		if !c.beside.Bucket() {
			n.confineLent(now, c)
		}
		confined := crdt.SatSub(sumOf(had), sumOf(n.cellsOf(now, c)))
		rest := ever(crdt.SatSub(cost, confined))
		rest.mine = true
		n.giveBackCounted(now, c, rest, theirs)
		left := n.cellsOf(now, c)
		if back := crdt.SatSub(sumOf(had), sumOf(left)); back > 0 && swaps(c) {
			n.loans.returned(borrowerOf(c, counters), uint64(c.key), back, now)
		}
		if gone.rate == nil || c.rate.Window > gone.rate.Window {
			gone = returned{c.rate, had, left}
		}
	}
	return gone
}

// lendsStill is what still counts with one who lent of what came back. It is told by slices of the
// borrower: what may have left the lender's window by now is left out. Of a bucket it is what these
// loans would have left in it by themselves: with what others pour in it is that at least.
func (n *Node) lendsStill(now int64, c *counter, gone returned) (back []stretch) {
	had, left := gone.had, gone.left
	if c.rate.Bucket() {
		if cost := crdt.SatSub(gone.remain(c.rate, had, now), gone.remain(c.rate, left, now)); cost > 0 {
			return []stretch{{from: gone.rate.StartOf(had[0].Slice), to: gone.rate.EndOf(had[len(had)-1].Slice), cost: cost, mine: true}}
		}
		return nil
	}
	var exact *limit.Exact
	if r := n.shard(c.key).find(c.key); r != nil && !r.sparse() && r.block.memory != nil {
		exact = &r.block.memory.exact
	}
	since := c.rate.Since(exact, now)
	for _, cell := range had {
		from, part := gone.rate.StartOf(cell.Slice), crdt.SatSub(cell.Net(), netOf(left, cell.Slice))
		if part > 0 && from >= since {
			back = append(back, stretch{from: from, to: gone.rate.EndOf(cell.Slice), cost: part, mine: true})
		}
	}
	return back
}

// remain is how much is left at now in a bucket into which nothing was poured but these cells.
func (of *returned) remain(bucket *limit.Rate, cells []crdt.Cell, now int64) uint64 {
	level, at := 0.0, now
	drain := func(to int64) {
		level -= float64(bucket.Drain.Refill) * float64(max(0, to-at)) / float64(bucket.Drain.Per)
		level, at = max(0, level), to
	}
	for _, cell := range cells {
		drain(of.rate.StartOf(cell.Slice))
		level += float64(cell.Net())
	}
	drain(now)
	return uint64(level)
}

// cellsOf is what this edge was charged in the slices that a counter has by now; nothing where
// there is no record.
func (n *Node) cellsOf(now int64, c *counter) []crdt.Cell {
	s := n.shard(c.key)
	r := s.find(c.key)
	if r == nil {
		return nil
	}
	s.whole(r)
	r.settle()
	s.retire(r, now)
	cells := slices.Clone(s.sums(r.block))
	for i := range cells {
		cells[i] = r.block.own.Get(cells[i].Slice)
	}
	return cells
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
	for _, own := range []bool{true, false} {
		if of.mine && !own {
			break
		}
		if of.others && own {
			continue
		}
		cells := slices.Clone(s.sums(b))
		if c.rate.Bucket() { // what was poured in first may have drained
			slices.Reverse(cells)
		}
		for _, cell := range cells {
			if !of.has(c.rate, cell.Slice) {
				continue
			}
			back, here := min(cell.Net(), left), b.own.Get(cell.Slice).Net()
			switch {
			case own:
				back = min(back, here)
			case of.others:
				back = min(back, crdt.SatSub(cell.Net(), here))
			}
			if b.memory != nil {
				back = b.memory.exact.Counting(c.rate, cell.Slice, back, own)
			}
			if back > 0 {
				by := theirs
				if own {
					by = whose
				}
				n.giveBack(s, r, &limit.Charge{Slice: cell.Slice}, back, now, by)
				left -= back
			}
		}
	}
	if m := b.memory; m != nil && left > 0 && of.ever() && (free || !c.rate.HasTurns(c.rule)) {
		// A bucket has what its slices have forgotten by now, until it has drained.
		took, carry := m.exact.Lower(c.rate, left, m.carry, now)
		m.carry = carry
		left -= took
		r.until = 0
		r.forgive()
		s.measure(r, now)
	}
	if h := b.confined(); h != nil && left > 0 && of.ever() && c.rate.Scope == limit.ScopeEdge { // nobody else counts what was forgotten
		took := min(left, h.used)
		h.used, h.extra = h.used-took, crdt.SatSub(h.extra, took)
		left -= took
		r.until = 0
		r.forgive()
		s.measure(r, now)
	}
	r.leaves(&unknown, of.cost-left)
	return of.cost - left
}
