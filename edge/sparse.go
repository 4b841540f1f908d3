package edge

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// A record is sparse while all that is known of its key is what this edge
// charged in one slice, as it is for most keys: then that stands in fresh, and
// the record has no block of its own. What else its block would say is the same
// for all such records of the shard under one rate in one slice. They share a
// block that says it, the common one: it has no cells, and nobody writes to it.
//
// Of a sparse record local and merged hold its life, and when its charges were
// last sent. Whatever does more with it than charge it, tell of it and hear
// that nobody else counted anything makes it whole first.

// Marks and a number share record.regions.
const (
	sparseMark   = 1 << 7
	unstoredMark = 1 << 6 // some of its counts are in an aggregator's memory alone
	mostRegions  = unstoredMark - 1
)

func (r *record) sparse() bool { return r.regions&sparseMark != 0 }

// hears notes that the key was heard of, in so many regions.
func (r *record) hears(now int64, regions uint16) {
	r.heard, r.regions = now, r.regions&^mostRegions|uint8(min(regions, mostRegions))
}

// commons is how many common blocks a shard knows, by rate and slice. Where two
// want one place, the one before goes on without newcomers.
const commons = 16

// sentUnit is how exactly a sparse record knows when it was sent. It can tell 49
// days: from longestRest before counts are due again, and for as long before
// that; the rest is for common blocks that are in use for long.
const (
	sentUnit    = int64(time.Millisecond)
	longestRest = 10 * 24 * time.Hour
)

// thins says that records of the rate may be sparse.
func thins(rate *limit.Rate) bool {
	return !rate.Exact() && !escrows(rate) && refreshAfter(rate) <= longestRest
}

// reservedWeight is set aside in the budget for every sparse record, half of a
// block: many become whole one day.
const reservedWeight = blockBytes / 2 / 16

// common is the block for a sparse record of a rate and slice, which has
// answered the present wave of resends, or never was sent. Its sentAt is what
// its records count from: so long ago that counts sent then are due again.
func (s *shard) common(rate *limit.Rate, slice crdt.Slice, now int64) *block {
	due := now - int64(refreshAfter(rate)) - sentUnit
	place := &s.commons[(rate.Generation^rate.Limit^uint64(slice))*0x9e3779b97f4a7c15>>60]
	if b := *place; b != nil {
		if b.rate == rate && b.slice == slice && b.wave == s.wave && b.sentAt <= due && (due-b.sentAt)/sentUnit < 1<<31 {
			return b
		}
		s.release(b)
	}
	b := s.newBlock()
	b.remember(rate)
	b.rate, b.slice, b.wave = rate, slice, s.wave
	b.sentAt = due - int64(longestRest)
	b.life = 1 // its place in commons is a share
	s.weigh(b)
	*place = b
	return b
}

// release gives up a share of a common block.
func (s *shard) release(b *block) {
	if b.life--; b.life == 0 {
		s.weight -= int(b.weight)
		s.recycle(b)
	}
}

// share puts a sparse record that was last sent at an instant, 0: never, under
// a common block.
func (s *shard) share(r *record, b *block, sent int64) {
	b.life++
	if r.block != nil {
		s.release(r.block)
	}
	r.block = b
	r.merged = 0
	if sent != 0 {
		r.merged = uint32(1 + max(0, sent-b.sentAt)/sentUnit)
	}
}

// vacate gives back the block of a record that goes.
func (s *shard) vacate(r *record) {
	if r.sparse() {
		s.weight -= reservedWeight
		s.release(r.block)
		return
	}
	s.weight -= int(r.block.weight)
	s.recycle(r.block)
}

// thin makes a new record sparse.
func (s *shard) thin(r *record, rate *limit.Rate, life uint32, now int64) {
	r.regions |= sparseMark
	r.local = life
	s.share(r, s.common(rate, rate.SliceAt(now), now), 0)
	s.weight += reservedWeight
}

// whole gives a sparse record a block of its own, and is the record's block.
func (s *shard) whole(r *record) *block {
	if !r.sparse() {
		return r.block
	}
	from, b := r.block, s.newBlock()
	b.remember(from.rate)
	b.rate, b.slice, b.life = from.rate, from.slice, r.local
	b.sentAt, b.wave = r.sentAt(), from.wave
	b.fullAt = b.sentAt
	if r.flags&charged != 0 {
		b.unsent = b.slice
	}
	r.block, r.local, r.merged = b, 0, 0
	r.regions &^= sparseMark
	r.settle()
	s.weight -= reservedWeight
	s.release(from)
	s.weigh(b)
	return b
}

