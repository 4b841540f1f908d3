package edge

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Refund gives back what a Check charged: cost of each charge, or what is left
// of it if that is less; 0: all. It takes the amount off the charges, so that
// giving back twice gives back once; and of a copy of them no more is given back than is
// still counted where they were, by whomever. What has left its window by now is gone
// already, and the place of who leaves a queue stays empty where others wait behind
// it: see limit.Charge. Rates that count requests (slots, min_gap) are given back only with
// all: a part of its cost leaves a request one that was made. A rule that borrowed has its
// parent get back what it is no more above its own limit, whoever borrowed: see loans. It
// goes through the charges one after the other: who asks meanwhile may be denied by one that
// is yet to come.
func (n *Node) Refund(now time.Time, charges []limit.Charge, cost uint64) {
	t := n.clock.Present(now)
	for i := 0; i < len(charges); {
		own := ownCharges(charges[i:])
		switch {
		case own > 0:
			n.refundOwn(t, charges[i:i+own], charges[i+own:], cost)
		case !borrowedBy(charges[:i], &charges[i]): // else it was given back with that
			n.refund(t, &charges[i], cost)
		}
		i += max(1, own)
	}
}

// refund is Refund of one charge, and says how much of it was not given back before.
func (n *Node) refund(now int64, c *limit.Charge, cost uint64) (back uint64) {
	if c.Cost == 0 {
		return 0
	}
	s := n.shard(deltasync.Key(c.Counter))
	s.mu.Lock()
	defer s.mu.Unlock()
	return n.refundIn(s, now, c, cost)
}

// refundIn is refund in the charge's shard, which is locked.
func (n *Node) refundIn(s *shard, now int64, c *limit.Charge, cost uint64) (back uint64) {
	back = c.Cost
	if cost > 0 {
		back = min(back, cost)
		if c.Rate.CountsRequests() {
			return 0
		}
	}
	defer func(cost uint64) { c.Cost -= cost }(back)
	if c.Borrower != 0 {
		back = n.loans.settle(c, back)
	}
	if back == 0 {
		return 0
	}
	n.amendIn(s, now, c, func(r *record) {
		b := s.whole(r)
		r.settle()
		s.recall(b, now)
		if !r.counts(c, now) || !s.mayReturn(r, c, now) {
			return
		}
		left, known, h := back, b.own.Get(c.Slice).Plus(b.others.Get(c.Slice)), b.confined()
		switch { // A record that was forgotten knows of no charges there, and takes the receipt's word.
		case h != nil && h.before(c): // as far as so much was used then
			left = min(back, max(known.Net(), h.used))
		case h != nil && known.Charges > 0 && c.Slice == c.Rate.SliceAt(h.born): // what was given back of before is none of it
			left = min(back, known.Charges, crdt.SatAdd(known.Net(), h.back))
		case s.strayed.has(b.rate, c.Slice, now) && s.private(b.rate): // takeBack finds it
		case known.Charges > 0:
			left = min(back, known.Net())
		}
		if left > 0 {
			r.leaves(c, left)
			n.takeBack(s, r, c, left, now)
		}
	})
	return back
}

// Renew holds on to what a Check charged to concurrency limits: each charge is
// given back and made anew, good for a lease from now, whatever room there is: one whose
// lease is over may be another's by now. Other charges stay as they are.
func (n *Node) Renew(now time.Time, charges []limit.Charge) {
	t := n.clock.Present(now)
	for i := range charges {
		if c := &charges[i]; c.Rate.Lease > 0 && c.Cost > 0 {
			n.renew(t, c)
		}
	}
}

func (n *Node) renew(now int64, c *limit.Charge) {
	s := n.shard(deltasync.Key(c.Counter))
	counters := []counter{{key: deltasync.Key(c.Counter)}}
	if c.Borrower != 0 { // its notes are changed, which lockLoans relies on
		counters = append(counters, counter{key: deltasync.Key(c.Borrower)})
	}
	held := n.lock(counters)
	defer n.unlock(&held)
	if c.Borrower != 0 {
		if c.Cost = n.loans.settle(c, c.Cost); c.Cost == 0 {
			return // the rule has room of its own for it by now
		}
	}
	n.amendIn(s, now, c, func(r *record) {
		s.whole(r)
		r.settle()
		s.recall(r.block, now)
		n.takeBack(s, r, c, c.Cost, now)
		s.fold(r, c.Rule, c.Rate, now)
		n.charge(s, r, c.Rate, c.Cost)
		c.Slice, c.At, c.Boot = r.block.slice, now, r.spentRights(c.Rate)
		n.loans.note(r, c, c.Borrower, now)
	})
}

