package edge

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// loans are what was borrowed with receipts that are out. A receipt names what its own
// request borrowed; but whoever had room of the rule's own, and gives that back, makes room
// for one who borrowed. So the parent gets that back at once, and nothing any more by the
// receipt that names it. What is not noted here is given back by its receipt alone; so is
// what rights were spent for, as they are proved by that.
type loans struct {
	parts   [64]loanPart
	unnoted atomic.Uint64 // for which there was no room
}

type loanPart struct {
	mu sync.Mutex        // guards by; shards may be locked, and nothing is locked meanwhile
	by map[uint64][]loan // by the counter of the borrower
}

func (n *loans) of(borrower uint64) *loanPart { return &n.parts[borrower%uint64(len(n.parts))] }

// Of more than that, what is over is noted no more until some are given back.
const (
	mostBorrowers = 32 // in each part: with as many loans some 20 MB in all
	mostLoans     = 96 // of each: slices of the counters that lend, and of what counts that
)

// loan is what was borrowed of one counter in one slice.
type loan struct {
	limit.Charge        // its Cost is what was not given back
	repaid       uint64 // what was, and receipts name yet
	first        int64  // of a window that begins with a hit, as there may be two in a slice: its first; else 0
}

func (l *loan) of(c *limit.Charge) bool { return l.Counter == c.Counter && l.Slice == c.Slice }

// swaps says that what a counter lends is of the same units as what its borrower has, and
// may be given back for another's.
func swaps(c *counter) bool {
	one := func(rate *limit.Rate, rule *limit.Rule) bool {
		return rate.PerRequest || !escrows(rate) && !rate.HasTurns(rule) && rate.CountsRequests() == c.rate.CountsRequests()
	}
	for _, rate := range c.borrower.Rates {
		if !one(rate, c.borrower) {
			return false
		}
	}
	return one(c.rate, c.rule)
}

// borrowerOf is the counter that a loan is known by: the borrower's first.
func borrowerOf(lender *counter, counters []counter) uint64 {
	for i := range counters {
		if c := &counters[i]; c.rule == lender.borrower && !c.lends {
			return uint64(c.key)
		}
	}
	return 0
}

// note notes a charge to a record that was borrowed for a counter, and in it for whom: also where there
// is no room to note it, as its receipt gives it back then.
func (n *loans) note(r *record, c *limit.Charge, borrower uint64, now int64) {
	if c.Borrower = borrower; borrower == 0 {
		return
	}
	p := n.of(borrower)
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.by[borrower]
	first, over := int64(0), false
	i := slices.IndexFunc(all, func(l loan) bool { return l.of(c) })
	if c.Rate.Algorithm == limit.FirstHit {
		first = c.At
		over = i >= 0 && r.block.memory.exact.Over(c.Rate, all[i].At, now)
	}
	switch {
	case over: // what was lent in the window before counts no more
		all[i] = loan{Charge: *c, first: first}
		all[i].Cost = 0
	case i >= 0 && first != 0:
		all[i].first, all[i].At = min(all[i].first, first), max(all[i].At, first)
	}
	if i < 0 {
		full := func() bool { return len(all) >= mostLoans || all == nil && len(p.by) >= mostBorrowers }
		if full() {
			p.prune(now)
			all = p.by[borrower]
		}
		if full() {
			if !c.Rate.Lent { // which stands beside what was lent
				n.unnoted.Add(1)
			}
			return
		}
		i, all = len(all), append(all, loan{Charge: *c, first: first})
		all[i].Cost = 0
	}
	all[i].Cost = crdt.SatAdd(all[i].Cost, c.Cost)
	if p.by == nil {
		p.by = map[uint64][]loan{}
	}
	p.by[borrower] = all
}

// prune forgets what has left its window.
func (p *loanPart) prune(now int64) {
	for borrower, all := range p.by {
		if all = slices.DeleteFunc(all, func(l loan) bool { return l.Slice < l.Rate.Reach(now) }); len(all) == 0 {
			delete(p.by, borrower)
		} else {
			p.by[borrower] = all
		}
	}
}