// foldSparse is fold of a sparse record that can stay so: what it was charged
// is of this slice, or matters no more, and no resend is under way.
func (s *shard) foldSparse(r *record, rate *limit.Rate, now int64) bool {
	slice := rate.SliceAt(now)
	r.expire(now)
	if r.fresh > 0 && r.block.slice != slice || !thins(rate) {
		return false
	}
	if r.block.rate != rate || r.block.slice != slice {
		b, sent := s.common(rate, slice, now), r.sentAt()
		if sent != 0 && b.wave != r.block.wave {
			return false
		}
		s.share(r, b, sent)
	}
	s.scratch = append(s.scratch[:0], r.cell())
	level := rate.Used(s.scratch, crdt.Carry{}, now)
	r.allowance = rate.Room(level)
	if s.shares(rate) && !s.cluster.opens(rate, now) {
		cost, far := s.cluster.far(rate, level, r.block, rate.Rounded(level), now)
		if !far {
			return false
		}
		r.allowance = min(r.allowance, cost)
	}
	r.until = rate.EndOf(slice)
	r.rescale(rate)
	return true
}

// expire drops the charges of a sparse record that are out of reach.
func (r *record) expire(now int64) {
	if b := r.block; b.slice < b.rate.Reach(now) {
		r.fresh = 0
	}
}

// cell is what a sparse record was charged.
func (r *record) cell() crdt.Cell { return crdt.Cell{Slice: r.block.slice, Charges: r.fresh} }

// known is how much of its limit a record is known to have in use.
func (r *record) known() uint64 {
	if r.sparse() {
		return r.fresh
	}
	const most = 1<<32 - 1
	if r.local < most && r.merged < most { // as of nearly all: no block is read
		return crdt.SatAdd(uint64(r.local)+uint64(r.merged), r.fresh)
	}
	local, merged := r.counted(r.block.rate)
	return crdt.SatAdd(crdt.SatAdd(local, merged), r.fresh)
}

// life is the one that the record was born under.
func (r *record) life() uint32 {
	if r.sparse() {
		return r.local
	}
	return r.block.life
}

// sentAt is when own counts were last handed over; 0: never under this life.
func (r *record) sentAt() int64 {
	switch {
	case !r.sparse():
		return r.block.sentAt
	case r.merged == 0:
		return 0
	}
	return r.block.sentAt + int64(r.merged-1)*sentUnit
}

// sentBy is the instant that they were sent at or before: a sparse record has
// it rounded down.
func (r *record) sentBy() int64 {
	if r.sparse() {
		return r.sentAt() + sentUnit - 1
	}
	return r.block.sentAt
}

// fullAt is when all live own counts were last handed over together. A sparse
// record has no others.
func (r *record) fullAt() int64 {
	if r.sparse() {
		return r.sentAt()
	}
	return r.block.fullAt
}

// tells says that the region has something to keep of the record.
func (r *record) tells(now int64) bool {
	if r.sparse() {
		return r.fresh > 0
	}
	return r.block.tells(now)
}

// idle says that nothing is left of the record that could still matter.
func (r *record) idle(now int64) bool {
	if r.sparse() {
		return r.fresh == 0
	}
	return r.block.idle(now)
}

// sentLate notes that counts left later than they were handed over: frames were
// lost before.
func (s *shard) sentLate(r *record, at int64) {
	switch b := r.block; {
	case !r.sparse():
		if b.fullAt == b.sentAt || b.own.Len() <= 1 { // all of it left
			b.fullAt = at
		}
		b.sentAt = at
	case at >= b.sentAt:
		s.share(r, b, at)
	}
}

// dueBy has the record's counts sent again as if an instant had been the latest
// that all of them were.
func (s *shard) dueBy(r *record, at int64) {
	b := r.block
	if at = min(r.fullAt(), at); r.sparse() && at >= b.sentAt {
		s.share(r, b, at)
		return
	}
	s.whole(r).fullAt = at
}

// resend has all counts of the record sent with the next flush of a class.
func (s *shard) resend(r *record, now int64, c class) {
	if b := r.block; !r.sparse() {
		b.unsent = min(b.unsent, b.rate.Reach(now))
	}
	if r.flags&again == 0 {
		s.enlist(r, r.sooner(c))
	}
	r.flags |= charged | again
}
