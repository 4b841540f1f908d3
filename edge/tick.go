package edge

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Tick retires idle keys and marks for sending again what was last sent long
// ago. Call it about ten times a second: each call looks at a tenth of the
// ledger.
func (n *Node) Tick(now time.Time) {
	t := n.clock.Present(now)
	if f := n.formers.Load(); f != nil {
		f.changed(t)
	}
	n.mu.Lock()
	n.distinct.turn(t)
	for i := range n.lanes {
		n.resend.lanes[i].unstored = n.lanes[i].remedy(t)
	}
	from, resend := n.swept, n.resend
	step, set := n.clock.Turn(now)
	n.swept = (from + sweptAtOnce) % shards
	if n.unmarked = max(0, n.unmarked-sweptAtOnce); n.unmarked == 0 {
		n.rested() // but for this last stretch
	}
	n.mu.Unlock()
	if set != 0 {
		n.cfg.Logger.Warn("this machine's clock was set: counting on from what it showed", "by", set)
	}
	if step != 0 {
		n.cfg.Logger.Warn("this machine's clock is not the region's: counting by the region's", "off", -step)
	}
	n.tellWithheld(t)
	n.capacities.sweep(t)
	// A stretch of each shard, then the next stretch of each: a decision waits
	// for one at most, and meets no sweep that takes the lock again at once.
	marks := laneSet(0)
	for place, more := 0, true; more; place += sweepStretch {
		more = false
		for k := range sweptAtOnce {
			s := &n.shards[(from+k)%shards]
			unswept, met := n.sweep(s, place, t, &resend)
			more, marks = more || unswept, marks|met
			if s.sweepBlocked(t) {
				more = true
			}
		}
	}
	n.mu.Lock()
	for i := range n.lanes {
		n.lanes[i].settle(t, sweptAtOnce, resend.lanes[i].unstored, marks&(1<<i) != 0)
	}
	n.mu.Unlock()
}

// sweptAtOnce is how many shards a Tick looks at.
const sweptAtOnce = shards/10 + 1

// sweepStretch is how many places of the ledger are swept under one lock: what
// a decision may have to wait for, a microsecond or two. A lock that is held for
// longer than waiters spin costs them a turn of the scheduler besides.
const sweepStretch = 8

// laneSet is a set of lanes, a bit each.
type laneSet uint64

// sweep looks at the places of a shard from one on, and says whether there are
// more behind them, and of which lanes it met records that are marked as
// unstored. A record that moves meanwhile waits for the next round.
func (n *Node) sweep(s *shard, from int, now int64, resend *resend) (more bool, marks laneSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wave, s.tended = uint16(resend.wave), true
	now = s.steady(now)
	if from == 0 {
		s.keeping = 0
	}
	changed := n.formers.Load()
	var heirs []heir
	for i := from; i < min(from+sweepStretch, len(s.table)); i++ {
		r := &s.table[i]
		if r.key == 0 {
			continue
		}
		if changed != nil && len(changed.heirs) > 0 {
			if h, ok := changed.heirOf(r); ok && s.find(h.key) == nil {
				heirs = append(heirs, h)
				continue
			}
		}
		b := r.block
		if r.until-int64(b.rate.Hold) > now { // a clock was set back: what was found then would hold again when it is then
			r.until = 0
			if r.flags&refused != 0 {
				r.forgive()
			}
		}
		s.amidCut(r, b.rate, now)
		if r.sparse() && r.fresh > 0 && s.private(b.rate) && b.slice > b.rate.SliceAt(now+int64(maxAhead)) {
			b = s.whole(r) // a clock was set back
		}
		if r.sparse() {
			r.expire(now - keptOn(b.rate))
		} else {
			r.settle()
			s.tend(r, now)
			s.recall(b, now)
			s.retire(r, now-keptOn(b.rate))
			if b.rate.Bucket() { // else what rules made smaller, or slower, is gone when it would have been before
				s.goesBy(b, n.inForce(b.rate), now)
			}
			_ = b.punished(now) // a penalty of before a clock was set back is cut here at the latest
		}
		if !r.tells(now) {
			s.paid(r)
		}
		if r.flags&dirty == 0 && now >= r.until && r.idle(now) {
			s.remove(i)
			i-- // another may have moved here
			continue
		}
		lane := r.key.Lane(len(n.lanes))
		again := &resend.lanes[lane]
		if again.unstored == trust {
			r.regions &^= unstoredMark
		}
		sent := r.sentAt()
		if !r.tells(now) || b.rate.Scope == limit.ScopeEdge || sent == 0 && !r.heeds() {
			continue
		}
		if r.regions&unstoredMark != 0 {
			marks |= 1 << lane
		}
		concerned := again.concerns(r, now)
		if !concerned && !r.sparse() {
			b.wave = s.wave
		}
		switch {
		case sent == 0 && b.wave == s.wave: // who told the penalty does so now and then
		case b.wave != s.wave && concerned:
			s.resend(r, now, hot)
		case lapsed(now, r.fullAt(), refreshAfter(b.rate)):
			s.resend(r, now, cold) // a flood of keys is refreshed as one: not before what changes
		case r.flags&owed != 0: // it is told again soon, and heard of then
		case r.regions&unstoredMark != 0 && again.unstored == tell:
			s.resend(r, now, hot)
		case lapsed(now, sent, afterword) && r.heard < sent+int64(afterword) && r.known() >= (b.rate.Limit+3)/4:
			s.mark(r, touch)
		}
	}
	n.inherit(s, heirs, now)
	// Keys that grew since they came may have to make room too.
	for range sweepStretch {
		if !s.heavy() || !n.evict(s, deltasync.Key(from), now, nil) {
			break
		}
	}
	return from+sweepStretch < len(s.table), marks
}

// afterword is how long after its last counts an edge asks once more about a
// key that has a quarter of its limit used: what others counted meanwhile has
// come round by then. Without it, edges that fell silent together would not
// agree before the next refresh.
const afterword = 500 * time.Millisecond
