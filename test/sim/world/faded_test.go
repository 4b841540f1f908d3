package world

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Where nothing is asked for any more that was for long has no part of a limit for that, after
// a while: the only region that is asked has all but the least of it.
func TestTheOnlyRegionHasAll(t *testing.T) {
	t.Parallel()
	spec := limit.RateSpec{Name: "r", Limit: 100, Per: time.Second, Consistency: "adaptive"}
	w := wideOf(t, 5, 2, func(cfg *Config) { cfg.Seed = 3 }, spec)
	w.Advance(start.Add(6 * time.Second))
	o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
	o.inRegions(w, rnd, 30*time.Second, 60, 60, 60, 60, 60)
	o.inRegions(w, rnd, time.Minute, 60, 0, 0, 0, 0)
	if got := o.inRegions(w, rnd, 20*time.Second, 60, 0, 0, 0, 0)[""]; got < 20*92 || o.uncovered > 0 {
		t.Errorf("%d admitted of 2000 in 20 s, and above what was told in %d of %d windows; want 92 %% of it at the least, and none", got, o.uncovered, o.windows)
	}
}
