package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// BenchmarkMerge counts (replica, key, slice) triples a second over 16384 keys
// of 40 full slices, with one caller and a redis-server on the same machine, by
// keys a call and slices a key.
func BenchmarkMerge(b *testing.B) {
	const total = 1 << 14
	for _, bb := range []struct{ keys, slices int }{{1, 1}, {16, 1}, {256, 1}, {256, 5}} {
		b.Run(fmt.Sprintf("keys=%d/slices=%d", bb.keys, bb.slices), func(b *testing.B) {
			s, _ := open(b, proc.Redis(b).Addr)
			items := make([]regional.Item, total)
			for i := range items {
				items[i] = one(deltasync.Key(rand.NewPCG(uint64(i), 1).Uint64()), 1)
				v := &items[i].Vectors[0]
				last := v.Cells[0].Slice
				v.Cells = make([]crdt.Cell, pieces)
				for j := range v.Cells {
					v.Cells[j] = crdt.Cell{Slice: last - crdt.Slice(pieces-1-j), Charges: 1000}
				}
			}
			mergeAt := func(batch []regional.Item) {
				out, err := s.Merge(context.Background(), batch)
				if err != nil {
					b.Fatal(err)
				}
				for i := range out {
					batch[i].Version = out[i].Version
				}
			}
			mergeAt(items)
			for i := range items {
				v := &items[i].Vectors[0]
				v.Cells = v.Cells[pieces-bb.slices:]
			}
			at := 0
			b.ReportAllocs()
			for b.Loop() {
				batch := items[at : at+bb.keys]
				for i := range batch {
					for j := range batch[i].Vectors[0].Cells {
						batch[i].Vectors[0].Cells[j].Charges++
					}
				}
				mergeAt(batch)
				at = (at + bb.keys) % total
			}
			b.ReportMetric(float64(b.N*bb.keys*bb.slices)/b.Elapsed().Seconds(), "merges/s")
		})
	}
}

// BenchmarkCommit is what the log of rights takes for one call, by deposits a call and
// by whether the server writes to its disk before it acknowledges, with one caller and
// a redis-server on the same machine.
func BenchmarkCommit(b *testing.B) {
	for _, fsync := range []string{"always", "everysec"} {
		for _, n := range []int{0, 1, 16, 256} {
			b.Run(fmt.Sprintf("fsync=%s/deposits=%d", fsync, n), func(b *testing.B) {
				r, _ := openRights(b, redisstore.Config{Addrs: []string{proc.Redis(b, "--appendonly", "yes", "--appendfsync", fsync).Addr}})
				take(b, r, 1)
				deposits := make([]escrow.Deposit, n)
				for version := uint64(1); b.Loop(); version++ {
					for i := range deposits {
						deposits[i] = held(deltasync.Key((version*uint64(n)+uint64(i))%(1<<14)), version)
					}
					commit(b, r, 1, deposits...)
				}
				if n > 0 {
					b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/deposit")
				}
			})
		}
	}
}
