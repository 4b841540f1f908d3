package deltasync

import (
	"runtime"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/test/alone"
)

// However many slices deltas have, told at once or one by one, an outbox takes no
// more memory than its places: also while frames are under way, and once it has
// been emptied and filled again.
func TestOutboxIsBoundedByBytes(t *testing.T) {
	alone.Mark(t)
	const places, slices = 4096, 1000
	shape := Shape{Generation: 1, Width: time.Second, Slices: slices, Limit: 1 << 40}
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	fat := make([]crdt.Cell, slices)
	for i := range fat {
		fat[i] = crdt.Cell{Slice: crdt.Slice(1000 + i), Charges: 300}
	}
	for _, c := range []struct {
		name string
		fill func(o *Outbox) (taken int)
	}{
		{"at once", func(o *Outbox) (taken int) {
			for key := range Key(2 * places) {
				if o.Put(shape, 1, Delta{Key: 1 + key, Cells: fat}) {
					taken++
				}
			}
			return taken
		}},
		{"slice by slice", func(o *Outbox) (taken int) {
			for i := range fat {
				for key := range Key(places) {
					if o.Put(shape, 1, Delta{Key: 1 + key, Cells: fat[i : i+1]}) && i == 0 {
						taken++
					}
				}
			}
			return taken
		}},
		{"small", func(o *Outbox) (taken int) {
			for key := range Key(2 * places) {
				if o.Put(shape, 1, Delta{Key: 1 + key, Cells: fat[:8]}) {
					taken++
				}
			}
			return taken
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := heap()
			o := NewOutbox(OutboxConfig{MaxDeltas: places})
			for range 2 {
				taken := c.fill(o)
				if !o.Crammed() || taken < places/32 {
					t.Errorf("%d deltas are taken, crammed %v: the outbox is not filled", taken, o.Crammed())
				}
				if took := heap() - before; took > places*DeltaBytes*5/4 {
					t.Errorf("an outbox of %d deltas takes %d kB, want %d", taken, took>>10, places*DeltaBytes>>10)
				}
				if d := (Delta{Key: 1, Flags: FlagUrgent, Cells: []crdt.Cell{{Slice: 1000, Charges: 900}}}); !o.Put(shape, 1, d) {
					t.Error("a slice that waits cannot rise: the newest count has to go")
				}
				head := Up{Kind: KindEdge, Region: "eu", Pop: "p", Name: "e", Node: 1, Lanes: 1}
				for up := o.Next(head); up != nil; up = o.Next(head) {
					o.Next(head)
					if most := places*DeltaBytes*5/4 + 2*MaxFrame*12; heap()-before > most { // cells of 24 bytes, of two in a frame
						t.Errorf("with two frames under way it takes %d kB, want %d", (heap()-before)>>10, most>>10)
					}
					for len(o.flights) > 0 {
						o.Done(o.flights[0].Seq)
					}
				}
				if o.taken() != 0 || o.Held() != 0 {
					t.Fatalf("an empty outbox holds %d deltas in %d places", o.Held(), o.taken())
				}
			}
			runtime.KeepAlive(o)
		})
	}
}
