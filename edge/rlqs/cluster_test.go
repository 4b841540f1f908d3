package rlqs

import (
	"fmt"
	"testing"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
	"github.com/spillgate/spillgate/test/alone"
	cluster "github.com/spillgate/spillgate/test/sim/world"
)

// TestSeveralEdges has data planes at several edges of several regions, which speak the
// production protocol, want more than one limit: what all of them admit together in any
// window of it, and on average.
func TestSeveralEdges(t *testing.T) {
	alone.Mark(t)
	tenSeconds := limit.RateSpec{Limit: 1000, Per: 10 * time.Second}
	with := func(consistency string) limit.RateSpec {
		rate := tenSeconds
		rate.Consistency = consistency
		return rate
	}
	for _, c := range []struct {
		name           string
		rate           limit.RateSpec
		regions, edges int
		rps, later     []float64 // of the data plane at each edge in turn, and in the second half
		most, least    float64   // of the limit, in the worst window and on average
	}{
		{"contended", tenSeconds, 2, 2, []float64{200}, nil, 1.1, 0.9},
		{"unequal", tenSeconds, 2, 2, []float64{200, 20, 5, 60}, nil, 1.1, 0.9},
		{"one alone", tenSeconds, 2, 2, []float64{200, 0, 0, 0}, nil, 1.1, 0.9},
		{"just the limit", tenSeconds, 2, 2, []float64{25}, nil, 1, 0.8},
		{"many edges", tenSeconds, 3, 5, []float64{40}, nil, 1.1, 0.9},
		{"others come", tenSeconds, 2, 2, []float64{10, 0, 0, 0}, []float64{200}, 1.1, 0.8},
		{"they move", tenSeconds, 2, 2, []float64{50, 0, 0, 0}, []float64{0, 0, 200, 200}, 1.1, 0.8},
		{"a fixed window", fixed(1000, 10*time.Second), 2, 2, []float64{200}, nil, 1.1, 0.9},
		{"a token bucket", limit.RateSpec{Algorithm: "token_bucket", Capacity: 200, Refill: limit.Flow{Units: 100, Per: time.Second}}, 2, 2, []float64{200}, nil, 1.1, 0.9},
		{"a small limit", limit.RateSpec{Limit: 20, Per: 10 * time.Second}, 2, 2, []float64{20}, nil, 1.1, 0.9},
		{"strict", with("strict"), 2, 2, []float64{200}, nil, 1.05, 0.9}, // of requests: what is charged is below
		{"loose", with("loose"), 2, 2, []float64{200}, nil, 3, 0.9},      // as README tells
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.later == nil {
				c.later = c.rps
			}
			worst, charged, mean := several(t, c.rate, c.regions, c.edges, c.rps, c.later)
			t.Logf("%.3f of the limit in the worst window, %.3f charged, %.3f on average", worst, charged, mean)
			if c.rate.Consistency == "strict" && charged > 1 {
				t.Errorf("%.3f of a strict limit were charged in the worst window", charged)
			}
			if worst > c.most {
				t.Errorf("%.3f of the limit were admitted in the worst window, want %v at the most", worst, c.most)
			}
			if mean < c.least {
				t.Errorf("%.3f of the limit were admitted on average, want %v", mean, c.least)
			}
		})
	}
}

