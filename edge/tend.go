package edge

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// tend looks after the rights of a counter, asked for or not. It is called about once
// a second.
func (s *shard) tend(r *record, now int64) {
	if r.sparse() || r.block.share == nil || r.block.share.rights == nil {
		return
	}
	sh, rate := r.block.share, r.block.rate
	rt := sh.rights
	if !asks(rate) || !escrows(rate) {
		return
	}
	boot := rt.escrow.boot()
	rt.wall = now
	held := rt.held(boot)
	used := rt.spent.Used(rate, held, limit.Instant{Boot: boot, Wall: now})
	sh.own.Turn(limit.SpansOf(rate.Window), now)
	want := rt.wants(sh, rate, used)
	all, few := rate.Idle()
	switch {
	case rt.recalled:
		s.yield(r, used, want, now)
	case want > 0:
		rt.idle = 0
	case rt.idle == 0:
		rt.idle = boot
	case boot-rt.idle > few:
		s.returns(r, 0, now)
	case boot-rt.idle > all:
		keep := uint64(0)
		if s.keeping < rt.escrow.mostKept {
			s.keeping++
			keep = rt.few()
		}
		s.returns(r, keep, now)
	}
	if rt.granted > rt.returned && boot-rt.asked > rt.renews(boot) {
		s.claim(r)
	}
}

// few is how many rights are kept for who comes seldom: as what was denied last would need four
// times, but no more than a sixteenth of the limit beyond one.
func (rt *rights) few() uint64 {
	return max(rt.cost, min(4*rt.cost, rt.ceiling/16))
}

// mostKept is how many counters of a shard keep a few at a time, for a node with so many bytes a second: a
// claim in each for three fifths of a lease is a quarter of them at the most, and no node keeps an authority
// busy with more than fifty thousand that nobody asks for. Who comes once, or means ill, makes as many as he likes.
func mostKept(budget int64) int32 {
	most := int64(50_000)
	if budget > 0 {
		most = min(most, budget/4/claimBytes*int64(deltasync.DefaultLease*3/5/time.Second))
	}
	return int32(max(1, most/shards))
}

// awake is for how long after a request a counter's rights are renewed at the usual pace.
const awake = 2 * time.Minute

// renews is how long after a claim the next is due that renews the lease: a third of that, so
// that two may be lost. Where nobody asks it is later, and sooner again once one was
// not answered.
func (rt *rights) renews(boot time.Duration) time.Duration {
	lease := time.Duration(rt.escrow.lease.Load())
	switch {
	case boot-max(rt.seen, rt.last) < awake:
		return lease / 3
	case rt.unheard == 0:
		return lease * 3 / 5
	}
	return lease / 5
}

// keeps says that the record of a counter must stay, as it has rights, may have been
// granted some, or has returned some and the authority may not know: what is forgotten
// is nobody's until the lease is over.
func (rt *rights) keeps() bool {
	boot := rt.escrow.boot()
	if boot < rt.until && rt.granted > rt.returned {
		return true
	}
	if rt.asked != 0 && boot-rt.asked < awaited {
		return true
	}
	return max(rt.gave, rt.asked) > rt.answered && boot-max(rt.gave, rt.asked) < time.Duration(rt.escrow.lease.Load())
}

// awaited is how long after a claim rights may come that it asked for: the authority
// takes it for true for a second.
const awaited = believed + claimTimeout

// returns gives back what is above so many rights, as far as it is not spent.
func (s *shard) returns(r *record, keep uint64, now int64) {
	rt := r.block.share.rights
	boot := rt.escrow.boot()
	held := rt.held(boot)
	if keep = max(keep, rt.stays(r.block.rate, held, now, boot)); held > keep {
		rt.returned += held - keep
		rt.gave = boot
		s.claim(r)
	}
}

// stays is how many rights cannot be returned now, as they are spent.
func (rt *rights) stays(rate *limit.Rate, held uint64, now int64, boot time.Duration) uint64 {
	bound := rt.spent.Bound(rate, held, limit.Instant{Boot: boot, Wall: now})
	if boot < rt.unbound {
		bound = max(bound, rt.bound)
	}
	return bound
}

// yield returns what others need: what is above the counter's part, or above what it
// wants by now.
func (s *shard) yield(r *record, used, want uint64, now int64) {
	rt := r.block.share.rights
	s.returns(r, max(min(rt.target, want), crdt.SatAdd(used, rt.short)), now)
	if far(want, rt.told) {
		s.claim(r)
	}
}

// far says that what is wanted is far from what was told.
func far(want, told uint64) bool { return want > told+told/4 || want < told-told/4 }
