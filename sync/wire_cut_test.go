package deltasync

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/spillgate/spillgate/crdt"
)

// TestCut: a reply that is too large is cut to one that fits, and not to one
// much smaller.
func TestCut(t *testing.T) {
	head := Down{
		Status: 255, Region: "a2345678901234567890123456789-23", Node: math.MaxUint64, Seq: math.MaxUint64, EchoSentAt: -1,
		ReceivedAt: -1, SentAt: -1, StoreEpoch: math.MaxUint64, Pace: maxPace, LiveEdges: maxLive, LiveRegions: maxLive,
		Store: math.MaxUint64, Mistake: MistakeSecret, Lanes: MaxLanes, Between: maxPace, Regions: maxLive, Hears: math.MaxUint64, Named: math.MaxUint32,
	}
	far := func(n int, charges uint64) (cells []crdt.Cell) {
		for i := range n {
			cells = append(cells, crdt.Cell{Slice: maxSlice - crdt.Slice(n-i)<<20, Charges: charges, Refunds: charges})
		}
		return cells
	}
	for _, tt := range []struct {
		name    string
		keys    int
		totals  func(r frames, i int) Totals
		refused int
		slack   int // bytes that may be left
	}{
		{"typical", maxKeys, func(frames, int) Totals { return busyDown(1).Totals[0] }, 0, 256},
		{"random", maxKeys, func(r frames, _ int) Totals { return r.totals(1 << 30) }, 40, 4096},
		{"peers alone", maxKeys, func(frames, int) Totals { return Totals{Peers: far(3, 1)} }, 0, 256},
		{"a penalty each", maxKeys, func(frames, int) Totals { return Totals{Until: 1_790_000_060_123_456_789} }, 0, 256},
		{"a share each", maxKeys, func(frames, int) Totals {
			return Totals{Share: &Share{Omega: 1, Sum: 1, Demand: 1, Window: 1, Unseen: math.MaxUint64, Kept: math.MaxUint64, Doubt: math.MaxUint64, Spent: math.MaxUint64}}
		}, 0, 256},
		{"a share late", maxKeys, func(_ frames, i int) Totals {
			if i < 6000 {
				return Totals{Peers: []crdt.Cell{{Slice: 5, Charges: 1}}}
			}
			return Totals{Share: &Share{Omega: 1, Sum: 1, Demand: 1, Window: 1, Unseen: 1}}
		}, 0, 128 << 10},
		{"one large key after another", 8, func(frames, int) Totals { return Totals{Others: far(1026, math.MaxUint64)} }, 0, 32 << 10},
		{"others at one end and peers at the other", maxKeys, func(frames, int) Totals {
			return Totals{Others: far(1, 1<<40), Peers: []crdt.Cell{{Slice: -maxSlice, Charges: 1 << 40}}}
		}, 100, 4096},
		{"most refused", maxKeys, func(r frames, _ int) Totals { return r.totals(1 << 30) }, maxKeys - 200, 4096},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := head
			r := newFrames(1)
			for i := range tt.keys {
				d.Totals = append(d.Totals, tt.totals(r, i))
			}
			for i := range tt.refused {
				d.Refused = append(d.Refused, uint32(i+200))
			}
			want := slices.Clone(d.Totals)
			if _, err := d.AppendBinary(nil); !errors.Is(err, ErrTooLarge) {
				t.Fatalf("AppendBinary before Cut = %v, want ErrTooLarge", err)
			}
			d.Cut()
			b := encode(t, &d)
			if left := MaxFrame - len(b); left > tt.slack {
				t.Errorf("%d keys in %d bytes, want at most %d bytes left", len(d.Totals), len(b), tt.slack)
			}
			if len(d.Totals) == 0 || len(d.Refused) != tt.refused {
				t.Errorf("%d totals and %d refused are left, want some and %d", len(d.Totals), len(d.Refused), tt.refused)
			}
			for i := range d.Totals {
				if !slices.Equal(d.Totals[i].Peers, want[i].Peers) || !slices.Equal(d.Totals[i].Others, want[i].Others) || d.Totals[i].Until != want[i].Until {
					t.Fatalf("totals %d changed", i)
				}
			}
		})
	}
}

// A first key that fits only without the list of the refused takes its place:
// the receiver makes progress either way, and misses nothing.
func TestCutLeavesOutRefused(t *testing.T) {
	large := Totals{}
	for i := range crdt.Slice(2400) {
		large.Peers = append(large.Peers, crdt.Cell{Slice: i, Charges: math.MaxUint64, Refunds: math.MaxUint64})
	}
	d := Down{Status: StatusOverloaded, Totals: []Totals{large, {}, {}}}
	for i := range uint32(maxKeys) {
		d.Refused = append(d.Refused, i)
	}
	d.Cut()
	encode(t, &d)
	if len(d.Totals) == 0 || len(d.Refused) > 0 || d.Took(5) {
		t.Errorf("%d totals, %d refused, Took(5) = %v; want some, none and false", len(d.Totals), len(d.Refused), d.Took(5))
	}
	empty := Down{Status: StatusOK}
	if empty.Cut(); len(empty.Totals) != 0 {
		t.Errorf("Cut of no totals made %d", len(empty.Totals))
	}
}
