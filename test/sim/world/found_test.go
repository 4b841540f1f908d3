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
	second := limit.RateSpec{Name: "r", Limit: 100, Per: time.Second, Consistency: "adaptive"}
	ten := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
	for _, c := range []struct {
		spec    limit.RateSpec
		regions int
		way     time.Duration
		hz      int // at each edge of r1 and r2
	}{
		{second, 3, 140, 50}, {second, 3, 250, 50}, {second, 3, 250, 150}, {second, 5, 200, 150}, {ten, 3, 430, 150},
	} {
		t.Run(fmt.Sprintf("%d/%v, %d regions %d ms apart, %d a second", c.spec.Limit, c.spec.Per, c.regions, c.way, 4*c.hz), func(t *testing.T) {
			o := overshoot{spec: c.spec}
			for seed := range uint64(4) {
				w := wideOf(t, c.regions, 2, func(cfg *Config) {
					cfg.Seed, cfg.Lanes, cfg.RegionDelay = seed+1, 8, c.way*time.Millisecond
				}, c.spec)
				w.Advance(start.Add(6 * time.Second))
				rnd, hz := rand.New(rand.NewPCG(54, seed)), make([]int, c.regions)
				hz[1], hz[2], o.admitted = c.hz, c.hz, nil
				o.inRegions(w, rnd, 12500*time.Millisecond, hz...)
				for nth := range 3 {
					w.Cut("r2", true)
					o.inRegions(w, rnd, time.Duration(2500+1300*nth)*time.Millisecond, hz...)
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
