package edge

import (
	"math"
	"unsafe"

	"github.com/spillgate/spillgate/sync"
)

// budget is how Config.MaxBytes, or MaxKeys where that is not set, is shared
// out. All sizes but the outboxes' are of one shard.
type budget struct {
	keys    int // live records
	bytes   int // of live records; 0: their number alone bounds them
	holds   int // entries of the table of blocked keys
	buckets int // of the filter behind it
	deltas  int // in the outbox of each lane; 0: its own default
}

// The shares of MaxBytes, in 32nds: half for what happens under a flood of keys
// that use up their limits, which is taken only then. In 224 MB the filter has
// room for 55 million keys: at 50 million it is nine tenths full, as full as it
// can be and still give nobody up.
const (
	ledgerShare = 13
	filterShare = 15
	holdsShare  = 2
	outboxShare = 2
	allShares   = ledgerShare + filterShare + holdsShare + outboxShare

	// fixedBytes is about what a node takes without a key: its shards, outboxes,
	// spare blocks and scratch, and what it reads replies into.
	fixedBytes = 768 << 10
	// deltaBytes is what a delta takes in an outbox; larger ones count for several.
	deltaBytes = deltasync.DeltaBytes
	// minBytes is the smallest budget: less would hold next to nothing.
	minBytes = 8 << 20
)

func (c *Config) budget() budget {
	if c.MaxBytes == 0 {
		return budget{
			keys: c.MaxKeys / shards, holds: c.MaxKeys / 4 / shards, buckets: max(1, 2*c.MaxKeys/shards),
		}
	}
	part := func(share int) int { return int((c.MaxBytes - fixedBytes) / allShares * int64(share) / shards) }
	return budget{
		keys: c.MaxKeys / shards, bytes: part(ledgerShare),
		holds: part(holdsShare) / holdBytes, buckets: part(filterShare) / 8,
		deltas: part(outboxShare) * shards / c.Lanes / deltaBytes,
	}
}

const (
	recordBytes = int(unsafe.Sizeof(record{}))
	// blockBytes is a block without the cells of its vectors, as the allocator
	// rounds it.
	blockBytes = int(unsafe.Sizeof(block{})+15) &^ 15
	// freshBytes is what a key takes when it comes: its block and a first cell.
	freshBytes = blockBytes + 8
)

// crowded says that the ledger has no room for one more record.
func (s *shard) crowded() bool {
	if s.used >= s.max {
		return true
	}
	if s.bytes == 0 {
		return false
	}
	table := len(s.table)
	if s.tight() {
		table = s.larger()
	}
	return table*recordBytes+16*s.weight+freshBytes+s.dirtyBytes() > s.bytes
}

// heavy says that the records take more than they may.
func (s *shard) heavy() bool {
	return s.bytes > 0 && len(s.table)*recordBytes+16*s.weight+s.dirtyBytes() > s.bytes
}

// outgrown says so of a shard that nobody tends, as that of a node which limits in one
// process alone.
func (s *shard) outgrown() bool { return !s.tended && s.heavy() }

// dirtyBytes is what the list of dirty records may grow to while so many are
// live; see mark.
func (s *shard) dirtyBytes() int { return s.used * 2 * int(unsafe.Sizeof(deltasync.Key(0))) }

// weigh brings what is known of a block's size up to date.
func (s *shard) weigh(b *block) {
	bytes := blockBytes + b.own.Bytes() + b.others.Bytes() + b.extraBytes()
	weight := uint16(min(uint(bytes+15)/16, math.MaxUint16))
	s.weight += int(weight) - int(b.weight)
	b.weight = weight
}

// extraBytes is what the parts of a block take that few have.
func (b *block) extraBytes() (total int) {
	if b.rate != nil {
		total += b.rate.Bytes()
	}
	if b.memory != nil {
		total += int(unsafe.Sizeof(memory{})) + b.memory.spilt.Bytes() + b.memory.exact.Bytes()
	}
	if b.share != nil {
		total += int(unsafe.Sizeof(share{}))
		if rt := b.share.rights; rt != nil {
			total += int(unsafe.Sizeof(rights{})) + rt.spent.Bytes()
		}
	}
	if b.held != nil {
		total += int(unsafe.Sizeof(held{}))
	}
	return total
}
