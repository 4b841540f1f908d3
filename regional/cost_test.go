package regional_test

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// BenchmarkCost is what one key of a frame costs an aggregator, by its own
// processor time, and what it holds of a key, by how many edges counted it and
// in how many slices: the capacity paper (test/sim/capacity) is made of these.
// The store is in memory, and its memory is not counted.
func BenchmarkCost(b *testing.B) {
	for _, bb := range []struct{ edges, slices int }{{1, 1}, {2, 1}, {2, 10}, {2, 40}, {10, 1}, {10, 40}} {
		b.Run(fmt.Sprintf("edges=%d/slices=%d", bb.edges, bb.slices), func(b *testing.B) {
			const keys = 1000
			shape := minute
			shape.Limit = 1e6 // far enough that nothing is cut or pushed
			now, store := start, nothing{}
			a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, Incarnation: 1}, store)
			if err != nil {
				b.Fatal(err)
			}
			seq := uint64(0)
			tell := func(name string, first, n int, cells ...crdt.Cell) {
				seq++
				up := deltasync.Up{
					Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: name, Node: deltasync.NodeID("eu", "p", name),
					Incarnation: 1, Lanes: 1, Seq: seq, SentAt: now.UnixNano(), Sections: []deltasync.Section{{Shape: shape}},
				}
				for k := range n {
					up.Sections[0].Deltas = append(up.Sections[0].Deltas, deltasync.Delta{Key: deltasync.Key(first + k), Cells: cells})
				}
				payload, err := up.AppendBinary(nil)
				if err != nil {
					b.Fatal(err)
				}
				if a.Handle(context.Background(), now, deltasync.EdgeSubject("eu", 0, "p", name), payload) == nil {
					b.Fatal("no reply")
				}
			}
			before := heap()
			s := sliceOf(shape, now)
			for e := range bb.edges {
				var cells []crdt.Cell
				for i := range bb.slices {
					cells = append(cells, crdt.Cell{Slice: s - crdt.Slice(bb.slices-1-i), Charges: 200})
				}
				for first := 1; first <= keys; first += 100 {
					tell(fmt.Sprint("e", e), first, 100, cells...)
				}
			}
			held := heap() - before
			count, spent := uint64(200), processorTime(b)
			for b.Loop() {
				count++
				for first := 1; first <= keys; first += 100 {
					tell("e0", first, 100, crdt.Cell{Slice: s, Charges: count})
				}
			}
			b.ReportMetric(float64((processorTime(b)-spent).Nanoseconds())/float64(b.N)/keys, "cpu-ns/key")
			b.ReportMetric(held/keys, "held-B/key")
			runtime.KeepAlive(a)
		})
	}
}

// nothing is a store that knows of nobody and keeps nothing.
type nothing struct{ regional.Store }

func (nothing) Merge(_ context.Context, batch []regional.Item) ([]regional.Item, error) {
	out := make([]regional.Item, len(batch))
	for i := range batch {
		out[i] = regional.Item{Key: batch[i].Key, Width: batch[i].Width, Slices: batch[i].Slices, Version: 1}
	}
	return out, nil
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// processorTime is what this process had of processors.
func processorTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
