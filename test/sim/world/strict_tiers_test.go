package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Requests of one key may have several limits, of their tier or as they ask for it. Of a
// strict rate each is admitted by its own: those of the larger as if they were alone, and
// no more under the smaller than that, over all edges, be all rights out for the larger.
func TestStrictLimitsShareAKey(t *testing.T) {
	gold := func(r *limit.Request) { r.Set("plan", "gold") }
	asks := func(r *limit.Request) { r.Override("api.r", 1000) }
	base := func(*limit.Request) {}
	made := func(t *testing.T, regions, edges int) *World {
		w := wideOf(t, regions, edges, func(c *Config) {
			c.Seed, c.Rules = 3, []limit.Document{{
				Namespace: "t",
				Rules: []limit.RuleSpec{{Name: "api", Key: []string{"user"}, TierFrom: "plan", Rates: []limit.RateSpec{
					{Name: "r", Limit: 100, Per: time.Second, Consistency: "strict"}}}},
				Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 10}},
			}}
		})
		w.Advance(start.Add(20 * time.Second)) // until when no log is trusted
		return w
	}
	ask := func(w *World, edge string, as func(*limit.Request)) bool {
		req := w.Node(edge).Rules().Only().NewRequest()
		defer req.Release()
		req.Set("user", "u")
		as(req)
		w.Touch()
		return w.Node(edge).Check(w.Now(), req).Allowed
	}
	for name, larger := range map[string]func(*limit.Request){"a tier": gold, "an override": asks} {
		t.Run(name, func(t *testing.T) {
			w := made(t, 2, 2)
			asked, admitted := 0, 0
			for i := range 500 * 8 {
				w.Advance(w.Now().Add(2 * time.Millisecond))
				as := larger
				if i/4%2 == 1 {
					as = base // twice its limit is in use by the others
				}
				ok := ask(w, w.Edges()[i%4], as)
				if i >= 500*3 && i/4%2 == 0 {
					if asked++; ok {
						admitted++
					}
				}
			}
			if admitted < asked*98/100 {
				t.Errorf("beside requests of a lower limit %d of %d pass, of a limit of four times that", admitted, asked)
			}
			w.Advance(w.Now().Add(1100 * time.Millisecond)) // all is free, and the rights are out
			admitted = 0
			for range 10 {
				for _, e := range w.Edges() {
					for range 50 {
						if ask(w, e, base) {
							admitted++
						}
					}
				}
				w.Advance(w.Now().Add(80 * time.Millisecond))
			}
			if admitted > 100 || admitted < 50 {
				t.Errorf("of a limit of 100, after others of one of 1000: %d pass in a window", admitted)
			}
			var log []time.Time // and when those are long gone, all of it is used again
			for i := range 500 * 40 {
				w.Advance(w.Now().Add(2 * time.Millisecond))
				if ask(w, w.Edges()[i%4], base) {
					log = append(log, w.Now())
				}
				for len(log) > 0 && w.Now().Sub(log[0]) >= time.Second {
					log = log[1:]
				}
				if len(log) > 100 {
					t.Fatalf("%d in a window", len(log))
				}
			}
			if len(log) < 90 {
				t.Errorf("in the last second %d pass of a limit of 100", len(log))
			}
		})
	}
}
