package deltasync

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// minute is the shape of a limit a minute in 40 slices.
var minute = Shape{Generation: 0x0123456789abcdef, Width: 1500 * time.Millisecond, Slices: 40, Limit: 100}

// bucket is the shape of a token bucket of 10 at 5/s, in 40 slices, that starts
// with 12.
var bucket = Shape{Generation: 8, Width: 50 * time.Millisecond, Slices: 40, Limit: 12, Refill: 5, RefillPer: time.Second, Floor: 2}

func cell(s crdt.Slice, charges uint64) []crdt.Cell {
	return []crdt.Cell{{Slice: s, Charges: charges}}
}

func busyUp(keys int) *Up {
	r := newFrames(1)
	u := &Up{Kind: KindEdge, Region: "eu-west-1", Pop: "ams", Name: "edge-17", Node: r.Uint64(), Incarnation: 1_790_000_000_000, Lanes: 8, Seq: 1e6, SentAt: 1_790_000_000_000_000_000}
	s := Section{Shape: minute, Life: 1}
	for i := range keys {
		d := Delta{Key: r.key(), Cells: cell(crdt.Slice(1_190_000_000-i%2), 1+r.Uint64N(100))}
		if i%10 == 0 {
			d.Flags = FlagUrgent
		}
		s.Deltas = append(s.Deltas, d)
	}
	u.Sections = []Section{s}
	return u
}

// busyDown is what a key typically gets: some slices of its window were used
// elsewhere.
func busyDown(keys int) *Down {
	r := newFrames(2)
	d := &Down{Status: StatusOK, Region: "eu-west-1", Node: r.Uint64(), Seq: 1e6, EchoSentAt: 1, ReceivedAt: 2, SentAt: 3, StoreEpoch: 4, LiveEdges: 20, LiveRegions: 3}
	for range keys {
		var t Totals
		for _, list := range []*[]crdt.Cell{&t.Others, &t.Peers} {
			at := crdt.Slice(1_190_000_000 + r.IntN(20))
			for range 1 + r.IntN(8) {
				*list = append(*list, crdt.Cell{Slice: at, Charges: 1 + r.Uint64N(50)})
				at += crdt.Slice(1 + r.IntN(4))
			}
		}
		d.Totals = append(d.Totals, t)
	}
	return d
}

// TestSizes pins what a key costs on the wire: the envelope of a whole fleet
// hangs on it.
func TestSizes(t *testing.T) {
	const keys = 1000
	plain := busyUp(keys)
	for i := range plain.Sections[0].Deltas {
		d := &plain.Sections[0].Deltas[i]
		d.Flags, d.Cells[0].Slice = 0, 1_190_000_000
	}
	carried := busyUp(keys)
	carried.Sections[0].Shape = bucket
	for i := range carried.Sections[0].Deltas {
		carried.Sections[0].Deltas[i].Carry = crdt.Carry{Boundary: 1_190_000_000 - 40, Level: 1e6 + newFrames(uint64(i)).Uint64N(100e6)}
	}
	punished := busyUp(keys)
	for i := range punished.Sections[0].Deltas {
		punished.Sections[0].Deltas[i].Until = 1_790_000_060_123_456_789
	}
	for _, c := range []struct {
		name string
		head frame // the same without keys
		full frame
		most float64
	}{
		{"up, one cell in the same slice, no flags", busyUp(0), plain, 9.1},
		{"up, one cell in one of two slices, some flags", busyUp(0), busyUp(keys), 11.1},
		{"up, the same with a carry of at most 100 units", busyUp(0), carried, 16.1},
		{"up, the same with a penalty", busyUp(0), punished, 20.1},
		{"down, 1 to 8 slices from others and from peers", busyDown(0), busyDown(keys), 21},
	} {
		got := float64(len(encode(t, c.full))-len(encode(t, c.head))) / keys
		t.Logf("%s: %.2f B a key", c.name, got)
		if got > c.most {
			t.Errorf("%s: %.2f B a key, want at most %v", c.name, got, c.most)
		}
	}
	if head := len(encode(t, busyUp(0))); head > 110 {
		t.Errorf("head of an Up with a section: %d B, want at most 110", head)
	}
}

func BenchmarkWire(b *testing.B) {
	const keys = 1000
	for _, c := range []struct {
		name string
		f    frame
		into frame
	}{{"Up", busyUp(keys), new(Up)}, {"Down", busyDown(keys), new(Down)}} {
		data := encode(b, c.f)
		perKey := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
			b.ReportMetric(float64(len(data))/keys, "B/key")
		}
		b.Run(fmt.Sprintf("encode%s", c.name), func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				buf, _ = c.f.AppendBinary(buf[:0])
			}
			perKey(b)
		})
		b.Run(fmt.Sprintf("decode%s", c.name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.into.UnmarshalBinary(data); err != nil {
					b.Fatal(err)
				}
			}
			perKey(b)
		})
	}
}
