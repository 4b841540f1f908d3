package regional_test

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// Redis lists a key with all that was noted of it while its counts lasted, in no order that
// tells which came last: who takes the lane has the parts that regions had last.
func TestLatestBequestCounts(t *testing.T) {
	store, err := redisstore.New(redisstore.Config{Addrs: []string{proc.Redis(t).Addr}, Prefix: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a, err := regional.New(regional.Config{Region: "eu", Name: "a", Peers: []string{"us", "ap"}}, store)
	if err != nil {
		t.Fatal(err)
	}
	shape := deltasync.Shape{Generation: 1, Width: 15 * time.Second, Slices: 40, Limit: 1000}
	now := time.Now()
	it := regional.Item{Key: 77, Width: shape.Width, Slices: shape.Slices, Vectors: []regional.Vector{{Source: regional.FromEdge, Replica: crdt.Replica{Node: 1}, Cells: []crdt.Cell{
		{Slice: crdt.Slice(now.UnixNano() / int64(shape.Width)), Charges: 1},
	}}}}
	for i, parts := range [][]float64{{0.8, 0.1}, {0, 0.9}, {0.1, 0.2}} {
		it.Note = a.NoteOf(shape, now.Add(time.Duration(i-10)*time.Millisecond), parts...)
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
