package limit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func TestForecast(t *testing.T) {
	ms := time.Millisecond
	usual := limit.Topology{Regions: 5, Edges: 10, Largest: 2, Between: 80 * ms, Within: 5 * ms, Interval: 100 * ms, UrgentGap: 20 * ms}
	pops := limit.Topology{Regions: 20, Edges: 20, Largest: 1, Between: 500 * ms, Within: 5 * ms, Interval: 100 * ms, UrgentGap: 20 * ms}
	single := limit.Topology{Regions: 1, Edges: 1, Largest: 1, Between: 500 * ms, Within: 5 * ms, Interval: 100 * ms, UrgentGap: 20 * ms}
	for _, tt := range []struct {
		name        string
		spec        limit.RateSpec
		over        limit.Topology
		least, most float64 // steady, in percent of the limit
		code        string  // of the strain
		hint        string
	}{
		{"ten a second over 20 PoPs, half a second apart", limit.RateSpec{Limit: 10, Per: time.Second, Consistency: "loose"}, pops, 200, 400, "E230", "600 per 1m"},
		{"the same by shares", limit.RateSpec{Limit: 10, Per: time.Second, Consistency: "adaptive"}, pops, 60, 120, "E230", "per"},
		{"the same alone", limit.RateSpec{Limit: 10, Per: time.Second}, single, 0, 0, "", ""},
		{"the same at scope edge", limit.RateSpec{Limit: 10, Per: time.Second, Scope: "edge"}, pops, 0, 0, "", ""},
		{"the same at scope region", limit.RateSpec{Limit: 10, Per: time.Second, Scope: "region"}, pops, 0, 0, "", ""},
		{"a hundred a second", limit.RateSpec{Limit: 100, Per: time.Second, Consistency: "loose"}, usual, 35, 60, "W230", "consistency: adaptive"},
		{"a thousand a second", limit.RateSpec{Limit: 1000, Per: time.Second, Consistency: "loose"}, usual, 34, 45, "W230", "consistency: adaptive"},
		{"by shares", limit.RateSpec{Limit: 100, Per: time.Second, Consistency: "adaptive"}, usual, 3, 15, "", ""},
		{"in ten seconds", limit.RateSpec{Limit: 1000, Per: 10 * time.Second}, usual, 1, 3, "", ""},
		{"strict, ten a second over 20 edges", limit.RateSpec{Limit: 10, Per: time.Second, Consistency: "strict"}, pops, 0, 0, "W232", "strict_wait: 1s, or 80 per 8s, or scope: region, a limit for each, or consistency: adaptive"},
		{"strict, 20 a minute, who waits", limit.RateSpec{Limit: 20, Per: time.Minute, Consistency: "strict", StrictWait: 250 * ms}, pops, 0, 0, "W232", "80 per 4m, or scope: region"},
		{"strict, of a bucket", limit.RateSpec{Algorithm: "token_bucket", Capacity: 30, Refill: limit.Flow{Units: 10, Per: time.Second}, Consistency: "strict"}, usual, 0, 0, "W232", "strict_wait: 1s, or scope: region"},
		{"strict, four for each edge", limit.RateSpec{Limit: 80, Per: time.Second, Consistency: "strict"}, pops, 0, 0, "", ""},
		{"strict, at scope region", limit.RateSpec{Limit: 10, Per: time.Second, Consistency: "strict", Scope: "region"}, pops, 0, 0, "", ""},
		{"strict, at scope edge", limit.RateSpec{Limit: 1, Per: time.Second, Consistency: "strict", Scope: "edge"}, pops, 0, 0, "", ""},
		{"strict, alone", limit.RateSpec{Limit: 1, Per: time.Second, Consistency: "strict"}, single, 0, 0, "", ""},
		{"few a minute: a request or two", limit.RateSpec{Limit: 5, Per: time.Minute}, usual, 0, 60, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rate := compileRules(t, limit.RuleSpec{Name: "api", Rates: []limit.RateSpec{tt.spec}}).Rules()[0].Rates[0]
			f := rate.Forecast(tt.over)
			if got := 100 * f.Steady / float64(rate.Limit); got < tt.least || got > tt.most || f.Surge < f.Steady {
				t.Errorf("%+v: %.0f %%, want %v to %v; a surge is no less", f, got, tt.least, tt.most)
			}
			p, refused := rate.Strain("rules[0].rates[0]", tt.over)
			switch {
			case p == nil && tt.code != "":
				t.Errorf("no strain, want %s", tt.code)
			case p != nil && (p.Code != tt.code || refused != (tt.code == "E230") || !strings.Contains(p.Hint, tt.hint) || p.Path != "rules[0].rates[0]"):
				t.Errorf("%+v, refused: %v; want %s with a hint at %q", p, refused, tt.code, tt.hint)
			}
		})
	}
}
