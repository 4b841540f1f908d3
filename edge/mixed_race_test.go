package edge

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Goroutines over shuffled rates of many algorithms, with refunds between:
// every rate has exactly what was admitted and not given back; a queue also has what
// was given back while others waited behind it.
func TestAllOrNothingOfMixedAlgorithms(t *testing.T) {
	rates := []limit.RateSpec{
		{Name: "a", Limit: 70, Per: time.Hour}, {Name: "b", Limit: 60, Per: time.Hour, Algorithm: "sliding_log"},
		{Name: "c", Limit: 50, Per: time.Hour, Algorithm: "fixed_window", Align: "first_hit"}, {Name: "d", Algorithm: "token_bucket", Capacity: 40, Refill: limit.Flow{Units: 1, Per: time.Hour}},
		{Name: "e", Limit: 20, Lease: time.Hour, Algorithm: "concurrency"}, {Name: "f", Algorithm: "leaky_bucket", Capacity: 44, Outflow: limit.Flow{Units: 1, Per: time.Hour}, Queue: true},
	}
	for iter := range 50 {
		rand.Shuffle(len(rates), func(i, j int) { rates[i], rates[j] = rates[j], rates[i] })
		n := newNode(t, Config{}, perUser(rates[:3]...), limit.RuleSpec{Name: "g", Group: "g", Rates: rates[3:]})
		var wg sync.WaitGroup
		var sum, requests, returned atomic.Int64
		per := map[string]*atomic.Int64{"0": {}, "1": {}}
		slots := map[string]*atomic.Int64{"0": {}, "1": {}}
		for k := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				r := rand.New(rand.NewPCG(uint64(iter), uint64(k)))
				for range 60 {
					u := fmt.Sprint(r.IntN(2))
					c := 1 + r.Uint64N(3)
					d, ch := take(t, n, start, u, c)
					if d.Allowed {
						if len(ch) != 6 {
							t.Errorf("%d charges", len(ch))
						}
						if r.IntN(4) == 0 {
							n.Refund(start, ch, 0)
							returned.Add(int64(c))
						} else {
							sum.Add(int64(c))
							requests.Add(1)
							slots[u].Add(1)
							per[u].Add(int64(c))
						}
					}
				}
			}()
		}
		wg.Wait()
		for u, want := range per {
			req := requestOf(n, u)
			for _, b := range n.Inspect(start, req) {
				w := want.Load()
				switch slot, all := b.Rate.Lease > 0, b.Rule.Name == "g"; {
				case slot && all: // a slot a request
					w = requests.Load()
				case slot:
					w = slots[u].Load()
				case all:
					w = sum.Load()
				}
				most := w
				if b.Rate.Queue {
					most += returned.Load()
				}
				if b.Total < uint64(w) || b.Total > uint64(most) {
					t.Fatalf("iter %d user %s %s.%s (%s): %d, want %d to %d", iter, u, b.Rule.Name, b.Rate.Name, b.Rate.Algorithm, b.Total, w, most)
				}
			}
		}
	}
}
