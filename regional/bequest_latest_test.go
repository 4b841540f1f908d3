package regional_test

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// A store lists a key with all that was noted of it while its counts lasted, in no order that
// tells which came last: who takes the lane has the parts that regions had last.
func TestLatestBequestCounts(t *testing.T) {
	now := start
	store := newStore(&now)
	a, err := regional.New(regional.Config{Region: "eu", Name: "a", Peers: []string{"us", "ap"}}, store)
	if err != nil {
		t.Fatal(err)
	}
	shape := deltasync.Shape{Generation: 1, Width: 15 * time.Second, Slices: 40, Limit: 1000}
	it := regional.Item{Key: 77, Width: shape.Width, Slices: shape.Slices, Vectors: []regional.Vector{{Source: regional.FromEdge, Replica: crdt.Replica{Node: 1}, Cells: []crdt.Cell{
		{Slice: crdt.Slice(now.UnixNano() / int64(shape.Width)), Charges: 1},
	}}}}
	for _, noted := range []struct {
		age   time.Duration
		parts []float64
	}{{7 * time.Millisecond, []float64{0, 0.9}}, {5 * time.Millisecond, []float64{0.1, 0.2}}, {9 * time.Millisecond, []float64{0.8, 0.1}}} {
		it.Note = a.NoteOf(shape, now.Add(-noted.age), noted.parts...)
		if _, err := store.Merge(t.Context(), []regional.Item{it}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Inherit(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	for j, want := range []float64{0.1, 0.2} {
		if got := a.Bequest(77, j); math.Abs(got-want) > 1e-4 {
			t.Errorf("region %d has %v of the limit, want %v, as was noted last", j, got, want)
		}
	}
}
