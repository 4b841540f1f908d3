package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// An edge that falls alone while its region is cut off has its part of what that has, and not
// of what the others have spent of theirs in the window before.
func TestAloneInACut(t *testing.T) {
	t.Parallel()
	moved, even := []int{150, 5, 150}, []int{60, 60, 60}
	for _, what := range []string{"an edge", "all edges", "its aggregator is away for 3 s"} {
		for _, after := range []time.Duration{time.Second, 6 * time.Second} {
			for _, before := range [][]int{even, moved} {
				t.Run(fmt.Sprintf("%s, %v later, %v", what, after, before), func(t *testing.T) {
					spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
					w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Expects = 90, true }, spec)
					w.Advance(start.Add(6 * time.Second))
					o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
					o.inRegions(w, rnd, 14*time.Second, before...)
					w.Cut("r1", true)
					o.inRegions(w, rnd, after, before...)
					switch what {
					case "an edge":
						w.cutWay("r1", "r1-0", false, false)
					case "all edges":
						w.cutWay("r1", "r1-0", false, false)
						w.cutWay("r1", "r1-1", false, false)
					default:
						w.Stop(w.Servers("r1")[0])
						o.inRegions(w, rnd, 3*time.Second, 60, 150, 60)
						w.Run(t, w.Servers("r1")[0])
					}
					o.inRegions(w, rnd, 20*time.Second, 60, 150, 60)
					got := o.inRegions(w, rnd, spec.Per, 60, 150, 60)
					if o.most > 130 || o.uncovered > 2 || got[""] < 850 {
						t.Errorf("%d above a limit of %d, and above what was told in %d of %d windows, at last %v; want at most 130, none, and most of it", o.most, spec.Limit, o.uncovered, o.windows, got)
					}
				})
			}
		}
	}
}

// Nothing is kept for an edge that is cut off before a key is asked for there: what it admits
// is beside all that the others do, and it says so. Of two the bounds add up.
func TestAloneBeforeItIsAsked(t *testing.T) {
	t.Parallel()
	for edges := 1; edges <= 2; edges++ {
		spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
		w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Aggregators, cfg.Lanes, cfg.Expects = 112, 2, 8, true }, spec)
		w.Advance(start.Add(6 * time.Second))
		o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 112))
		o.inRegions(w, rnd, 19*time.Second, 0, 0, 150)
		for _, region := range []string{"r0", "r1"}[:edges] {
			w.CutPath(region, region+"-0", true)
		}
		o.inRegions(w, rnd, 9*time.Second, 0, 0, 150)
		o.inRegions(w, rnd, 18*time.Second, 150, 20, 150)
		if most := uint64(190 * edges); o.most > most || edges == 1 && o.uncovered > 0 {
			t.Errorf("%d edges: %d above a limit of %d, and above what was told in %d of %d windows; want at most %d, and none of one", edges, o.most, spec.Limit, o.uncovered, o.windows, most)
		}
	}
}

// What is kept for edges that are alone is so for as long as their region is cut off after
// that, what they have spent of it too: others could not be told when it ends.
func TestAloneBeforeACut(t *testing.T) {
	t.Parallel()
	for edges := 1; edges <= 2; edges++ {
		for _, before := range []time.Duration{3 * time.Second, 20 * time.Second} {
			spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
			w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Expects = 90, true }, spec)
			w.Advance(start.Add(6 * time.Second))
			o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 113))
			o.inRegions(w, rnd, 14*time.Second, 150, 60, 60)
			for e := range edges {
				w.CutPath(fmt.Sprint("r0-", e), "r0", true)
			}
			o.inRegions(w, rnd, before, 150, 60, 60)
			w.Cut("r0", true)
			o.inRegions(w, rnd, 28*time.Second, 150, 150, 150)
			if o.most > 130 || o.uncovered > 0 {
				t.Errorf("%d edges alone, and cut off %v later: %d above a limit of %d, and above what was told in %d of %d windows; want at most 130, and none", edges, before, o.most, spec.Limit, o.uncovered, o.windows)
			}
		}
	}
}

// An edge that is alone does not hear that another took the key over, who keeps nothing for
// it: it tells what it admits.
func TestAloneAsItsAggregatorGoes(t *testing.T) {
	t.Parallel()
	spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
	w := wideOf(t, 2, 2, func(cfg *Config) { cfg.Seed, cfg.Expects = 90, true }, spec)
	w.Advance(start.Add(6 * time.Second))
	o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 115))
	o.inRegions(w, rnd, 14*time.Second, 20, 150)
	w.CutPath("r1-1", "r1", true)
	o.inRegions(w, rnd, 16*time.Second, 20, 150)
	v := w.Servers("r1")[0]
	w.Stop(v)
	w.Run(t, v)
	o.inRegions(w, rnd, 20*time.Second, 20, 150)
	if o.most < 200 || o.most > 280 || o.uncovered > 2 {
		t.Errorf("%d above a limit of %d, and above what was told in %d of %d windows; want its equal part, and next to none", o.most, spec.Limit, o.uncovered, o.windows)
	}
	w.CutPath("r1-1", "r1", false)
	o.inRegions(w, rnd, 10*time.Second, 20, 150)
	if o.uncovered > 2 {
		t.Errorf("as it is answered again: above what was told in %d of %d windows; want next to none", o.uncovered, o.windows)
	}
}

// What an edge has that fell alone just before somebody else took the key over is kept by
// that one too, as it finds in the window what the edge had spent by then; not where that has
// left the window.
func TestAloneJustBeforeItsAggregatorsGo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers int
		before  time.Duration
		asks    []int
		most    uint64
		least   int // at last
	}{
		{1, time.Second, []int{60, 150, 150}, 20, 970},
		{2, time.Second, []int{60, 150, 150}, 20, 970},
		{1, 2 * time.Second, []int{20, 5, 60, 150, 60}, 30, 950}, // of 14 seeds 953 to 1000
		{2, 6 * time.Second, []int{60, 150, 150}, 230, 970},      // all is spent in the first 3 s of 10
	} {
		spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
		w := wideOf(t, len(c.asks), 2, func(cfg *Config) { cfg.Seed, cfg.Aggregators, cfg.Lanes, cfg.Expects = 90, c.servers, 8, true }, spec)
		w.Advance(start.Add(6 * time.Second))
		o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 116))
		o.inRegions(w, rnd, 18*time.Second, c.asks...)
		r := fmt.Sprint("r", len(c.asks)-2)
		w.CutPath(r+"-0", r, true)
		w.CutPath(r, r+"-0", true)
		o.inRegions(w, rnd, c.before, c.asks...)
		for _, v := range w.Servers(r) {
			w.Stop(v)
			w.Run(t, v)
		}
		o.inRegions(w, rnd, 9*time.Second-c.before, c.asks...)
		w.CutPath(r+"-0", r, false)
		w.CutPath(r, r+"-0", false)
		o.inRegions(w, rnd, 15*time.Second, c.asks...)
		got := o.inRegions(w, rnd, spec.Per, c.asks...)
		if o.most > c.most || o.uncovered > 0 || got[""] < c.least {
			t.Errorf("%d aggregators %v later, asked for %v: %d above a limit of %d, and above what was told in %d of %d windows, at last %v; want at most %d, none, and most of it", c.servers, c.before, c.asks, o.most, spec.Limit, o.uncovered, o.windows, got, c.most)
		}
	}
}
