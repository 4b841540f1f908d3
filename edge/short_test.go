package edge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// The short path decides as the long one does, which whoever wants details goes:
// while slices change, clocks are set back, costs differ and rules change.
func TestShortPathDecidesAsTheLongOne(t *testing.T) {
	alone.Mark(t)
	flow := limit.Flow{Units: 5, Per: time.Second}
	window := limit.RateSpec{Limit: 40, Per: 10 * time.Second}
	for name, rates := range map[string][]limit.RateSpec{
		"sub_windows":    {window},
		"several":        {window, {Name: "minute", Limit: 100, Per: time.Minute}, {Name: "fixed", Limit: 20, Per: 2 * time.Second, Algorithm: "fixed_window"}},
		"sliding_window": {{Limit: 40, Per: 10 * time.Second, Algorithm: "sliding_window"}},
		"sliding_log":    {{Limit: 40, Per: 10 * time.Second, Algorithm: "sliding_log"}},
		"first_hit":      {{Limit: 40, Per: 10 * time.Second, Algorithm: "fixed_window", Align: "first_hit"}},
		"token_bucket":   {{Algorithm: "token_bucket", Capacity: 40, Refill: flow}},
		"queue":          {{Algorithm: "leaky_bucket", Capacity: 40, Outflow: flow, Queue: true}},
	} {
		for _, margin := range []string{"", "soft", "near", "penalty"} {
			t.Run(name+" "+margin, func(t *testing.T) {
				spec := func(times uint64) limit.RuleSpec {
					rule := perUser(rates...)
					rule.Rates = append([]limit.RateSpec(nil), rates...)
					for i := range rule.Rates {
						rule.Rates[i].Limit, rule.Rates[i].Capacity = times*rates[i].Limit, times*rates[i].Capacity
					}
					switch margin {
					case "soft":
						rule.Margin.SoftPercent = 20
					case "near":
						rule.NearLimitPercent = 50
					case "penalty":
						rule.Penalty = limit.Penalty{For: 3 * time.Second}
					}
					return rule
				}
				short, long := newNode(t, Config{}, spec(1)), newNode(t, Config{}, spec(1))
				rnd := rand.New(rand.NewPCG(1, 2))
				now := start
				allowed, denied := 0, 0
				for i := range 4000 {
					switch rnd.IntN(200) {
					case 0:
						now = now.Add(-time.Duration(rnd.IntN(15)) * time.Second)
					case 1:
						now = now.Add(time.Duration(rnd.IntN(80)) * time.Second)
					case 2:
						times := uint64(1 + rnd.IntN(2))
						short.SetRules(compile(t, spec(times)))
						long.SetRules(compile(t, spec(times)))
					default:
						now = now.Add(time.Duration(rnd.IntN(100)) * time.Millisecond)
					}
					if i%100 == 0 {
						settleFrames(short, now)
						settleFrames(long, now)
					}
					user, cost := fmt.Sprint("u", rnd.IntN(3)), uint64(rnd.IntN(4)) // 0: 1, as the rule says
					ask := func(n *Node, details bool) limit.Decision {
						req := n.Rules().Only().NewRequest()
						defer req.Release()
						req.Set("user", user)
						req.Cost, req.Details = cost, details
						d := n.Check(now, req)
						d.Rule, d.Rate = nil, nil // each node has its own
						return d
					}
					got, want := ask(short, false), ask(long, true)
					if got != want {
						t.Fatalf("request %d: %+v by the short path, %+v by the long one", i, got, want)
					}
					if want.Allowed {
						allowed++
					} else {
						denied++
					}
				}
				if allowed < 100 || denied < 100 {
					t.Errorf("%d allowed, %d denied: the traffic tests little", allowed, denied)
				}
			})
		}
	}
}
