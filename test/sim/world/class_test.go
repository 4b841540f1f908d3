package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// What is reserved for higher classes a lower one does not have, over several edges and regions: all hear
// that it has used up its own, wherever in the limit that ends. Requests come one after the other,
// seconds apart.
func TestReservesAreKeptOverEdges(t *testing.T) {
	for _, reserve := range []float64{15, 30, 48, 60} {
		for _, mode := range []string{"loose", "adaptive"} {
			rule := limit.RuleSpec{Name: "r", Key: []string{"user"}, Consistency: mode, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour, Algorithm: "fixed_window"}},
				Classes: limit.ClassesSpec{From: "class", Order: []string{"low", "high"}, Reserve: map[string]float64{"high": reserve}}}
			regions := []Region{{Name: "eu"}, {Name: "us"}}
			var edges []string
			for i := range 8 {
				name := fmt.Sprintf("e%d", i)
				edges = append(edges, name)
				regions[i%2].Edges = append(regions[i%2].Edges, name)
			}
			began := time.Date(2026, 3, 7, 20, 0, 0, 0, time.UTC)
			w, err := New(Config{Regions: regions, Rules: []limit.Document{{Namespace: "n", Rules: []limit.RuleSpec{rule}}}, Start: began})
			if err != nil {
				t.Fatal(err)
			}
			w.Advance(began.Add(3 * time.Second))
			used, rng := 0.0, rand.New(rand.NewPCG(1, 2))
			for w.Now().Before(began.Add(20 * time.Minute)) {
				w.Advance(w.Now().Add(5*time.Second + time.Duration(rng.Int64N(int64(5*time.Second)))))
				at := edges[rng.IntN(len(edges))]
				req := w.Node(at).Rules().Only().NewRequest()
				req.Set("user", "u")
				req.Set("class", "low")
				if w.Node(at).Check(w.NowAt(at), req).Allowed {
					used++
				}
				req.Release()
			}
			if used < 0.9*(100-reserve) || used > 100-reserve {
				t.Errorf("%s: of a limit of 100 with %v %% reserved the low class had %v", mode, reserve, used)
			}
		}
	}
}
