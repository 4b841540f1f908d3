package edge

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// When a bucket is empty says how full it is: that is all there is to know of a hold of one. So it
// stands in the bucket's own level, with which it drains, and not beside it. Where the region told
// of what it speaks of, it comes out again once the region has said what has become of that.

// confined is what confines a record beside its level; nil: nothing does.
func (b *block) confined() *held {
	if b.held != nil && b.held.level {
		return nil
	}
	return b.held
}

// holdLevel has a hold stand in the level of a bucket that was just admitted.
func (b *block) holdLevel(h *held, now int64) {
	if !b.rate.Queue && h.idle() {
		return
	}
	alone := b.rate.MaxDelay == 0 && h.rounded == 1
	level := b.rate.FullBefore(time.Duration(h.until - now))
	if b.rate.Queue || alone { // it may have been told by a slower pace: of rules before, or of who drains slower
		level = min(level, h.used)
	}
	b.memory.exact.Charge(b.rate, level, now)
	if h.told && alone && !b.rate.Queue {
		h.level = true
		b.held = h
	}
}

// explaining are the cells that may say what became of what a record is held by. What was charged since,
// here or elsewhere, is beside what stands in a level, and not in it.
func (s *shard) explaining(b *block) []crdt.Cell {
	if !b.held.level {
		return s.sums(b)
	}
	last := b.rate.SliceAt(b.held.born)
	return slices.DeleteFunc(b.others.Cells(nil), func(c crdt.Cell) bool { return c.Slice > last })
}

// dropLevel takes a hold out of the level again: what is left are own charges, by their slices. Each
// counts from its slice's last moment, so that they come to no less than they are.
func (b *block) dropLevel(now int64) {
	if b.held == nil || !b.held.level {
		return
	}
	x := &b.memory.exact
	x.Reset()
	for _, c := range b.own.Cells(nil) {
		x.Charge(b.rate, c.Net(), min(b.rate.StartOf(c.Slice+1)-1, now))
	}
}
