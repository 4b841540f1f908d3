package memstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
)

// BenchmarkMerge counts (replica, key, slice) triples a second, by keys held,
// keys a call and slices a key. A million keys miss the caches.
func BenchmarkMerge(b *testing.B) {
	for _, bb := range []struct{ total, keys, slices int }{
		{1 << 12, 1, 1}, {1 << 12, 16, 1}, {1 << 12, 256, 1}, {1 << 12, 256, 5}, {1 << 20, 256, 1}, {1 << 20, 256, 5},
	} {
		b.Run(fmt.Sprintf("held=%d/keys=%d/slices=%d", bb.total, bb.keys, bb.slices), func(b *testing.B) {
			total := bb.total
			now := time.Now()
			s := memstore.New(memstore.Config{MaxKeys: total, Now: func() time.Time { return now }})
			items := make([]regional.Item, total)
			for i := range items {
				items[i] = one(spread(i), now, 1)
				v := &items[i].Vectors[0]
				last := v.Cells[0].Slice
				v.Cells = make([]crdt.Cell, bb.slices)
				for j := range v.Cells {
					v.Cells[j] = crdt.Cell{Slice: last - crdt.Slice(bb.slices-1-j), Charges: 1}
				}
			}
			merge := func(at int, count uint64) {
				batch := items[at : at+bb.keys]
				for i := range batch {
					for j := range batch[i].Vectors[0].Cells {
						batch[i].Vectors[0].Cells[j].Charges = count
					}
				}
				out, err := s.Merge(context.Background(), batch)
				if err != nil {
					b.Fatal(err)
				}
				for i := range out {
					batch[i].Version = out[i].Version
				}
			}
			for at := 0; at < total; at += bb.keys {
				merge(at, 1)
			}
			at, count := 0, uint64(2)
			b.ReportAllocs()
			for b.Loop() {
				merge(at, count)
				if at += bb.keys; at == total {
					at, count = 0, count+1
				}
			}
			b.ReportMetric(float64(b.N*bb.keys*bb.slices)/b.Elapsed().Seconds(), "merges/s")
		})
	}
}
