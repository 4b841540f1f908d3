package main

import (
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"
	"unsafe"
)

// The bare tables are the least that a counter by key can cost in Go: hash the
// key, walk to its place in one of 256 open-addressing tables, add atomically.
// They have no limit, no window, no lock, and their keys stand still.

// cell is a place in a bare table.
type cell interface {
	name() *uint64
	counter() *atomic.Uint64
}

// wide fills a cache line, as a record of the edge's ledger does.
type wide struct {
	key   uint64
	count atomic.Uint64
	_     [48]byte
}

// packed is as small as it gets: four to a cache line.
type packed struct {
	key   uint64
	count atomic.Uint64
}

const _ = uint(64-unsafe.Sizeof(wide{})) + uint(16-unsafe.Sizeof(packed{})) // a cell outgrew its place

func (c *wide) name() *uint64             { return &c.key }
func (c *wide) counter() *atomic.Uint64   { return &c.count }
func (c *packed) name() *uint64           { return &c.key }
func (c *packed) counter() *atomic.Uint64 { return &c.count }

const tableShards = 256

// tableOf is a sharded table of cells C, made once and never changed but for
// its counts.
type tableOf[C any] struct {
	seed   maphash.Seed
	shards [tableShards][]C
}

func buildTable(p population, _ time.Time) (*subject, error)  { return tableSubject[wide](p) }
func buildPacked(p population, _ time.Time) (*subject, error) { return tableSubject[packed](p) }

func tableSubject[C any, P interface {
	*C
	cell
}](p population) (*subject, error) {
	t := &tableOf[C]{seed: maphash.MakeSeed()}
	size := 2
	for size < 2*len(p.keys)/tableShards+16 {
		size *= 2
	}
	for i := range t.shards {
		t.shards[i] = make([]C, size)
	}
	taken := [tableShards]int{}
	for _, key := range p.keys {
		h := maphash.String(t.seed, key) | 1
		shard := h >> 56
		if taken[shard]++; taken[shard] >= size {
			return nil, fmt.Errorf("shard %d of the bare table is full at %d keys", shard, size)
		}
		for i := (h >> 1) & uint64(size-1); ; i = (i + 1) & uint64(size-1) {
			if name := P(&t.shards[shard][i]).name(); *name == 0 {
				*name = h
				break
			}
		}
	}
	return &subject{
		worker: func(time.Time, time.Duration) decide {
			return func(key string) bool {
				h := maphash.String(t.seed, key) | 1
				shard := t.shards[h>>56]
				mask := uint64(len(shard) - 1)
				for i := (h >> 1) & mask; ; i = (i + 1) & mask {
					switch c := P(&shard[i&mask]); *c.name() {
					case h:
						c.counter().Add(1)
						return true
					case 0:
						return false
					}
				}
			}
		},
		count: func() (total uint64) {
			for i := range t.shards {
				for j := range t.shards[i] {
					total += P(&t.shards[i][j]).counter().Load()
				}
			}
			return total
		},
	}, nil
}

// buildEmpty looks at the key and does nothing: what every row pays for the
// harness.
func buildEmpty(population, time.Time) (*subject, error) {
	return &subject{worker: func(time.Time, time.Duration) decide {
		return func(key string) bool { return key != "" }
	}}, nil
}
