package limit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A limit is warned of for what twice of it come to, or for a surge; what would mend it is
// told the least change first: nothing that no rule may have, or changes nothing.
func TestStrainAndRelief(t *testing.T) {
	const ms = time.Millisecond
	usual := limit.Topology{Regions: 5, Edges: 10, Largest: 2, Between: 80 * ms, Within: 5 * ms, Interval: 100 * ms, UrgentGap: 20 * ms}
	lone := limit.Topology{Regions: 1, Edges: 20_000, Largest: 20_000, Within: 300 * 24 * time.Hour, UrgentGap: 20 * ms}
	moon := limit.Topology{Regions: 2, Edges: 4, Largest: 2, Between: 10 * time.Minute, UrgentGap: 20 * ms}
	mars := limit.Topology{Regions: 2, Edges: 4, Largest: 2, Between: 300 * 24 * time.Hour, UrgentGap: 20 * ms}
	wide := limit.Topology{Regions: 20, Edges: 200, Largest: 10, Between: 400 * ms, Within: 5 * ms, Interval: 100 * ms, UrgentGap: 20 * ms}
	far := limit.Topology{Regions: 2, Edges: 4, Largest: 2, Between: 3 * time.Hour, UrgentGap: 20 * ms}
	one := limit.Topology{Regions: 1, Edges: 4, Largest: 4, Within: 200 * ms, Interval: 100 * ms, UrgentGap: 20 * ms}
	for _, tt := range []struct {
		name string
		spec limit.RateSpec
		over limit.Topology
		code string
		hint string // in full
	}{
		{"the least change first", limit.RateSpec{Limit: 100, Per: time.Second, Consistency: "loose"}, usual, "W230",
			"consistency: adaptive (13 %), or 500 per 5s (11 %)"},
		{"for a surge alone", limit.RateSpec{Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive", Surge: 1000}, usual, "W230",
			"5000 per 50s (1 %), or scope: region, a limit for each (1 %)"},
		{"for twice the limit alone", limit.RateSpec{Limit: 30, Per: time.Second, Consistency: "adaptive", Surge: 2}, usual, "W230",
			"150 per 5s (8 %), or scope: region, a limit for each (18 %)"},
		{"as large as limits are", limit.RateSpec{Limit: 1 << 51, Per: time.Second, Consistency: "loose"}, usual, "W230",
			"consistency: adaptive (6 %), or scope: region, a limit for each (11 %)"},
		{"almost as large", limit.RateSpec{Limit: 1 << 50, Per: time.Second, Consistency: "loose"}, usual, "W230",
			"consistency: adaptive (6 %), or 5629499534213120 per 5s (7 %), or scope: region, a limit for each (11 %)"},
		{"as long as windows are", limit.RateSpec{Limit: 100, Per: 100 * 24 * time.Hour, Consistency: "loose"}, mars, "E230", "scope: region, a limit for each (2 %)"},
		{"one region", limit.RateSpec{Limit: 100, Per: time.Second, Consistency: "loose"}, one, "E230",
			"consistency: adaptive (10 %), or 1000 per 10s (11 %)"},
		{"nothing mends it", limit.RateSpec{Limit: 100, Per: 100 * 24 * time.Hour, Consistency: "adaptive"}, lone, "E230",
			"scope: edge and a part of the limit for each, a longer window, or fewer edges"},
		{"an hour", limit.RateSpec{Limit: 100, Per: time.Hour, Consistency: "loose"}, moon, "W230",
			"consistency: adaptive (11 %), or 500 per 5h (10 %), or scope: region, a limit for each (2 %)"},
		{"slots, which a longer lease makes no more of", limit.RateSpec{Algorithm: "concurrency", Limit: 10, Lease: 5 * time.Second}, wide, "E230",
			"consistency: strict, scope: edge and a part of the slots for each, or fewer edges"},
		{"a bucket", limit.RateSpec{Algorithm: "token_bucket", Capacity: 100, Refill: limit.Flow{Units: 100, Per: time.Second}, Consistency: "loose"}, one, "E230",
			"consistency: adaptive (17 %), or capacity: 1000 (11 %)"},
		{"a bucket that nothing mends", limit.RateSpec{Algorithm: "token_bucket", Capacity: 100, Refill: limit.Flow{Units: 100, Per: 100 * 24 * time.Hour}}, lone, "E230",
			"scope: edge and a part of the limit for each, a larger capacity, or fewer edges"},
		{"a day of the calendar", limit.RateSpec{Algorithm: "fixed_window", Limit: 100, Period: "day", Align: "utc", Consistency: "loose"}, far, "W230",
			"consistency: adaptive (10 %), or scope: region, a limit for each (2 %)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rate := compileRules(t, limit.RuleSpec{Name: "api", Rates: []limit.RateSpec{tt.spec}}).Rules()[0].Rates[0]
			p, refused := rate.Strain("rules[0].rates[0]", tt.over)
			if p == nil || p.Code != tt.code || p.Hint != tt.hint || refused != (tt.code == "E230") {
				t.Errorf("%+v of %+v, refused: %v; want %s with the hint %q", p, rate.Forecast(tt.over), refused, tt.code, tt.hint)
			}
		})
	}
}

