package demo

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
	deltasync "github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// What an edge admits as its rules say is no over-admission, whatever the
// algorithm; what it admits beyond a window's limit is.
func TestSiteJudgesWhatCanBeJudged(t *testing.T) {
	flow := limit.Flow{Units: 10, Per: time.Minute}
	elastic := limit.RuleSpec{Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}}, Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 100, While: "capacity.api < 70%"}}}
	for name, rule := range map[string]limit.RuleSpec{
		"sub_windows":  {Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}}},
		"token_bucket": {Rates: []limit.RateSpec{{Algorithm: "token_bucket", Capacity: 10, Refill: flow}}},
		"first_hit":    {Rates: []limit.RateSpec{{Algorithm: "fixed_window", Align: "first_hit", Limit: 10, Per: time.Minute}}},
		"concurrency":  {Rates: []limit.RateSpec{{Algorithm: "concurrency", Limit: 10, Lease: time.Minute}}},
		"shadow":       {Mode: "shadow", Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}}},
		"count_when":   {CountWhen: `attr("response.status") == "401"`, Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}}},
		"elastic":      elastic,
	} {
		rule.Name = "r"
		s := &site{
			node: limitertest.Node(t, limit.Document{Namespace: "demo", Rules: []limit.RuleSpec{rule}}), ns: "demo",
			global: world.NewOracle(), region: world.NewOracle(), used: map[deltasync.Key]struct{}{},
		}
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if err := s.node.SetCapacity(start, "api", 0.1, time.Hour); err != nil {
			t.Fatal(err)
		}
		var charges []limit.Charge
		admitted := 0
		for i := range 40 { // one, and after a pause one a second
			now := start
			if i > 0 {
				now = now.Add(time.Duration(40+i) * time.Second)
			}
			req := s.namespace().NewRequest()
			req.Receipt = true
			if s.Check(now, req).Allowed {
				admitted++
			}
			if charges = append(charges, req.Charges...); name == "concurrency" { // one at a time
				s.Refund(now, charges, 0)
				charges = charges[:0]
			}
			req.Release()
		}
		if names, all := unjudged(s.Rules()); all == judged(s.Rules().Rules()[0], s.Rules().Rules()[0].Rates[0]) || all != (len(names) == 1) {
			t.Errorf("%s: of %v no over-admission is told, of all rates: %v", name, names, all)
		}
		if admitted < 10 || s.global.Worst() != 0 {
			t.Errorf("%s: %d admitted, said to be over by %v", name, admitted, s.global.Worst())
		}
		// The same counted by the oracle alone, for a window, is too much.
		if name != "sub_windows" {
			continue
		}
		req := s.namespace().NewRequest()
		beliefs := s.node.Inspect(start, req)
		s.global.Admit(start.Add(55*time.Second), beliefs[0].Rate, beliefs[0].Key, 5)
		if !judged(beliefs[0].Rule, beliefs[0].Rate) || s.global.Worst() == 0 {
			t.Errorf("15 of 10 in a window: over by %v, want some", s.global.Worst())
		}
	}
}
