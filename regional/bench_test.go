package regional_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// BenchmarkHandle is a frame of 1000 keys that are held, with 40 slices each
// from two edges, of which one counts on in the present slice.
func BenchmarkHandle(b *testing.B) {
	for _, bb := range []struct {
		name  string
		shape deltasync.Shape
	}{{"windows", minute}, {"buckets", bucket}} {
		b.Run(bb.name, func(b *testing.B) {
			now := start
			store := memstore.New(memstore.Config{Now: func() time.Time { return now }})
			a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, Incarnation: 1}, store)
			if err != nil {
				b.Fatal(err)
			}
			const keys, perFrame = 1000, 100
			seq := uint64(0)
			frame := func(name string, first deltasync.Key, n int, cells ...crdt.Cell) (string, []byte) {
				seq++
				up := deltasync.Up{
					Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: name, Node: deltasync.NodeID("eu", "p", name),
					Incarnation: 1, Lanes: 1, Seq: seq, SentAt: now.UnixNano(), Sections: []deltasync.Section{{Shape: bb.shape}},
				}
				for k := range deltasync.Key(n) {
					up.Sections[0].Deltas = append(up.Sections[0].Deltas, deltasync.Delta{Key: first + k, Cells: cells})
				}
				payload, err := up.AppendBinary(nil)
				if err != nil {
					b.Fatal(err)
				}
				return deltasync.EdgeSubject("eu", 0, "p", name), payload
			}
			s := sliceOf(bb.shape, now)
			for _, name := range []string{"e1", "e2"} {
				var cells []crdt.Cell
				for i := range crdt.Slice(40) {
					cells = append(cells, crdt.Cell{Slice: s - 39 + i, Charges: 2})
				}
				for first := deltasync.Key(1); first < keys; first += perFrame {
					subject, payload := frame(name, first, perFrame, cells...)
					a.Handle(context.Background(), now, subject, payload)
				}
			}
			count := uint64(2)
			b.ReportAllocs()
			for b.Loop() {
				count++
				subject, payload := frame("e1", 1, keys, crdt.Cell{Slice: s, Charges: count})
				if len(a.Handle(context.Background(), now, subject, payload)) < keys {
					b.Fatal("the reply is short")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
		})
	}
}

// BenchmarkTick is the sweep of 16,000 keys of one edge with 40 slices.
func BenchmarkTick(b *testing.B) {
	for _, bb := range []struct {
		name  string
		shape deltasync.Shape
	}{{"windows", minute}, {"buckets", bucket}} {
		b.Run(bb.name, func(b *testing.B) {
			now := start
			a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, Incarnation: 1}, memstore.New(memstore.Config{Now: func() time.Time { return now }}))
			if err != nil {
				b.Fatal(err)
			}
			s := sliceOf(bb.shape, now)
			var cells []crdt.Cell
			for i := range crdt.Slice(40) {
				cells = append(cells, crdt.Cell{Slice: s - 39 + i, Charges: 2})
			}
			const keys = 16_000
			up := deltasync.Up{
				Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: "e1", Node: deltasync.NodeID("eu", "p", "e1"),
				Incarnation: 1, Lanes: 1, Sections: []deltasync.Section{{Shape: bb.shape}},
			}
			for first := deltasync.Key(1); first < keys; first += 100 {
				up.Seq++
				up.Sections[0].Deltas = nil
				for k := range deltasync.Key(100) {
					up.Sections[0].Deltas = append(up.Sections[0].Deltas, deltasync.Delta{Key: first + k, Cells: cells})
				}
				payload, err := up.AppendBinary(nil)
				if err != nil {
					b.Fatal(err)
				}
				a.Handle(context.Background(), now, deltasync.EdgeSubject("eu", 0, "p", "e1"), payload)
			}
			for b.Loop() {
				a.Tick(now)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
		})
	}
}