// amendIn has f change the record of a charge, in its shard, which is locked; one that was
// forgotten meanwhile is born again, as counts add up whatever life wrote them.
func (n *Node) amendIn(s *shard, now int64, c *limit.Charge, f func(*record)) {
	key := deltasync.Key(c.Counter)
	r := s.find(key)
	if r == nil {
		if n.retired(c.Rate) {
			return
		}
		r = n.admit(s, key, n.inForce(c.Rate), now, nil)
	}
	f(r)
}

// retired says that no rule in force has the buckets of a rate, so that a record that was
// born for a refund would be found as it is, and without what was charged since, were they
// to come back.
func (n *Node) retired(rate *limit.Rate) bool {
	return n.formers.Load().became(rate) || rate.Bucket() && (*n.rates.Load())[rate.Generation] == nil
}

// counts says that a charge may still count, of a record that is settled.
func (r *record) counts(c *limit.Charge, now int64) bool {
	m := r.block.memory
	return m == nil || m.exact.Counts(c.Rate, c.At, now)
}

// mayReturn says that a charge to a record that is settled may be given back; see
// limit.Charge.
func (s *shard) mayReturn(r *record, c *limit.Charge, now int64) bool {
	m := r.block.memory
	return m == nil || c.MayReturn(&m.exact, s.sums(r.block), m.carry, now)
}

// waited says that nobody waits whom a bucket told to, of which all charges are this edge's,
// which knows of all turns then.
func (s *shard) waited(r *record, rate *limit.Rate, now int64) bool {
	m := r.block.memory
	switch {
	case m == nil:
		return false
	case rate.Scope == limit.ScopeEdge:
		return m.exact.Waited(rate, now)
	case m.carry.Level > 0:
		return false
	}
	for _, cell := range s.sums(r.block) {
		if cell.Net() > r.block.own.Get(cell.Slice).Net() {
			return false
		}
	}
	return m.exact.Waited(rate, now)
}

// leaves notes that a request gives back its place in a queue.
func (r *record) leaves(c *limit.Charge, cost uint64) {
	if m := r.block.memory; m != nil {
		m.exact.Leaves(c, cost)
	}
}

// charger is when this edge charged what is given back, by the clock that rights go by. Where it
// may have been another no right is free by it.
type charger time.Duration

const (
	theirs charger = 0
	dated  charger = -1 // the receipt says when
)

// giveBack books a refund beside its charge, of which the slice is known at least.
func (n *Node) giveBack(s *shard, r *record, of *limit.Charge, cost uint64, now int64, by charger) {
	n.giveBackIn(s, r, of.Slice, of, cost, now, by)
}

// giveBackIn is giveBack where the charge stands in another slice by now.
func (n *Node) giveBackIn(s *shard, r *record, slice crdt.Slice, of *limit.Charge, cost uint64, now int64, by charger) {
	if slice < r.block.rate.Reach(now) {
		return
	}
	b := s.whole(r)
	r.settle()
	b.own.Add(crdt.Cell{Slice: slice, Refunds: cost})
	if b.memory != nil {
		b.spill(slice, b.memory.exact.Refund(b.rate, cost, of.Slice, of.At, &b.own, now))
	}
	if h := b.confined(); h != nil {
		h.used, h.extra = crdt.SatSub(h.used, cost), crdt.SatSub(h.extra, cost)
	}
	if b.share != nil && b.share.rights != nil && by != theirs {
		if rt := b.share.rights; by == dated && of.Boot > 0 || by > 0 && rt.spentIn(time.Duration(by)) {
			rt.spent.GiveBack(b.rate, cost, slice, of.Boot)
		}
	}
	r.until = 0
	r.forgive()
	s.measure(r, now)
	if b.rate.Scope == limit.ScopeEdge {
		return
	}
	b.unsent = min(b.unsent, slice)
	s.mark(r, charged|urgent) // somebody may be waiting for it elsewhere
	n.hurry.Store(true)
}

