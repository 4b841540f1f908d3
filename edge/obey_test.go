package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Whoever waits as long as he is told gets in, be it that he was charged with what was
// denied, and nobody else asks.
func TestWhoWaitsAsToldGetsIn(t *testing.T) {
	penalty := limit.Penalty{For: 30 * time.Second}
	ten := limit.RateSpec{Limit: 10, Per: time.Minute}
	log := limit.RateSpec{Algorithm: "sliding_log", Limit: 10, Per: time.Minute, CountDenied: true}
	sliding := limit.RateSpec{Algorithm: "sliding_window", Limit: 10, Per: time.Minute}
	for name, rule := range map[string]limit.RuleSpec{
		"each":                       {Charge: "each", Rates: []limit.RateSpec{ten}},
		"each, loose":                {Charge: "each", Consistency: "loose", Rates: []limit.RateSpec{ten}},
		"each, of an edge":           {Charge: "each", Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute, Scope: "edge"}}},
		"each of one":                {Charge: "each", Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}},
		"each, two rates":            {Charge: "each", Rates: []limit.RateSpec{ten, {Limit: 3, Per: 20 * time.Second}}},
		"each with a penalty":        {Charge: "each", Penalty: penalty, Rates: []limit.RateSpec{ten}},
		"each, sliding, penalty":     {Charge: "each", Penalty: penalty, Rates: []limit.RateSpec{sliding}},
		"each until reset":           {Charge: "each", Penalty: limit.Penalty{UntilReset: true}, Rates: []limit.RateSpec{ten}},
		"count_denied":               {Rates: []limit.RateSpec{log}},
		"count_denied with penalty":  {Penalty: penalty, Rates: []limit.RateSpec{log}},
		"each, one of them binding":  {Charge: "each", Rates: []limit.RateSpec{{Limit: 1, Per: 5 * time.Second}, ten}},
		"a log beside a window":      {Rates: []limit.RateSpec{{Limit: 1, Per: 5 * time.Second}, log}},
		"all or nothing":             {Rates: []limit.RateSpec{ten}},
		"all or nothing and penalty": {Penalty: penalty, Rates: []limit.RateSpec{ten}},
	} {
		for _, gap := range []time.Duration{time.Second, 5 * time.Second} {
			unit := []time.Duration{time.Nanosecond, time.Second}[len(name)%2]
			t.Run(fmt.Sprintf("%s every %v, in %v", name, gap, unit), func(t *testing.T) {
				rule.Name, rule.Key = "api", []string{"user"}
				n := newNode(t, Config{}, rule)
				now := start
				var d limit.Decision
				for i := 0; i < 31 || d.Allowed; i++ {
					now = now.Add(gap)
					d = check(n, now, "u")
				}
				if rule.Charge == "each" && d.Remaining != 0 {
					t.Errorf("denied with %d remaining: what was denied is charged", d.Remaining)
				}
				wait := (d.RetryAfter + unit - 1) / unit * unit
				if d = check(n, now.Add(wait), "u"); !d.Allowed {
					t.Fatalf("after a wait of %v, as told: denied for %v more", wait, d.RetryAfter)
				}
			})
		}
	}
}
