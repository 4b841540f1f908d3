package world

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// inRegions asks the two edges of each region so many times a second each.
func (o *overshoot) inRegions(w *World, rnd *rand.Rand, lasts time.Duration, hz ...int) map[string]int {
	return o.asks(w, rnd, lasts, func(edge string) int { return hz[edge[1]-'0'] })
}

// cutWay cuts a region off from another, in one direction or both.
func (w *World) cutWay(from, to string, hears, heard bool) {
	w.CutPath(from, to, !hears)
	w.CutPath(to, from, !heard)
}

// Regions are cut off one after the other, and what is asked for moves meanwhile, which those
// may know that a region is told by which hears nothing: it has what it had all the same, and
// the others share the rest, all of it.
func TestCutsInTurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, between, after []int
		least                  int
	}{
		"it is asked for more": {[]int{0, 150, 0}, []int{60, 60, 150}, []int{60, 60, 150}, 940},
		"it is asked no more":  {[]int{60, 60, 60}, []int{60, 60, 0}, []int{60, 60, 60}, 940},
		"the rich one's crowd": {[]int{30, 30, 150}, []int{30, 30, 0}, []int{60, 60, 0}, 250},
	} {
		for _, second := range []string{"cut off", "deaf", "mute"} {
			t.Run(name+", then r1 is "+second, func(t *testing.T) {
				spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
				w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed = 14 }, spec)
				w.Advance(start.Add(6 * time.Second))
				o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
				o.inRegions(w, rnd, 14*time.Second, c.before...)
				for _, other := range []string{"r0", "r1"} {
					w.cutWay(other, "r2", false, true)
				}
				o.inRegions(w, rnd, 5*time.Second, c.before...)
				o.inRegions(w, rnd, 8*time.Second, c.between...)
				w.cutWay("r0", "r1", second == "mute", second == "deaf")
				o.inRegions(w, rnd, 20*time.Second, c.after...)
				got := o.inRegions(w, rnd, spec.Per, c.after...)
				if o.most > 60 || o.uncovered > 0 || got[""] < c.least {
					t.Errorf("%d above a limit of %d, and above what was told in %d of %d windows, at last %v; want at most 60, none, and %d", o.most, spec.Limit, o.uncovered, o.windows, got, c.least)
				}
			})
		}
	}
}
