package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Aggregators are started anew right before a cut, or right after it, before they could be told
// what is asked for elsewhere: they go by what each region spent, or as soon as they were told by
// that, and so all have their parts for as long as the cut lasts, wherever requests come then.
func TestRestartsRightBeforeACut(t *testing.T) {
	t.Parallel()
	for _, who := range []struct {
		name    string
		regions []string
		nth     []int
		leaves  bool
	}{
		{"one of two of another region", []string{"r1"}, []int{0}, false},
		{"one of two that takes its leave", []string{"r1"}, []int{0}, true},
		{"all of two other regions", []string{"r1", "r2"}, []int{0, 1}, false},
		{"all of its own region", []string{"r0"}, []int{0, 1}, false},
	} {
		for _, before := range []time.Duration{-300 * time.Millisecond, 50 * time.Millisecond, 700 * time.Millisecond, 1600 * time.Millisecond} {
			for _, hz := range [][]int{{150, 5, 5}, {60, 60, 60}} {
				if hz[1] == 60 && before > 0 && before < time.Second {
					continue
				}
				t.Run(fmt.Sprintf("%s, %v, %v", who.name, before, hz), func(t *testing.T) {
					spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
					w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Aggregators, cfg.Lanes = 15, 2, 8 }, spec)
					w.Advance(start.Add(6 * time.Second))
					o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
					o.inRegions(w, rnd, 16*time.Second, hz...)
					if before < 0 {
						w.Cut("r0", true)
						o.inRegions(w, rnd, -before, hz...)
					}
					for _, region := range who.regions {
						for _, nth := range who.nth {
							if v := w.Servers(region)[nth]; who.leaves {
								w.Leave(v)
								if err := w.Return(v); err != nil {
									t.Fatal(err)
								}
							} else {
								w.restart(t, region, nth)
							}
						}
					}
					if before > 0 {
						o.inRegions(w, rnd, before, hz...)
						w.Cut("r0", true)
					}
					o.inRegions(w, rnd, 24*time.Second, 100, 100, 100)
					got := o.inRegions(w, rnd, spec.Per, 100, 100, 100)
					most := uint64(60)
					if before > time.Second { // others go by what they were told before the restart, this one by what it is told then
						most = 80
					}
					if o.most > most || o.uncovered > 0 || got[""] < 850 {
						t.Errorf("%d above a limit of %d, and above what was told in %d of %d windows, at last %v; want at most %d, none, and most of it", o.most, spec.Limit, o.uncovered, o.windows, got, most)
					}
				})
			}
		}
	}
}

// What is asked for has moved within the window before that: what regions spent then tells
// nothing, and what was not told is a guess, which the bound tells.
func TestRestartsRightBeforeACutAsDemandMoves(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		per           time.Duration
		first, then   []int // a second at each edge of a region
		moved, before time.Duration
		regions       []string
		most          uint64
	}{
		{time.Minute, []int{1, 75, 75}, []int{60, 1, 1}, 20 * time.Second, 700 * time.Millisecond, []string{"r1", "r2"}, 60},
		{time.Minute, []int{1, 75, 75}, []int{60, 1, 1}, 20 * time.Second, 1600 * time.Millisecond, []string{"r1", "r2"}, 60},
		{time.Minute, []int{60, 1, 1}, []int{1, 60, 60}, 20 * time.Second, 700 * time.Millisecond, []string{"r0"}, 400},
		{10 * time.Second, []int{5, 150, 5}, []int{150, 5, 5}, 3 * time.Second, 700 * time.Millisecond, []string{"r0"}, 300},
		{10 * time.Second, []int{5, 150, 150}, []int{150, 5, 5}, 3 * time.Second, 700 * time.Millisecond, []string{"r1", "r2"}, 60},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			spec := limit.RateSpec{Name: "r", Limit: 1000, Per: tt.per, Consistency: "adaptive"}
			w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Aggregators, cfg.Lanes = 15, 2, 8 }, spec)
			w.Advance(start.Add(6 * time.Second))
			o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
			o.inRegions(w, rnd, 10*time.Second, tt.first...)
			o.inRegions(w, rnd, tt.moved, tt.then...)
			for _, region := range tt.regions {
				w.restart(t, region, 0)
				w.restart(t, region, 1)
			}
			o.inRegions(w, rnd, tt.before, tt.then...)
			w.Cut("r0", true)
			o.inRegions(w, rnd, min(2*tt.per, 90*time.Second), 60, 60, 60)
			if o.most > tt.most || o.uncovered > 4 { // of 50 ms, until the cut is found
				t.Errorf("%d above a limit of %d, and above what was told in %d of %d windows; want at most %d, and next to none", o.most, spec.Limit, o.uncovered, o.windows, tt.most)
			}
		})
	}
}
