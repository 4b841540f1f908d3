package capacity_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/capacity"
)

// frame is any that is encoded.
type frame interface {
	AppendBinary([]byte) ([]byte, error)
}

func size(t *testing.T, f frame) float64 {
	t.Helper()
	b, err := f.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return float64(len(b))
}

var shape = deltasync.Shape{Generation: 1 << 63, Width: 1500 * time.Millisecond, Slices: 40, Limit: 60_000}

const first = crdt.Slice(1_193_333_333)

// cells are so many slices somewhere in a window, with counts of one byte.
func cells(rnd *rand.Rand, n int) (out []crdt.Cell) {
	for i := range n {
		out = append(out, crdt.Cell{Slice: first + crdt.Slice(i+rnd.IntN(40-n+1)/n), Charges: 1 + rnd.Uint64N(127)})
	}
	for i := 1; i < n; i++ {
		out[i].Slice = max(out[i].Slice, out[i-1].Slice+1)
	}
	return out
}

func up(keys, slices int) *deltasync.Up {
	rnd := rand.New(rand.NewPCG(1, 2))
	u := &deltasync.Up{Kind: deltasync.KindEdge, Region: "eu-west-1", Pop: "ams", Name: "edge-17", Node: 1 << 63, Incarnation: 1_790_000_000_000,
		Lanes: 8, Lane: 3, Seq: 1e6, SentAt: 1_790_000_000_000_000_000}
	if keys < 0 {
		return u
	}
	s := deltasync.Section{Shape: shape, Life: 1}
	for i := range keys {
		d := deltasync.Delta{Key: deltasync.Key(rnd.Uint64()), Cells: cells(rnd, max(0, slices+i%3-1))}
		if i%10 == 0 {
			d.Flags = deltasync.FlagUrgent
		}
		s.Deltas = append(s.Deltas, d)
	}
	u.Sections = []deltasync.Section{s}
	return u
}

// heard has a frame say what its sender heard, as those that have heard do.
func heard(u *deltasync.Up) *deltasync.Up {
	u.HeardEpoch = 1 << 63
	for i := range u.Sections {
		for j := range u.Sections[i].Deltas {
			u.Sections[i].Deltas[j].Heard = first - 1
		}
	}
	return u
}

// hears has a frame say whom its sender hears, as regions do.
func hears(u *deltasync.Up) *deltasync.Up {
	u.Hears = 1 << 63
	return u
}

func totals(rnd *rand.Rand, i, slices int) deltasync.Totals {
	return deltasync.Totals{Others: cells(rnd, slices+i%3-1), Peers: cells(rnd, slices+(i+1)%3-1)}
}

func down(keys, slices int) *deltasync.Down {
	rnd := rand.New(rand.NewPCG(1, 2))
	const at = 1_790_000_000_000_000_000
	d := &deltasync.Down{Status: deltasync.StatusOK, Region: "eu-west-1", Node: 1 << 63, Seq: 1e6, EchoSentAt: at, ReceivedAt: at, SentAt: at,
		StoreEpoch: 1 << 63, Store: 1 << 63, LiveEdges: 100, LiveRegions: 3}
	for i := range keys {
		d.Totals = append(d.Totals, totals(rnd, i, slices))
	}
	return d
}

func hot(keys, slices int) *deltasync.Hot {
	rnd := rand.New(rand.NewPCG(1, 2))
	h := &deltasync.Hot{Region: "eu-west-1", Lane: 3, SentAt: 1_790_000_000_000_000_000, LiveRegions: 3, Sections: []deltasync.HotSection{{Shape: shape}}}
	for i := range keys {
		h.Sections[0].Keys = append(h.Sections[0].Keys, deltasync.HotKey{Key: deltasync.Key(rnd.Uint64()), Totals: totals(rnd, i, slices)})
	}
	return h
}

// TestWire holds what the paper takes for the bytes of frames against frames.
func TestWire(t *testing.T) {
	for _, what := range wrong(wire(t, capacity.Measured())) {
		t.Error(what)
	}
}

// wire are the bytes of frames in the paper and as they are encoded.
func wire(t *testing.T, c capacity.Costs) []figure {
	t.Helper()
	const keys = 300
	const columns = 12 // bytes, of the heads of columns that a section without keys does not have
	per := func(f, without frame) float64 { return (size(t, f) - size(t, without)) / keys }
	cell := per(up(keys, 4), up(keys, 1)) / 3
	return []figure{
		{"head of an Up", c.UpHead, size(t, up(-1, 0))},
		{"section", c.Section, size(t, up(0, 0)) - size(t, up(-1, 0)) + columns},
		{"key up", c.Key, per(up(keys, 1), up(0, 0)) - cell},
		{"slice", c.Cell, cell},
		{"of whom was heard", c.HeardHead, size(t, heard(up(-1, 0))) - size(t, up(-1, 0))},
		{"in which slice, and its column", c.Heard + c.HeardColumn/keys, (size(t, heard(up(keys, 1))) - size(t, up(keys, 1)) - c.HeardHead) / keys},
		{"whom a region hears", c.Hears, size(t, hears(up(-1, 0))) - size(t, up(-1, 0))},
		{"head of a Down", c.DownHead, size(t, down(0, 0)) + columns},
		{"key down", c.ReplyKey, per(down(keys, 4), down(0, 0)) - 8*cell},
		{"head of a push", c.PushHead, size(t, hot(0, 0)) + columns},
		{"key pushed", c.PushKey, per(hot(keys, 4), hot(0, 0)) - 8*cell},
	}
}