// Report charges what a request turned out to cost, whatever room there is: to
// all rates of all rules that apply, but for those that count requests (slots,
// min_gap), as it is none, and for rules that count responses: see Answered. What is above
// the limit of a rule that borrows is charged to its parent too, whatever room there is; and
// what that had no room for stands in the way of the rule's own, too. It is for work that is
// done, whose cost nobody knew before. The decision says how things stand then; it allows,
// always.
func (n *Node) Report(now time.Time, req *limit.Request) limit.Decision {
	var room [maxCounters]counter
	t := n.clock.Present(now)
	req.At(t)
	counters := forReports(n.counters(t, req, req.Rules(), room[:0]), (*limit.Rate).CountsRequests)
	return n.bookAll(t, req, counters)
}

// Answered charges a request by what became of it, to the rules that count
// certain responses only (count_when): set response.status, or whatever they
// read, and call it when the response is known. A Check had asked them, and
// charged the others. What is above the limit of a rule that borrows is charged
// to its parent too, unless that applies by itself, and was charged then.
func (n *Node) Answered(now time.Time, req *limit.Request) {
	req.At(n.clock.Present(now))
	all := req.Rules()
	counting := make([]*limit.Rule, 0, 8)
	for _, r := range all {
		if r.CountsAfter() && r.Counts(req) {
			counting = append(counting, r)
		}
	}
	if req.Recorded = false; len(counting) == 0 {
		return
	}
	var room [maxCounters]counter
	t := n.clock.Present(now)
	counters := n.counters(t, req, counting, room[:0])
	if slices.ContainsFunc(counters, func(c counter) bool { return c.lends }) {
		asked := n.counters(t, req, all, nil)
		counters = slices.DeleteFunc(counters, func(c counter) bool {
			own := func(a counter) bool { return a.key == c.key && !a.lends }
			return c.lends && (c.borrower.Mode != limit.Enforce || slices.ContainsFunc(asked, own))
		})
	}
	n.bookAll(t, req, counters)
}

// spareFull marks the counters of shadow rules with count_when that have no room by now.
// Were they live the request would have been denied, and not answered; but for those that
// came while others were not answered yet, which nobody tells apart here.
func (n *Node) spareFull(now int64, counters []counter) {
	for i := range counters {
		if c := &counters[i]; c.rule.Mode == limit.Shadow && c.rule.CountsAfter() && !c.lends {
			again := *c
			n.judge(now, &again, counters)
			c.rate, c.open, c.over = again.rate, again.open, again.over
		}
	}
	spareTrials(counters)
}

// bookAll charges all counters that do not lend, and those that do where their
// borrower is above its own limits.
func (n *Node) bookAll(now int64, req *limit.Request, counters []counter) limit.Decision {
	req.Recorded = false
	if len(counters) == 0 {
		return limit.Decision{Allowed: true}
	}
	held := n.lock(counters)
	defer n.unlock(&held)
	counters = n.withLent(counters)
	n.gather(now, counters)
	defer n.leave(counters)
	n.drainLent(now, counters)
	for i := range counters {
		c := &counters[i]
		if !c.record.covers(c, now) {
			n.refold(c, now)
		}
		if c.lends {
			part := n.borrows(now, c.borrower, counters)
			if c.beside != nil && c.beside.Forgets() {
				part = min(part, n.lendsYet(now, c, counters))
			}
			c.lent, c.part = part > 0, part
			c.costs(part)
		}
	}
	n.spareFull(now, counters)
	d := n.report(now, req, counters, false)
	for i := range counters {
		if c := &counters[i]; (!c.lends || c.lent) && !c.spared {
			if !c.lends && c.rate.Open != nil { // a log keeps as many hits as may be admitted
				open := *c
				open.rate = c.rate.Open
				n.refold(&open, now)
			}
			n.book(c)
			req.Recorded = req.Recorded || c.cost > 0 && c.rule.Live == nil
		}
	}
	return d
}