// settle takes off what a receipt gives back, and says how much of it was not yet.
func (n *loans) settle(c *limit.Charge, cost uint64) (back uint64) {
	p := n.of(c.Borrower)
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.by[c.Borrower]
	i := slices.IndexFunc(all, func(l loan) bool { return l.of(c) && c.At >= l.first })
	if i < 0 {
		return cost
	}
	l := &all[i]
	void := min(cost, l.repaid)
	l.repaid -= void
	if l.Cost = crdt.SatSub(l.Cost, cost-void); l.Cost == 0 && l.repaid == 0 {
		if all = slices.Delete(all, i, i+1); len(all) == 0 {
			delete(p.by, c.Borrower)
		} else {
			p.by[c.Borrower] = all
		}
	}
	return cost - void
}

// any says that something is noted of a borrower.
func (n *loans) any(borrower uint64) bool {
	p := n.of(borrower)
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.by[borrower]) > 0
}

// lenders are the counters that are noted to have lent to a borrower.
func (n *loans) lenders(borrower uint64) (counters []counter) {
	p := n.of(borrower)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.by[borrower] {
		key := deltasync.Key(l.Counter)
		if !slices.ContainsFunc(counters, func(c counter) bool { return c.key == key }) {
			counters = append(counters, counter{key: key})
		}
	}
	return counters
}

// oldestFirst are a borrower's loans in the order of their slices. The part is locked.
func (p *loanPart) oldestFirst(borrower uint64) []loan {
	all := p.by[borrower]
	slices.SortFunc(all, func(a, b loan) int { return cmp.Compare(a.Slice, b.Slice) })
	return all
}

// repay is what is given back to those who lend of what they lent to others, as the borrower
// is no more above its limit by so much, and so much was given back already: the oldest that
// still count, so that what stays lent does so for as long as it can.
func (n *loans) repay(borrower, freed uint64, given []limit.Charge, now int64) (back []limit.Charge) {
	p := n.of(borrower)
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.oldestFirst(borrower)
	for i := range all {
		l, left := &all[i], freed
		for _, done := range [][]limit.Charge{given, back} {
			for k := range done {
				if done[k].Counter == l.Counter {
					left = crdt.SatSub(left, done[k].Cost)
				}
			}
		}
		if left = min(left, l.Cost); left == 0 || l.Slice < l.Rate.Reach(now) {
			continue
		}
		l.Cost -= left
		l.repaid += left
		back = append(back, l.Charge)
		back[len(back)-1].Cost, back[len(back)-1].Borrower = left, 0
	}
	return back
}

// returned notes that so much of what a counter lent to a borrower was given back in nobody's
// name, so that receipts that name it give it back no more: the oldest first, as repay does.
func (n *loans) returned(borrower, lender, back uint64, now int64) {
	p := n.of(borrower)
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.oldestFirst(borrower)
	for i := range all {
		if l := &all[i]; l.Counter == lender && l.Slice >= l.Rate.Reach(now) {
			part := min(back, l.Cost)
			l.Cost -= part
			l.repaid += part
			back -= part
		}
	}
}

// ownCharges is how many charges, from the first on, are those of one rule that may borrow, to
// itself.
func ownCharges(charges []limit.Charge) (count int) {
	for i := range charges {
		c := &charges[i]
		if c.Borrower != 0 || c.Rule != charges[0].Rule || c.Rule == nil || c.Rule.Elastic == nil || c.Rule.Elastic.Parent == nil || c.Counter>>56 != charges[0].Counter>>56 {
			break
		}
		count++
	}
	return count
}

// borrowedBy says that a charge was borrowed for one of the others.
func borrowedBy(others []limit.Charge, c *limit.Charge) bool {
	return c.Borrower != 0 && slices.ContainsFunc(others, func(own limit.Charge) bool { return own.Counter == c.Borrower && own.Borrower == 0 })
}

