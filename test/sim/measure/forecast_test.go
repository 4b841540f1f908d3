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

// What edge validate --topology predicts is about what the simulator sees, or more: by
// how much, is logged (the table of edge/limit/README.md).
func TestForecastsHold(t *testing.T) {
	type place struct {
		name           string
		regions, edges int
		oneWay         time.Duration
	}
	alone.Mark(t)
	t.Parallel()
	for _, p := range []place{{"near", 2, 2, 20 * time.Millisecond}, {"usual", 5, 2, 80 * time.Millisecond}, {"far", 4, 1, 300 * time.Millisecond}, {"many", 20, 1, 150 * time.Millisecond}} {
		for _, l := range []scenarios.Limit{{Limit: 100, Window: time.Second}, {Limit: 1000, Window: 10 * time.Second}} {
			t.Run(fmt.Sprintf("%s, %v", p.name, &l), func(t *testing.T) {
				t.Parallel()
				for _, consistency := range []string{"loose", "adaptive"} {
					set, problems := limit.Options{}.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "api", Rates: []limit.RateSpec{{Limit: l.Limit, Per: l.Window, Consistency: consistency}}}}})
					if set == nil {
						t.Fatal(problems)
					}
					f := set.Rules()[0].Rates[0].Forecast(limit.Topology{
						Regions: p.regions, Edges: p.regions * p.edges, Largest: p.edges, Between: p.oneWay, Within: 5 * time.Millisecond, Interval: 100 * time.Millisecond, UrgentGap: 20 * time.Millisecond,
					})
					for name, predicted := range map[string]float64{"steady-2x": f.Steady, "flash-all": f.Surge} {
						o := options(t, name)
						o.Limit, o.Window, o.Regions, o.Edges, o.Consistency = l.Limit, l.Window, p.regions, p.edges, consistency
						o.Conditions.OneWay = p.oneWay
						most := 0.0
						for o.Seed = range uint64(1) {
							r, err := Run(o)
							if err != nil {
								t.Fatal(err)
							}
							most = max(most, r.Over*float64(l.Limit))
						}
						t.Logf("%s, %v, %s, %s: %.0f predicted, %.0f seen", p.name, &l, consistency, name, math.Ceil(predicted), most)
						if most > 1.1*math.Ceil(predicted) {
							t.Errorf("%s, %v, %s, %s: %.0f above the limit, %.1f was predicted", p.name, &l, consistency, name, most, predicted)
						}
					}
				}
			})
		}
	}
}