// several is what part of a limit was admitted in the worst window of a minute, and charged in one, which
// comes first: a data plane uses what it was assigned for some time. mean is what was admitted on average in
// the second half, of what was asked for then if that is less.
func several(t *testing.T, rate limit.RateSpec, regions, edges int, rps, later []float64) (worst, charged, mean float64) {
	rate.Scope = "global"
	cfg := cluster.Config{Start: start, Lanes: 8, Rules: []limit.Document{{Namespace: edge.LocalNamespace, Rules: []limit.RuleSpec{perUser(rate)}}}}
	for r := range regions {
		region := cluster.Region{Name: fmt.Sprint("r", r)}
		for e := range edges {
			region.Edges = append(region.Edges, fmt.Sprint("r", r, "-", e))
		}
		cfg.Regions = append(cfg.Regions, region)
	}
	over, err := cluster.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	window, most, flow := rate.Per, float64(rate.Limit), float64(rate.Limit)
	if rate.Capacity > 0 { // of a bucket: what may come in 10 s
		window, flow = 10*time.Second, float64(10*rate.Refill.Units)
		most = flow + float64(rate.Capacity)
	}
	over.Advance(start.Add(window)) // all have heard of each other by then
	var worlds []*world
	for i, name := range over.Edges() {
		w := worldOver(t, Config{}, over.Node(name))
		w.now = over.Now()
		w.join(name, rps[i%len(rps)], dataplane.Settings{NoAssignment: denyAll})
		worlds = append(worlds, w)
	}
	const steps = int(time.Minute / step)
	history, grants := []int{0}, []float64{0}
	asked := 0.0
	for n := range steps {
		over.Advance(over.Now().Add(step))
		over.Touch()
		sum, granted := 0, 0.0
		for i, w := range worlds {
			if n == steps/2 {
				w.pops[0].rps = later[i%len(later)]
				asked += w.pops[0].rps * window.Seconds()
			}
			w.step()
			sum += w.admitted()
			granted += testutil.ToFloat64(w.book.metrics.granted) - testutil.ToFloat64(w.book.metrics.returned)
		}
		history, grants = append(history, sum), append(grants, granted)
	}
	of := int(window / step)
	for i := of; i < len(history); i++ {
		if rate.Algorithm != "fixed_window" || i%of == 0 {
			worst = max(worst, float64(history[i]-history[i-of])/most)
			charged = max(charged, (grants[i]-grants[i-of])/most)
		}
	}
	return worst, charged, float64(history[steps]-history[steps/2]) / float64(steps/2) * float64(of) / min(flow, asked)
}

// TestACrowdAtSeveralEdges: users who ask seldom, at each of several edges, of a limit of all.
func TestACrowdAtSeveralEdges(t *testing.T) {
	alone.Mark(t)
	all, own := perUser(limit.RateSpec{Limit: 1000, Per: 10 * time.Second, Scope: "global"}), perUser(limit.RateSpec{Limit: 50, Per: 10 * time.Second, Scope: "global"})
	all.Name, all.Key, own.Group = "all", nil, "own"
	for _, no := range []*typev3.RateLimitStrategy{nil, denyAll} {
		for _, rps := range []float64{50, 200} {
			cfg := cluster.Config{
				Start: start, Lanes: 8, Rules: []limit.Document{{Namespace: edge.LocalNamespace, Rules: []limit.RuleSpec{all, own}}},
				Regions: []cluster.Region{{Name: "r0", Edges: []string{"a", "b"}}, {Name: "r1", Edges: []string{"c", "d"}}},
			}
			over, err := cluster.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			over.Advance(start.Add(10 * time.Second)) // all have heard of each other by then
			var worlds []*world
			for _, name := range over.Edges() {
				w := worldOver(t, Config{}, over.Node(name))
				w.now = over.Now()
				w.join(name, 0, dataplane.Settings{ByTimer: true, NoAssignment: no, ExpiredFor: time.Hour, Fallback: denyAll})
				worlds = append(worlds, w)
			}
			const users, length, window, warm = 200, 90 * time.Second, int(10 * time.Second / step), 30 * time.Second // users of each edge
			history, held, next, asked := []uint64{0}, []uint64{0}, 0.0, 0
			for range int(length / step) {
				over.Advance(over.Now().Add(step))
				over.Touch()
				admitted, outstanding := history[len(history)-1], uint64(0)
				for next += rps * step.Seconds(); next >= 1; next-- {
					asked++
					w := worlds[asked%len(worlds)]
					if w.pops[0].Allow(w.now, map[string]string{"user": fmt.Sprint("u", asked%(users*len(worlds)))}) {
						admitted++
					}
				}
				for _, w := range worlds {
					w.step()
					if len(history)%10 == 0 {
						outstanding += w.outstanding()
					}
				}
				history, held = append(history, admitted), append(held, outstanding)
			}
			worst, most := uint64(0), uint64(0)
			for i := int(warm / step); i < len(history)-window; i++ {
				worst, most = max(worst, history[i+window]-history[i]), max(most, held[i])
				if got := history[i+window] - history[i]; held[i] > 0 && got > 1100+held[i] {
					t.Errorf("%v/s, first ones pass %t: %d in 10 s, of 1000 and %d outstanding", rps, no == nil, got, held[i])
				}
			}
			part := float64(history[len(history)-1]-history[int(warm/step)]) / (length - warm).Seconds() / min(rps, 100)
			t.Logf("%v/s, first ones pass %t: %d of 1000 in the worst window, %d outstanding, %.2f of what there is room for", rps, no == nil, worst, most, part)
			if part > 1.1 || part < 0.9 {
				t.Errorf("%v/s, first ones pass %t: %.2f of what there is room for", rps, no == nil, part)
			}
		}
	}
}
