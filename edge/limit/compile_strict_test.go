package limit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Strict goes with all that an edge can decide by its rights alone, and with nothing else.
func TestCompileStrict(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*limit.RuleSpec)
		want   string // the path that is refused; "": none
	}{
		"window": {func(r *limit.RuleSpec) {}, ""},
		"soft":   {func(r *limit.RuleSpec) { r.Margin.SoftPercent = 10 }, ""},
		"bucket": {func(r *limit.RuleSpec) {
			r.Rates[0] = limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 5, Per: time.Second}}
		}, ""},
		"day": {func(r *limit.RuleSpec) { r.Rates[0] = limit.RateSpec{Limit: 10, Period: "day", Align: "utc"} }, ""},
		"slots": {func(r *limit.RuleSpec) {
			r.Rates[0] = limit.RateSpec{Algorithm: "concurrency", Limit: 5, Lease: time.Minute}
		}, ""},
		"min_gap":   {func(r *limit.RuleSpec) { r.MinGap = time.Second }, ""},
		"first_hit": {func(r *limit.RuleSpec) { r.Rates[0].Algorithm, r.Rates[0].Align = "fixed_window", "first_hit" }, "rules[0].rates[0].align"},
		"queue": {func(r *limit.RuleSpec) {
			r.Rates[0] = limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 10, Outflow: limit.Flow{Units: 5, Per: time.Second}, Queue: true}
		}, "rules[0].rates[0].queue"},
		"initial": {func(r *limit.RuleSpec) {
			r.Rates[0] = limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Initial: 20, Refill: limit.Flow{Units: 5, Per: time.Second}}
		}, "rules[0].rates[0].initial"},
		"elastic": {func(r *limit.RuleSpec) {
			r.Margin.Elastic = limit.ElasticSpec{UpToPercent: 50, While: "capacity.a < 70%"}
		}, "rules[0].margin.elastic"},
		"max_delay": {func(r *limit.RuleSpec) {
			r.MaxDelay = time.Second
			r.Rates[0] = limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 5, Per: time.Second}}
		}, "rules[0].max_delay"},
		"its own word": {func(r *limit.RuleSpec) { r.Rates[0].Surge = 5 }, "rules[0].rates[0].surge"},
	} {
		t.Run(name, func(t *testing.T) {
			rule := limit.RuleSpec{Name: "r", Key: []string{"user"}, Consistency: "strict", Rates: []limit.RateSpec{{Limit: 100, Per: time.Minute}}}
			c.change(&rule)
			_, problems := limit.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{rule}})
			var told limit.Problems
			if len(problems) > 0 {
				told = problems[0]
			}
			at := slices.IndexFunc(told, func(p limit.Problem) bool { return p.Path == c.want })
			if c.want == "" && len(told) > 0 || c.want != "" && (at < 0 || told[at].Hint == "") {
				t.Errorf("problems %v, want %q refused with a hint", problems, c.want)
			}
		})
	}
}
