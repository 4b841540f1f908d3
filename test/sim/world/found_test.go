package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Two sides of a cut share by what they heard last of each other until both know of it, which
// takes the longer the further they are away: edges tell how far that may exceed a limit.
func TestBoundsCoverCutsThatAreFoundLate(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	often := []time.Duration{2500 * ms, 3800 * ms, 5100 * ms}
	second := limit.RateSpec{Name: "r", Limit: 100, Per: time.Second, Consistency: "adaptive"}
	ten := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
	for _, c := range []struct {
		spec    limit.RateSpec
		regions int
		way     time.Duration
		far     time.Duration // longer, to and from r2
		hz      int           // at each edge of r1 and r2
		before  time.Duration
		cuts    []time.Duration
	}{
		{second, 3, 140 * ms, 0, 50, 12500 * ms, often}, {second, 3, 250 * ms, 0, 50, 12500 * ms, often}, {second, 3, 250 * ms, 0, 150, 12500 * ms, often}, {second, 5, 200 * ms, 0, 150, 12500 * ms, often},
		{ten, 3, 80 * ms, 350 * ms, 150, 21200 * ms, []time.Duration{8 * time.Second}},
	} {
		t.Run(fmt.Sprintf("%d/%v, %d regions %v apart, r2 %v more, %d a second", c.spec.Limit, c.spec.Per, c.regions, c.way, c.far, 4*c.hz), func(t *testing.T) {
			o := overshoot{spec: c.spec}
			for seed := range uint64(4) {
				w := wideOf(t, c.regions, 2, func(cfg *Config) {
					cfg.Seed, cfg.Lanes, cfg.Expects, cfg.RegionDelay = seed+1, 8, true, c.way
				}, c.spec)
				if c.far > 0 {
					for _, region := range []string{"r0", "r1"} {
						w.Slow(region, "r2", c.far)
						w.Slow("r2", region, c.far)
					}
				}
				w.Advance(start.Add(6 * time.Second))
				rnd, hz := rand.New(rand.NewPCG(seed+1, 54)), make([]int, c.regions)
				hz[1], hz[2], o.admitted = c.hz, c.hz, nil
				o.inRegions(w, rnd, c.before, hz...)
				for _, lasts := range c.cuts {
					w.Cut("r2", true)
					o.inRegions(w, rnd, lasts, hz...)
					w.Cut("r2", false)
					o.inRegions(w, rnd, 4*time.Second, hz...)
				}
			}
			if o.uncovered*1000 > o.windows {
				t.Errorf("above what was told in %d of %d windows; %d above the limit at the most, want one window of 1000", o.uncovered, o.windows, o.most)
			}
		})
	}
}
