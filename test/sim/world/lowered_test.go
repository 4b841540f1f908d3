package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A strict limit that the rules lower is kept from then on, by edges that are cut off and
// heard of it too: of what was spent before it only some is left for a window. And all of
// it is used again in the end.
func TestStrictLimitsAreLowered(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		regions, edges int
		from, to       uint64
		per            time.Duration
		cut            bool
	}{
		{1, 2, 1000, 10, time.Second, false},
		{1, 4, 100, 10, time.Second, false}, // less than each edge's part, rounded up
		{3, 2, 1000, 10, time.Second, false},
		{3, 2, 1000, 10, time.Second, true},
		{5, 2, 1000, 10, 5 * time.Second, true},
		{2, 2, 100, 99, time.Second, false},
	} {
		spec := limit.RateSpec{Name: "r", Limit: tt.from, Per: tt.per, Consistency: "strict"}
		w := wideOf(t, tt.regions, tt.edges, func(c *Config) { c.Seed = 3 }, spec)
		w.Advance(start.Add(20 * time.Second)) // until when no log is trusted
		var log []time.Time
		burst := func(n uint64) {
			for _, e := range w.Edges() {
				for range n {
					if check(w, e, "u").Allowed {
						log = append(log, w.Now())
					}
				}
			}
		}
		for range 20 * 20 {
			burst(max(1, tt.from/20))
			w.Advance(w.Now().Add(50 * time.Millisecond))
		}
		if tt.cut {
			for _, h := range w.order {
				w.Cut(h.name, true)
			}
		}
		spec.Limit = tt.to
		if err := w.SetRules("", rules(spec)); err != nil {
			t.Fatal(err)
		}
		w.Advance(w.Now().Add(tt.per * 21 / 20))
		log = log[:0]
		for end := w.Now().Add(40 * time.Second); w.Now().Before(end); w.Advance(w.Now().Add(tt.per / 20)) {
			burst(max(1, tt.to/10))
			for len(log) > 0 && w.Now().Sub(log[0]) >= tt.per {
				log = log[1:]
			}
			if n := uint64(len(log)); n > tt.to {
				t.Fatalf("%+v: %d in a window", tt, n)
			}
		}
		held := uint64(0)
		for _, e := range w.Edges() {
			held += w.Node(e).RightsOf(w.Node(e).Rules().Rules()[0].Rates[0].Generation).Held
		}
		if !tt.cut && held != tt.to {
			t.Errorf("%+v: %d rights are held in the end, want all", tt, held)
		}
	}
}