// refundOwn is Refund of a rule's own charges, which stand in one shard, and of what it
// borrowed, among the others, at once: who asks between the two would find room of the rule's own
// that is lent yet.
func (n *Node) refundOwn(now int64, own, others []limit.Charge, cost uint64) {
	held := n.lockLoans(own, others)
	defer n.unlock(&held)
	refund := func(c *limit.Charge, cost uint64) uint64 {
		return n.refundIn(n.shard(deltasync.Key(c.Counter)), now, c, cost)
	}
	freed, owed := n.refundFreed(now, own, cost)
	var given []limit.Charge
	for i := range others {
		if c := &others[i]; borrowedBy(own, c) {
			over, back := n.isOver(now, c), refund(c, cost)
			if over { // others' loans came in its place: what these are more than is owed yet comes back
				back = min(back, freed)
				back -= min(back, crdt.SatSub(n.loans.outstanding(own[0].Counter, c.Counter, now), owed))
			}
			given = append(given, limit.Charge{Counter: c.Counter, Cost: back})
		}
	}
	if freed > 0 {
		for _, c := range n.loans.repay(own[0].Counter, freed, given, now) {
			refund(&c, 0)
		}
	}
}

// lockLoans locks the shards of a rule's own charges, of what it borrowed among the others, and of
// all that is noted to have lent to it.
func (n *Node) lockLoans(own, others []limit.Charge) (held lockSet) {
	for {
		counters := n.loans.lenders(own[0].Counter)
		counters = append(counters, counter{key: deltasync.Key(own[0].Counter)})
		for i := range others {
			if c := &others[i]; borrowedBy(own, c) {
				counters = append(counters, counter{key: deltasync.Key(c.Counter)})
			}
		}
		held = n.lock(counters)
		if now := n.loans.lenders(own[0].Counter); !slices.ContainsFunc(now, func(c counter) bool {
			return !slices.ContainsFunc(counters, func(was counter) bool { return was.key == c.key })
		}) {
			return held
		}
		n.unlock(&held) // another was noted meanwhile, which nobody does while the own are locked
	}
}

// isOver says that a charge was borrowed in a window that began with a hit, and is over. The shard
// is locked.
func (n *Node) isOver(now int64, c *limit.Charge) bool {
	if c.Rate.Algorithm != limit.FirstHit {
		return false
	}
	r := n.shard(deltasync.Key(c.Counter)).find(deltasync.Key(c.Counter))
	return r != nil && !r.sparse() && !r.counts(c, now)
}

// outstanding is what a counter is noted to have lent to a borrower, and still counts.
func (n *loans) outstanding(borrower, lender uint64, now int64) (sum uint64) {
	p := n.of(borrower)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.by[borrower] {
		if l.Counter == lender && l.Slice >= l.Rate.Reach(now) {
			sum += l.Cost
		}
	}
	return sum
}

// refundFreed gives back a rule's own charges, and says how much less it owes then, and how much
// yet, if anything is noted of it. The shard is locked.
func (n *Node) refundFreed(now int64, own []limit.Charge, cost uint64) (freed, owed uint64) {
	s := n.shard(deltasync.Key(own[0].Counter))
	var counters []counter
	if n.loans.any(own[0].Counter) {
		for i := range own {
			if c := &own[i]; !c.Rate.PerRequest {
				counters = append(counters, counter{key: deltasync.Key(c.Counter), rule: c.Rule, rate: closed(c), need: c.Withheld})
			}
		}
	}
	before := n.owes(now, own[0].Rule, counters)
	for i := range own {
		if own[i].Cost > 0 {
			n.refundIn(s, now, &own[i], cost)
		}
	}
	owed = n.owes(now, own[0].Rule, counters)
	return crdt.SatSub(before, owed), owed
}

// closed is the rate of a charge without its elastic margin.
func closed(c *limit.Charge) *limit.Rate {
	for _, rate := range c.Rule.Rates {
		if rate.Open == c.Rate {
			return rate
		}
	}
	return c.Rate
}
