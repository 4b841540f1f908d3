package world

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A region that is cut off is heard for a moment, and cut off again: some took it back, and
// others had not heard by then that all hear all.
func TestHeardForAMoment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		before, during, end []int // asked for by region: before the cuts, in the first, and late in the second
	}{
		{"it had most", []int{150, 5, 5}, []int{60, 150, 150}, []int{150, 150, 150}},
		{"it had little", []int{5, 150, 150}, []int{150, 5, 5}, []int{150, 150, 150}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for heard := 1210 * time.Millisecond; heard <= 1290*time.Millisecond; heard += 40 * time.Millisecond {
				for _, seed := range []uint64{2, 3} {
					spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
					w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Lanes = seed, 8 }, spec)
					away := func(cut bool) {
						for _, r := range []string{"r1", "r2"} {
							w.CutPath("r0", r, cut)
							w.CutPath(r, "r0", cut)
						}
					}
					w.Advance(start.Add(6 * time.Second))
					o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(48, seed))
					o.inRegions(w, rnd, 12*time.Second, c.before...)
					away(true)
					o.inRegions(w, rnd, 2*time.Second, c.before...)
					o.inRegions(w, rnd, 8*time.Second, c.during...)
					away(false)
					o.inRegions(w, rnd, heard, c.during...)
					away(true)
					o.inRegions(w, rnd, 3*time.Second, c.during...)
					o.inRegions(w, rnd, 8*time.Second, c.end...)
					if o.most > 300 || o.uncovered > 0 { // what was spent until the second cut was found is told
						t.Errorf("heard for %v, seed %d: %d above a limit of %d, and above what was told in %d of %d windows; want at most 300, and none", heard, seed, o.most, spec.Limit, o.uncovered, o.windows)
					}
				}
			}
		})
	}
}

// Who is cut off ever anew, and heard for a moment between, has no part for good that nobody
// asks for there.
func TestWhoFlapsFollowsDemand(t *testing.T) {
	t.Parallel()
	spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
	w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Lanes = 4, 8 }, spec)
	w.Advance(start.Add(6 * time.Second))
	o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(51, 1))
	o.inRegions(w, rnd, 14*time.Second, 150, 5, 5)
	admitted := 0
	const cycle, cycles = 6800 * time.Millisecond, 14
	for i := range cycles {
		for _, cut := range []bool{true, false} {
			for _, r := range []string{"r1", "r2"} {
				w.CutPath("r0", r, cut)
				w.CutPath(r, "r0", cut)
			}
			lasts := 1800 * time.Millisecond
			if cut {
				lasts = cycle - lasts
			}
			if got := o.inRegions(w, rnd, lasts, 2, 100, 100); i >= cycles-3 {
				admitted += got[""]
			}
		}
	}
	if want := int(3 * cycle.Seconds() * 100); admitted < want*85/100 {
		t.Errorf("%d were admitted in the last three cycles, want about %d", admitted, want)
	}
}