// A limit is judged by what requests cost that say nothing else, and warned of for the
// heaviest that its rule lets be named; a gap between requests counts each as one.
func TestStrainsByCost(t *testing.T) {
	const ms = time.Millisecond
	usual := limit.Topology{Regions: 5, Edges: 10, Largest: 2, Between: 80 * ms, Within: 5 * ms, Interval: 100 * ms, UrgentGap: 20 * ms}
	for _, tt := range []struct {
		name    string
		cost    limit.CostSpec
		refused bool
		want    string // how the detail begins; "": it is held well enough
	}{
		{"one", limit.CostSpec{}, false, ""},
		{"so much each", limit.CostSpec{Default: 25}, true, "where requests cost 25, 100 per 1s, adaptive over 10 edges cannot be held: "},
		{"a heavy route", limit.CostSpec{ByRoute: map[string]uint64{"/a": 2, "/b": 25}}, false, "where requests cost 25, 100 per 1s, adaptive over 10 edges cannot be held: "},
		{"whoever names more", limit.CostSpec{FromHeader: "X-Cost", Max: 5}, false, "where requests cost 5, 100 per 1s, adaptive over 10 edges is exceeded by much: "},
		{"of who may name anything nothing is known", limit.CostSpec{FromHeader: "X-Cost"}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rule := compileRules(t, limit.RuleSpec{Name: "api", Cost: tt.cost, Rates: []limit.RateSpec{{Limit: 100, Per: time.Second}}}).Rules()[0]
			refused, strained := rule.Strains("rules[0]", usual)
			all := append(refused, strained...)
			if tt.want == "" {
				if len(all) != 0 {
					t.Errorf("%+v, want nothing", all)
				}
				return
			}
			if len(all) != 1 || (len(refused) == 1) != tt.refused || (all[0].Code == "E230") != tt.refused || !strings.HasPrefix(all[0].Detail, tt.want) {
				t.Errorf("refused %+v, warned of %+v; want one that begins with %q", refused, strained, tt.want)
			}
		})
	}
}

// What tenants have of a limit is judged as if it was written out: each figure once, with
// whose it is.
func TestStrainsOfTenants(t *testing.T) {
	const ms = time.Millisecond
	pops := limit.Topology{Regions: 20, Edges: 20, Largest: 1, Between: 400 * ms, Within: 5 * ms, Interval: 100 * ms, UrgentGap: 20 * ms}
	tenants := map[string]limit.TenantSpec{"same": {Multiply: 1}, "large": {Multiply: 100}, "free": {Multiply: 0.01}, "test": {Multiply: 0.01}, "trial": {Multiply: 0.0101}}
	rule := limit.RuleSpec{Name: "api", TierFrom: "tenant", Rates: []limit.RateSpec{{Limit: 1000, Per: time.Second}, {Name: "gap", Limit: 1000, Per: time.Minute, Consistency: "strict"}}}
	set, problems := limit.Options{}.Compile(limit.Document{Namespace: "shop", Tenants: tenants, Rules: []limit.RuleSpec{rule}})
	if set == nil {
		t.Fatal(problems)
	}
	refused, strained := set.Rules()[0].Strains("rules[0]", pops)
	told := func(ps []limit.Problem) (out []string) {
		for _, p := range ps {
			out = append(out, fmt.Sprintf("%s %s: %s (%s)", p.Path, p.Code, p.Detail, p.Hint))
		}
		return out
	}
	ten := compileRules(t, limit.RuleSpec{Name: "api", Rates: []limit.RateSpec{{Limit: 10, Per: time.Second}}}).Rules()[0]
	alone, _ := ten.Strains("rules[0]", pops)
	if len(alone) != 1 || len(refused) != 1 || refused[0].Detail != `for tenant "free" and 1 more, multiply: 0.01: `+alone[0].Detail || refused[0].Code != "E230" {
		t.Errorf("refused: %q, want what is said of ten a second, %q", told(refused), told(alone))
	}
	if len(refused) == 1 && !strings.HasPrefix(refused[0].Hint, "10000 per 10s (") { // as the rule would have it
		t.Errorf("hint: %q", refused[0].Hint)
	}
	if !slices.ContainsFunc(strained, func(p limit.Problem) bool {
		return p.Code == "W232" && p.Path == "rules[0].rates[1]" && strings.HasPrefix(p.Detail, `for tenant "free" and 1 more, multiply: 0.01: 10 per 1m, strict over 20 edges`) && strings.Contains(p.Hint, "8000 per 8m")
	}) || len(strained) != 1 {
		t.Errorf("strained: %q, want W232 of ten a minute", told(strained))
	}
}
