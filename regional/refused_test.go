package regional_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// A reply names the deltas that were not taken, so that an edge need not send
// the others again.
func TestReplyNamesWhatWasRefused(t *testing.T) {
	b := &broken{Store: newStore(&start)}
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, MaxKeys: 3}, b)
	if err != nil {
		t.Fatal(err)
	}
	r := &region{Aggregator: a, t: t, name: "eu", now: start}
	ahead := start.Add(time.Hour)
	odd := minute
	odd.Width = 1500*time.Millisecond + 1 // travels, and no store keeps it
	one := func(key deltasync.Key, cells ...crdt.Cell) deltasync.Delta {
		return deltasync.Delta{Key: key, Cells: cells}
	}
	for _, tt := range []struct {
		name     string
		sections []deltasync.Section
		status   deltasync.Status
		refused  []uint32
	}{
		{"all taken", []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{one(1, charge(start, 1)), one(2, charge(start, 1))}}},
			deltasync.StatusOK, nil},
		{"partly in the future", []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{one(1, charge(start, 2)), one(2, charge(start, 2), charge(ahead, 1))}}},
			deltasync.StatusClock, []uint32{1}},
		{"no room", []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{
			one(3, charge(start, 1)), one(1, charge(start, 3)), one(2, charge(start, 3)), one(4, charge(ahead, 1)), one(2, charge(start, 4)), one(5, charge(start, 1))}}},
			deltasync.StatusStoreDown, []uint32{3, 5}}, // nobody makes room, and 4 is refused for both reasons
		{"a shape of its own", []deltasync.Section{
			{Shape: minute, Deltas: []deltasync.Delta{one(1, charge(start, 4))}},
			{Shape: odd, Deltas: []deltasync.Delta{one(6, charge(start, 1)), one(7, charge(start, 1))}},
			{Shape: minute, Life: 1, Deltas: []deltasync.Delta{one(2, charge(start, 4)), one(3, charge(start, 4)), one(8, charge(start, 4))}},
		}, deltasync.StatusForbidden, []uint32{1, 2}},
	} {
		b.down = tt.status == deltasync.StatusStoreDown
		if err := r.Sync(context.Background(), start); (err != nil) != b.down {
			t.Fatal(err)
		}
		down := (&edge{name: "e1"}).send(r, tt.sections...)
		if down.Status != tt.status || !slices.Equal(down.Refused, tt.refused) {
			t.Errorf("%s: %v, refused %v; want %v and %v", tt.name, down.Status, down.Refused, tt.status, tt.refused)
		}
		i := 0
		for _, sec := range tt.sections {
			for range sec.Deltas {
				if got, want := down.Took(i), !slices.Contains(tt.refused, uint32(i)); got != want {
					t.Errorf("%s: Took(%d) = %v, want %v", tt.name, i, got, want)
				}
				i++
			}
		}
		if len(down.Totals) != i {
			t.Errorf("%s: %d totals for %d deltas", tt.name, len(down.Totals), i)
		}
	}
}

// A reply that is cut short still names all that was refused, those past the
// cut included.
func TestCutReplyNamesWhatWasRefused(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	const keys = 2000
	var sec, ask deltasync.Section
	large := minute
	large.Limit = 1 << 22 // what is far above the limit would be clamped
	sec.Shape, ask.Shape = large, large
	for k := range deltasync.Key(keys) {
		d := deltasync.Delta{Key: k + 1}
		for i := range 20 {
			d.Cells = append(d.Cells, charge(start.Add(-time.Duration(20-i)*minute.Width), 1<<20))
		}
		sec.Deltas = append(sec.Deltas, d)
		ask.Deltas = append(ask.Deltas, deltasync.Delta{Key: k + 1, Flags: deltasync.FlagTouch})
	}
	for part := range slices.Chunk(sec.Deltas, 400) {
		(&edge{name: "e1"}).send(r, deltasync.Section{Shape: large, Deltas: part})
	}
	ask.Deltas[3].Cells = []crdt.Cell{charge(start.Add(time.Hour), 1)}
	ask.Deltas[keys-1].Cells = []crdt.Cell{charge(start.Add(time.Hour), 1)}
	down := (&edge{name: "e2"}).send(r, ask)
	if n := len(down.Totals); n == 0 || n >= keys {
		t.Fatalf("%d totals for %d keys of 20 slices, want a reply cut short", n, keys)
	}
	if want := []uint32{3, keys - 1}; !slices.Equal(down.Refused, want) || down.Status != deltasync.StatusClock {
		t.Errorf("%v, refused %v; want clock and %v", down.Status, down.Refused, want)
	}
	for i, total := range down.Totals {
		if len(total.Peers) != 20 {
			t.Fatalf("key %d has %d slices in the cut reply, want 20", i+1, len(total.Peers))
		}
	}
}

// refusedFor is how often something was refused, by the reasons that the metric gives.
func refusedFor(t *testing.T, reg *prometheus.Registry) map[string]int {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	why := map[string]int{}
	for _, f := range families {
		if f.GetName() != "spillgate_sync_refused_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			why[m.GetLabel()[0].GetValue()] += int(m.GetCounter().GetValue())
		}
	}
	return why
}

// The key that has all the entries that it may, and nothing else, refuses as such.
func TestRefusedForEntries(t *testing.T) {
	reg := prometheus.NewRegistry()
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, Incarnation: 1, Registerer: reg}, newStore(&start))
	if err != nil {
		t.Fatal(err)
	}
	r, e := &region{Aggregator: a, t: t, name: "eu", now: start}, &edge{name: "e1"}
	for life := range uint32(1030) {
		e.live(r, life, 9, charge(start, 1))
	}
	if why := refusedFor(t, reg); why["entries_full"] != 6 || why["bytes_full"] != 0 {
		t.Errorf("refused for %v, want entries_full 6 times: of a node 1024 are kept", why)
	}
}
