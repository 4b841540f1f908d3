package edge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// A request that is short is told what one is told that takes the long way,
// which looks at every counter anew.
func TestShortIsLong(t *testing.T) {
	alone.Mark(t)
	rates := []limit.RateSpec{
		{Limit: 20, Per: time.Second},
		{Limit: 80, Per: 10 * time.Second, Algorithm: "fixed_window"},
		{Limit: 150, Per: 30 * time.Second, Algorithm: "sliding_window"},
		{Limit: 300, Per: time.Minute},
		{Name: "bucket", Capacity: 40, Refill: limit.Flow{Units: 8, Per: time.Second}, Algorithm: "token_bucket"},
		{Name: "initial", Capacity: 30, Initial: 70, Refill: limit.Flow{Units: 4, Per: time.Second}, Algorithm: "token_bucket"},
	}
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		rnd.Shuffle(len(rates), func(i, j int) { rates[i], rates[j] = rates[j], rates[i] })
		scale := []uint64{1, 1, 1 << 33}[rnd.IntN(3)] // bytes, say
		rule := perUser(slices.Clone(rates[:1+rnd.IntN(few)])...)
		for i := range rule.Rates {
			r := &rule.Rates[i]
			r.Limit, r.Capacity, r.Refill.Units, r.Initial = scale*r.Limit, scale*r.Capacity, scale*r.Refill.Units, scale*r.Initial
		}
		rule.Cost.Default, rule.Cost.Max = scale, 4*scale
		if rnd.IntN(2) == 0 {
			rule.Margin = limit.MarginSpec{SoftPercent: float64(10 * rnd.IntN(6))}
		}
		if rnd.IntN(2) == 0 {
			rule.NearLimitPercent = 60
		}
		if len(rule.Rates) < few && rnd.IntN(3) == 0 {
			rule.MinGap = 2 * time.Millisecond
		}
		rule.Mode = []string{"enforce", "enforce", "shadow"}[rnd.IntN(3)]
		short, long := newNode(t, Config{}, rule), newNode(t, Config{}, rule)
		now, passed, denied := start, 0, 0
		for i := range 2000 {
			if rnd.IntN(3) == 0 { // else within the same slices, where allowances last
				now = now.Add(time.Duration(rnd.IntN(200)) * time.Millisecond)
			}
			user, cost := fmt.Sprint("u", rnd.IntN(3)), scale*uint64(rnd.IntN(4)) // 0: as the rule says
			ask := func(n *Node, receipt bool) limit.Decision {
				req := n.Rules().Only().NewRequest()
				defer req.Release()
				req.Set("user", user)
				req.Cost, req.Receipt = cost, receipt
				return n.Check(now, req)
			}
			got, want := ask(short, false), ask(long, true)
			if got.Rule != nil && want.Rule != nil && got.Rule.Name == want.Rule.Name && got.Rate.Policy == want.Rate.Policy {
				got.Rule, got.Rate = want.Rule, want.Rate // each node has its own
			}
			if got != want {
				t.Fatalf("seed %d, request %d at %v: %+v, the long way %+v", seed, i, now.Sub(start), got, want)
			}
			if got.Allowed {
				passed++
			} else {
				denied++
			}
		}
		if passed < 100 || denied < 100 && rule.Mode != "shadow" {
			t.Fatalf("seed %d: %d passed, %d denied: the traffic tests little", seed, passed, denied)
		}
	}
}
