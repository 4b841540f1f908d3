package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Three regions whose links are cut off in turn, so that there is always some cut, and never
// the same for long, while what is asked for moves: who is told now and then that all hear
// all does not take that for the end of all cuts.
func TestLinksCutInTurn(t *testing.T) {
	t.Parallel()
	for _, lasts := range []time.Duration{2500 * time.Millisecond, 4 * time.Second} {
		for _, between := range []time.Duration{0, 300 * time.Millisecond} {
			t.Run(fmt.Sprintf("%v each, %v between", lasts, between), func(t *testing.T) {
				all, uncovered, most := 0, 0, uint64(0)
				for seed := uint64(1); seed <= 4; seed++ {
					spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
					w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Lanes = seed, 8 }, spec)
					w.Advance(start.Add(6 * time.Second))
					o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(48, seed))
					o.inRegions(w, rnd, 12*time.Second, 150, 5, 5)
					for i := range 18 {
						hz := []int{5, 5, 5}
						hz[(i/3+1)%3] = 150
						hz[(i/6+2)%3] += 60
						from, to := fmt.Sprintf("r%d", i%3), fmt.Sprintf("r%d", (i+1)%3)
						w.cutWay(from, to, false, false)
						o.inRegions(w, rnd, lasts, hz...)
						w.cutWay(from, to, true, true)
						if between != 0 {
							o.inRegions(w, rnd, between, hz...)
						}
					}
					o.inRegions(w, rnd, 12*time.Second, 60, 60, 60)
					all, uncovered, most = all+o.windows, uncovered+o.uncovered, max(most, o.most)
				}
				if uncovered*1000 > all || most > 250 {
					t.Errorf("%d of %d windows were above what was told, the most %d above a limit of 1000; want 0.1 %% at most, and 250", uncovered, all, most)
				}
			})
		}
	}
}
