package regional_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// Edges may tell any demand: what follows from it still fits a frame, or nobody
// whose key is in that frame would be answered.
func TestHostileDemand(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	var edges []*edge
	for n := range 3 {
		edges = append(edges, &edge{name: fmt.Sprint("e", n)})
	}
	shares := 0
	for range 20 {
		r.now = r.now.Add(100 * time.Millisecond)
		for _, e := range edges {
			down := e.send(r, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(r.now, 1)},
				Demand: &deltasync.Demand{Fast: 1 << 64, Mid: 1 << 64, Slow: 1 << 64, Window: 1 << 64}}}})
			if down.Status != deltasync.StatusOK || len(down.Totals) != 1 {
				t.Fatalf("answered with %+v, want OK and totals", down)
			}
			s := down.Totals[0].Share
			if s == nil {
				continue
			}
			shares++
			for _, v := range []float32{s.Omega, s.Sum, s.Demand, s.Window} {
				if !(v >= 0) || math.IsInf(float64(v), 0) {
					t.Fatalf("told %+v, want finite numbers", *s)
				}
			}
		}
	}
	if shares == 0 {
		t.Error("no edge was told a share")
	}
}
