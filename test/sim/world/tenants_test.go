package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A tenant whose limit is a multiple of a rule's gets that multiple from all edges
// together: no more in a window, and no less from a bucket over time, though edges
// restart.
func TestTenantsGetTheirMultiple(t *testing.T) {
	bucket := limit.RateSpec{Name: "b", Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 10, Per: time.Minute}}
	for _, c := range []struct {
		name     string
		rate     limit.RateSpec
		multiply float64
		asked    int
		within   time.Duration
		restarts bool
		want     int
	}{
		{"a window", limit.RateSpec{Limit: 10, Per: time.Minute}, 100, 3000, 50 * time.Second, false, 1000},
		{"a bucket", bucket, 10, 12_000, 20 * time.Minute, true, 2100},
	} {
		w := newWorld(t, []limit.Document{{
			Namespace: "t",
			Rules:     []limit.RuleSpec{{Name: "api", Key: []string{"user"}, TierFrom: "plan", Rates: []limit.RateSpec{c.rate}}},
			Tenants:   map[string]limit.TenantSpec{"gold": {Multiply: c.multiply}},
		}})
		allowed := 0
		for i := range c.asked {
			w.Advance(start.Add(time.Duration(i) * c.within / time.Duration(c.asked)))
			edge := w.Edges()[i%len(w.Edges())]
			if c.restarts && i%1200 == 600 {
				if err := w.Crash(edge); err != nil {
					t.Fatal(err)
				}
			}
			node := w.Node(edge)
			req := node.Rules().Only().NewRequest()
			req.Set("user", "u")
			req.Set("plan", "gold")
			w.Touch()
			if node.Check(w.Now(), req).Allowed {
				allowed++
			}
			req.Release()
		}
		if allowed < c.want*95/100 || allowed > c.want*105/100 {
			t.Errorf("%s: %d of %d admitted, want about %d", c.name, allowed, c.asked, c.want)
		}
	}
}
