package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Edges are replaced by others, one after the other, and then the aggregators are, all in good
// order: nothing is kept for those that went, so that all of the limit is there for those that
// came.
func TestEdgesAndAggregatorsAreReplaced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		regions, aggregators int
		restart              bool // of one, that dies
	}{{1, 2, true}, {1, 2, false}, {1, 1, false}, {3, 2, false}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
			w := wideOf(t, tt.regions, 6, func(c *Config) { c.Seed, c.Aggregators, c.Lanes = 15, tt.aggregators, 8 }, spec)
			name := func(region, i int) string { return fmt.Sprintf("r%d-%d", region, i) }
			for g := range tt.regions {
				for i := 3; i < 6; i++ {
					w.Depart(name(g, i))
				}
			}
			w.Advance(start.Add(70 * time.Second)) // nothing is kept for those any more
			o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
			asks := func(d time.Duration) (admitted int) {
				for end := w.Now().Add(d); w.Now().Before(end); {
					w.Advance(w.Now().Add(time.Duration(rnd.ExpFloat64() * float64(time.Second) / float64(180*tt.regions))))
					var there []string
					for _, e := range w.Edges() {
						if w.Node(e) != nil {
							there = append(there, e)
						}
					}
					if o.ask(w, there[rnd.IntN(len(there))]) {
						admitted++
					}
				}
				return admitted
			}
			asks(20 * time.Second)
			for i := range 3 {
				for g := range tt.regions {
					w.Depart(name(g, i))
					if err := w.Join(name(g, 3+i)); err != nil {
						t.Fatal(err)
					}
				}
				asks(time.Second)
			}
			for g := range tt.regions {
				region := fmt.Sprint("r", g)
				if tt.restart {
					w.restart(t, region, 0)
					continue
				}
				for _, v := range w.Servers(region) {
					w.Leave(v)
					asks(700 * time.Millisecond)
					if err := w.Return(v); err != nil {
						t.Fatal(err)
					}
					asks(700 * time.Millisecond)
				}
			}
			for i := range 3 {
				if got := asks(spec.Per); got < 900 {
					t.Errorf("%d are admitted in the %d. window after, want nearly %d", got, i+1, spec.Limit)
				}
			}
			if o.most > 50 || o.uncovered > 0 {
				t.Errorf("%d above the limit, and above what was told in %d of %d windows", o.most, o.uncovered, o.windows)
			}
		})
	}
}
