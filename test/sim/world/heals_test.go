package world

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Two of three regions stay cut off from each other, and the third, which hears both, comes and
// goes: it and they go on with their parts, however it was cut off and whoever starts anew.
func TestHealsBesideACut(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	type life struct {
		*World
		asks func(lasts time.Duration)
	}
	away := func(l *life, cut bool) { // r0 from both
		for _, r := range []string{"r1", "r2"} {
			l.CutPath("r0", r, cut)
			l.CutPath(r, "r0", cut)
		}
	}
	mute := func(l *life, cut bool) {
		l.CutPath("r0", "r1", cut)
		l.CutPath("r0", "r2", cut)
	}
	once := func(way func(*life, bool), off time.Duration) func(*life) {
		return func(l *life) {
			way(l, true)
			l.asks(off)
			way(l, false)
		}
	}
	flaps := func(times int, off, on time.Duration) func(*life) {
		return func(l *life) {
			for range times {
				once(away, off)(l)
				l.asks(on)
			}
		}
	}
	rolls := func(regions ...string) func(*life) { // in good order, one of each after the other
		return func(l *life) {
			l.asks(3 * time.Second)
			for i := range 2 {
				for _, r := range regions {
					v := l.Servers(r)[i]
					l.Leave(v)
					if err := l.Return(v); err != nil {
						t.Error(err)
					}
				}
				l.asks(1500 * ms)
			}
		}
	}
	for name, happens := range map[string]func(*life){
		"mute":                   once(mute, 13*time.Second),
		"for 1.2 s":              once(away, 1200*ms),
		"for 1.6 s":              once(away, 1600*ms),
		"for 1.9 s":              once(away, 1900*ms),
		"off 0.6 s, on 1 s":      flaps(8, 600*ms, time.Second),
		"off 1.5 s, on 1 s":      flaps(6, 1500*ms, time.Second),
		"off 5 s, on 2.5 s":      flaps(3, 5*time.Second, 2500*ms),
		"its aggregators rolled": rolls("r0"),
		"all aggregators rolled": rolls("r0", "r1", "r2"),
		"its aggregators started anew, twice": func(l *life) {
			for range 2 {
				l.restart(t, "r0", 0)
				l.restart(t, "r0", 1)
				l.asks(2500 * ms)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, during := range [][]int{{60, 150, 150}, {5, 500, 500}} {
				for _, seed := range []uint64{3, 4} {
					spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
					w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Aggregators, cfg.Lanes = seed, 2, 8 }, spec)
					w.Advance(start.Add(6 * time.Second))
					o, rnd, before := overshoot{spec: spec}, rand.New(rand.NewPCG(42, seed)), []int{150, 5, 5}
					o.inRegions(w, rnd, 14*time.Second, before...)
					w.cutWay("r1", "r2", false, false)
					o.inRegions(w, rnd, 1200*ms, before...)
					happens(&life{w, func(lasts time.Duration) { o.inRegions(w, rnd, lasts, during...) }})
					o.inRegions(w, rnd, 14*time.Second, during...)
					most := o.most
					w.cutWay("r1", "r2", true, true)
					o.inRegions(w, rnd, 4*time.Second, during...)
					got := o.inRegions(w, rnd, spec.Per, during...)
					if most > 60 || o.uncovered > 0 || got[""] < 950 {
						t.Errorf("asked %v, seed %d: %d above a limit of %d, and above what was told in %d of %d windows, after the heal %v; want at most 60, none, and all of it", during, seed, most, spec.Limit, o.uncovered, o.windows, got)
					}
				}
			}
		})
	}
}
