package measure

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
	"github.com/spillgate/spillgate/test/sim/scenarios"
)

type topology struct {
	name           string
	regions, edges int
	oneWay         time.Duration
}

var topologies = []topology{{"near", 2, 2, 20 * time.Millisecond}, {"usual", 5, 2, 80 * time.Millisecond}, {"far", 4, 1, 300 * time.Millisecond}, {"many", 20, 1, 150 * time.Millisecond}}

// What edge validate --topology predicts is about what the simulator sees, or more: by
// how much, is logged (the table of edge/limit/README.md).
func TestForecastsHold(t *testing.T) {
	alone.Mark(t)
	t.Parallel()
	for _, p := range topologies {
		for _, l := range []scenarios.Limit{{Limit: 100, Window: time.Second}, {Limit: 1000, Window: 10 * time.Second}} {
			t.Run(fmt.Sprintf("%s, %v", p.name, &l), func(t *testing.T) {
				t.Parallel()
				for _, consistency := range []string{"loose", "adaptive"} {
					for _, scenario := range []string{"steady-2x", "flash-all"} {
						p.holds(t, l, consistency, "sub_windows", scenario, 1, 0)
					}
				}
			})
		}
	}
}

// Nor is it less for algorithms that are exceeded further, or for edges that have parts of
// a request each: with the seeds that were the worst of five.
func TestForecastsHoldAtTheWorst(t *testing.T) {
	alone.Mark(t)
	t.Parallel()
	second := func(n uint64) scenarios.Limit { return scenarios.Limit{Limit: n, Window: time.Second} }
	near, usual, far := topologies[0], topologies[1], topologies[2]
	for _, tt := range []struct {
		over      topology
		limit     scenarios.Limit
		algorithm string
		scenario  string
		costs     int
		seed      uint64
	}{
		{near, second(100), "sliding_window", "steady-2x", 1, 4},
		{near, second(1000), "sliding_window", "steady-2x", 1, 3},
		{usual, second(1000), "sliding_window", "steady-2x", 1, 3},
		{far, scenarios.Limit{Limit: 1000, Window: 10 * time.Second}, "sliding_window", "steady-2x", 1, 1},
		{near, second(1000), "token_bucket", "steady-2x", 1, 3},
		{usual, second(1000), "token_bucket", "steady-2x", 1, 3},
		{usual, second(1000), "token_bucket", "flash-all", 1, 4},
		{topology{"wide", 8, 10, 80 * time.Millisecond}, second(100), "sub_windows", "flash-all", 1, 4},
		{topology{"wide", 20, 10, 80 * time.Millisecond}, second(100), "sub_windows", "flash-all", 1, 1},
		{usual, second(100), "sub_windows", "steady-2x", 50, 2},
		{usual, second(100), "token_bucket", "flash-all", 5, 2},
		{topology{"wide", 8, 10, 80 * time.Millisecond}, second(1000), "sub_windows", "flash-all", 50, 0},
	} {
		t.Run(fmt.Sprintf("%d x %d, %v, %s, %s", tt.over.regions, tt.over.edges, &tt.limit, tt.algorithm, tt.scenario), func(t *testing.T) {
			t.Parallel()
			tt.over.holds(t, tt.limit, "adaptive", tt.algorithm, tt.scenario, tt.costs, tt.seed)
		})
	}
}

// holds runs a seed of a scenario, and fails where a limit is exceeded by more than was
// predicted.
func (p topology) holds(t *testing.T, l scenarios.Limit, consistency, algorithm, scenario string, costs int, seed uint64) {
	t.Helper()
	rate := shaped(limit.RateSpec{Limit: l.Limit, Per: l.Window, Consistency: consistency}, algorithm)
	set, problems := limit.Options{}.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "api", Rates: []limit.RateSpec{rate}}}})
	if set == nil {
		t.Fatal(problems)
	}
	f := set.Rules()[0].Rates[0].Forecast(limit.Topology{
		Regions: p.regions, Edges: p.regions * p.edges, Largest: p.edges, Between: p.oneWay, Within: 5 * time.Millisecond, Interval: 100 * time.Millisecond, UrgentGap: 20 * time.Millisecond,
		Cost: uint64(costs),
	})
	predicted := f.Steady
	if scenario == "flash-all" {
		predicted = f.Surge
	}
	o := options(t, scenario)
	o.Limit, o.Window, o.Regions, o.Edges, o.Consistency, o.Algorithm, o.Seed = l.Limit, l.Window, p.regions, p.edges, consistency, algorithm, seed
	o.Conditions.OneWay, o.Conditions.Costs = p.oneWay, costs
	r, err := Run(o)
	if err != nil {
		t.Fatal(err)
	}
	seen := r.Over * float64(l.Limit)
	t.Logf("%s, %v, %s, %s, %s: %.0f predicted, %.0f seen", p.name, &l, consistency, algorithm, scenario, math.Ceil(predicted), seen)
	if seen > math.Ceil(predicted) {
		t.Errorf("%s, %v, %s, %s, %s: %.0f above the limit, %.1f was predicted", p.name, &l, consistency, algorithm, scenario, seen, predicted)
	}
}
