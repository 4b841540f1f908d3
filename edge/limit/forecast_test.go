package limit_test

import (
	"math"
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

// What is predicted, to the hundredth: a quantile of what others charge in the time that
// the news takes; of shares what is lent and what pictures of a different age let pass.
func TestForecastInFigures(t *testing.T) {
	const ms = time.Millisecond
	of := func(regions, edges, largest int, between time.Duration) limit.Topology {
		return limit.Topology{Regions: regions, Edges: edges, Largest: largest, Between: between, Within: 5 * ms, Interval: 100 * ms, UrgentGap: 20 * ms}
	}
	costing := func(cost uint64) limit.Topology {
		t := of(5, 10, 2, 80*ms)
		t.Cost = cost
		return t
	}
	loose := limit.RateSpec{Limit: 100, Per: time.Second, Consistency: "loose"}
	shares := limit.RateSpec{Limit: 100, Per: time.Second, Consistency: "adaptive"}
	region, calm := loose, shares
	region.Scope, calm.Surge = "region", 2
	two, twoLoose := shares, loose
	two.Algorithm, twoLoose.Algorithm = "sliding_window", "sliding_window"
	bucket := limit.RateSpec{Algorithm: "token_bucket", Capacity: 100, Refill: limit.Flow{Units: 100, Per: time.Second}, Consistency: "adaptive"}
	// quantile of a mean, of requests of 1
	q := func(mean, more float64) float64 { return mean + 3.09*math.Sqrt(mean+more) + 1.5 }
	for _, tt := range []struct {
		name          string
		spec          limit.RateSpec
		over          limit.Topology
		steady, surge float64
	}{
		// 88 ms from region to region, 10 within, 40 for urgent frames, half an interval: 188; and 80 more out of the blue
		{"loose", loose, of(5, 10, 2, 80*ms), q(200*.9*.188, 0), q(1000*.9*.268, 0)},
		{"the largest mesh", loose, of(limit.MeshRegions, 10, 2, 80*ms), q(200*.9*.188, 0), q(1000*.9*.268, 0)},
		{"by way of homes", loose, of(limit.MeshRegions+1, 10, 2, 80*ms), q(200*.9*.276, 0), q(1000*.9*.356, 0)},
		{"the largest of many regions", region, of(limit.MeshRegions+1, 20, 5, 80*ms), q(200*.8*.1, 0), q(1000*.8*.18, 0)},
		// they lend 5, pictures differ by 18 ms, and in a crowd seven edges pass a whole request
		{"shares", shares, of(5, 10, 2, 80*ms), math.Hypot(5, q(.75*200*.018, 2.5)), math.Hypot(math.Hypot(5, 7), q(.75*1000*.018, 2.5))},
		{"half a request an edge", shares, of(2, 200, 100, 80*ms), math.Hypot(5, q(.75*200*.018, 50)), math.Hypot(math.Hypot(5, 140), q(.75*1000*.018, 50))},
		{"a fifth of one", shares, of(2, 500, 250, 500*ms), math.Hypot(5, q(.75*200*.06, 125)), math.Hypot(math.Hypot(5, 400), q(.75*1000*.06, 125))},
		// as of 10, of which a request is 1: of each ten one passes a whole one, and of such as cost more but a part of them
		{"requests that cost 10", shares, costing(10), 10 * math.Hypot(.5, q(.75*20*.018, 2.5)), 10 * math.Hypot(math.Hypot(.5, 7), q(.75*100*.018, 2.5))},
		{"requests that cost 50", shares, costing(50), 50 * q(4*.9*.188, 0), 50 * math.Hypot(math.Hypot(.1, 1.4), q(.75*20*.018, 2.5))},
		{"requests that never fit", shares, costing(1 << 53), 100 * q(2*.9*.188, 0), 100 * math.Hypot(math.Hypot(.05, .7), q(.75*10*.018, 2.5))},
		{"and nobody asks for more", shares, of(2, 500, 250, 80*ms), math.Hypot(5, q(.75*200*.018, 125)), q(1000*.998*.268, 0)},
		{"two windows, by shares", two, of(5, 10, 2, 80*ms), 2 * math.Hypot(5, q(.75*200*.018, 2.5)), math.Hypot(math.Hypot(5, 7), q(.75*1000*.018, 2.5))},
		{"a bucket, by shares", bucket, of(5, 10, 2, 80*ms), 1.75 * math.Hypot(5, q(.75*200*.018, 2.5)), math.Hypot(math.Hypot(5, 7), q(.75*1000*.018, 2.5))},
		{"two windows, loose", twoLoose, of(5, 10, 2, 80*ms), q(200*.9*.188, 0), q(1000*.9*.268, 0)},
		// ten times the limit for 72 ms leaves some of it, and the news takes 122
		{"shares, near", shares, of(2, 4, 2, 20*ms), math.Hypot(5, q(.75*200*.012, 1)), math.Hypot(math.Hypot(5+1000*.75*.05, 2.8), q(.75*1000*.012, 1))},
		{"shares that expect no more than twice the limit", calm, of(5, 10, 2, 80*ms), math.Hypot(5, q(.75*200*.018, 2.5)), math.Hypot(math.Hypot(5+200*.9*.05, 7), q(.75*200*.018, 2.5))},
		// nothing is between the regions where there is one
		{"one region", loose, of(1, 10, 10, 80*ms), q(200*.9*.1, 0), q(1000*.9*.18, 0)},
		{"no edges", loose, limit.Topology{}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rate := compileRules(t, limit.RuleSpec{Name: "api", Rates: []limit.RateSpec{tt.spec}}).Rules()[0].Rates[0]
			got := rate.Forecast(tt.over)
			if !(math.Abs(got.Steady-tt.steady) < 0.01 && math.Abs(got.Surge-tt.surge) < 0.01) {
				t.Errorf("Forecast = %+v, want %.2f, with a surge %.2f", got, tt.steady, tt.surge)
			}
			each := *rate
			if each.PerRequest = true; each.Forecast(tt.over) != (limit.Forecast{}) {
				t.Errorf("of a limit of each request: %+v, want none", each.Forecast(tt.over))
			}
		})
	}
}
