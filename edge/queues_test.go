package edge

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// Rates of one rule that make the same requests wait let out no more than each says,
// though a request waits for the longer of two waits alone: what `edge validate` does not
// warn of, or only as in vain (W233).
func TestWaitsOfOneRuleHoldBoth(t *testing.T) {
	alone.Mark(t)
	flow := func(units uint64) limit.Flow { return limit.Flow{Units: units, Per: time.Second} }
	queue := func(name string, units uint64) limit.RateSpec {
		return limit.RateSpec{Name: name, Algorithm: "leaky_bucket", Capacity: 20, Outflow: flow(units), Queue: true}
	}
	bucket := func(name string, capacity, units uint64) limit.RateSpec {
		return limit.RateSpec{Name: name, Algorithm: "token_bucket", Capacity: capacity, Refill: flow(units)}
	}
	const longest = 5 * time.Second
	for name, tc := range map[string]struct {
		rule limit.RuleSpec
		most func(seconds float64) float64 // how many may come out within that
	}{
		"queues":           {limit.RuleSpec{Rates: []limit.RateSpec{queue("a", 1), queue("b", 2)}}, func(s float64) float64 { return 1 + s }},
		"buckets":          {limit.RuleSpec{MaxDelay: longest, Rates: []limit.RateSpec{bucket("a", 3, 5), bucket("b", 10, 1)}}, func(s float64) float64 { return min(3+5*s, 10+s) }},
		"a bucket and gap": {limit.RuleSpec{MaxDelay: longest, MinGap: 200 * time.Millisecond, Rates: []limit.RateSpec{bucket("a", 10, 2)}}, func(s float64) float64 { return min(1+5*s, 10+2*s) }},
	} {
		waited := 0
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 1))
			tc.rule.Name = "r"
			n := newNode(t, Config{}, tc.rule)
			now := start
			var out []time.Duration
			for range 300 {
				now = now.Add(time.Duration(rng.ExpFloat64() * float64(400*time.Millisecond)))
				if rng.IntN(40) == 0 {
					now = now.Add(10 * time.Second)
				}
				req := n.Rules().Only().NewRequest()
				if d := n.Check(now, req); d.Allowed {
					out = append(out, now.Add(d.Delay).Sub(start))
					if d.Delay > 0 {
						waited++
					}
				}
				req.Release()
			}
			slices.Sort(out)
			for i := range out {
				for k := i; k < len(out); k++ {
					if got, most := k-i+1, tc.most((out[k] - out[i]).Seconds()); float64(got) > most+1e-6 {
						t.Fatalf("%s, seed %d: %d came out within %v, want at most %v", name, seed, got, out[k]-out[i], most)
					}
				}
			}
		}
		if waited < 500 {
			t.Errorf("%s: %d requests waited: this test sees too little", name, waited)
		}
	}
}
