package world

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Aggregators that start, or take lanes back, while their region is cut off know that it
// is: all regions together admit the limit, and how far they may exceed it is told.
func TestRestartsInACut(t *testing.T) {
	second, ten := limit.RateSpec{Limit: 200, Per: 2 * time.Second}, limit.RateSpec{Limit: 1000, Per: 10 * time.Second}
	for name, c := range map[string]struct {
		spec        limit.RateSpec
		aggregators int
		most        uint64 // above the limit
		at          map[int]func(w *World)
	}{
		"its only one": {second, 1, 32, map[int]func(w *World){13: func(w *World) { w.restart(t, "r2", 0) }}},
		"all": {second, 1, 32, map[int]func(w *World){13: func(w *World) {
			for _, r := range []string{"r0", "r1", "r2"} {
				w.restart(t, r, 0)
			}
		}}},
		"one after the other, everywhere": {second, 2, 32, map[int]func(w *World){
			13: func(w *World) { w.restart(t, "r0", 0); w.restart(t, "r1", 0); w.restart(t, "r2", 0) },
			18: func(w *World) { w.restart(t, "r0", 1); w.restart(t, "r1", 1); w.restart(t, "r2", 1) },
		}},
		"an owner, down for five seconds": {ten, 2, 60, map[int]func(w *World){
			13: func(w *World) { w.Stop(w.Servers("r2")[0]) },
			18: func(w *World) { w.Run(t, w.Servers("r2")[0]) },
		}},
		"an owner that took its leave": {ten, 2, 60, map[int]func(w *World){
			13: func(w *World) { w.Leave(w.Servers("r2")[0]) },
			18: func(w *World) { w.Run(t, w.Servers("r2")[0]) },
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Name, c.spec.Consistency = "r", "adaptive"
			w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Aggregators, cfg.Lanes = 1, c.aggregators, 2 }, c.spec)
			c.at[10], c.at[38] = func(w *World) { w.Cut("r2", true) }, func(w *World) { w.Cut("r2", false) }
			most, uncovered, windows := w.boundsThrough(c.spec, 42, c.at)
			if most > c.most || uncovered*200 > windows {
				t.Errorf("%d above a limit of %d, and above what was told in %d of %d windows; want at most %d, and next to none", most, c.spec.Limit, uncovered, windows, c.most)
			}
		})
	}
}

// TestRestartsBeforeACut: an aggregator that is started anew is told what is asked for in
// other regions, though that holds still, and one may be cut off right then: it would take
// all of the limit for its region, as the others keep their parts.
func TestRestartsBeforeACut(t *testing.T) {
	spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
	for _, leaves := range []bool{false, true} {
		for _, at := range []int{12, 14, 16, 24, 26} {
			for _, later := range []int{1, 2, 3} {
				w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Aggregators, cfg.Lanes = 14, 2, 8 }, spec)
				most, uncovered, windows := w.boundsThrough(spec, at+later+11, map[int]func(w *World){
					at: func(w *World) {
						if !leaves {
							w.restart(t, "r1", 0)
							return
						}
						w.Leave(w.Servers("r1")[0])
						if err := w.Return(w.Servers("r1")[0]); err != nil {
							t.Fatal(err)
						}
					},
					at + later: func(w *World) { w.Cut("r1", true) },
				})
				if most > 120 || uncovered*200 > windows {
					t.Errorf("an aggregator leaves %t and comes back at %d s, a cut %d s later: %d above a limit of 1000, above what was told in %d of %d windows", leaves, at, later, most, uncovered, windows)
				}
			}
		}
	}
}

// restart starts an aggregator anew, at once.
func (w *World) restart(t *testing.T, region string, nth int) {
	t.Helper()
	v := w.Servers(region)[nth]
	w.Stop(v)
	w.Run(t, v)
}

// Run starts an aggregator.
func (w *World) Run(t *testing.T, v *Server) {
	t.Helper()
	if err := w.Start(v); err != nil {
		t.Fatal(err)
	}
}

// boundsThrough asks edges 200 times a second, until so many seconds have passed, in some
// of which something happens. It returns how far above the limit they were at the most,
// and of how many windows of 50 ms in how many that was above the largest bound told.
func (w *World) boundsThrough(spec limit.RateSpec, until int, at map[int]func(w *World)) (most uint64, uncovered, windows int) {
	rnd := rand.New(rand.NewPCG(1, 9))
	w.Advance(start.Add(6 * time.Second))
	o, second := overshoot{spec: spec}, 0
	for second < until {
		w.Advance(w.Now().Add(time.Duration(rnd.ExpFloat64() * float64(5*time.Millisecond))))
		if now := int(w.Now().Sub(start) / time.Second); now != second {
			if second = now; at[now] != nil {
				at[now](w)
			}
		}
		o.ask(w, w.Edges()[rnd.IntN(len(w.Edges()))])
	}
	return o.most, o.uncovered, o.windows
}

// overshoot is how far above a limit edges were, and in windows of 50 ms how far they said
// that they might be.
type overshoot struct {
	spec               limit.RateSpec
	admitted           []time.Time
	over, told         uint64 // in this window
	window             int64
	most               uint64
	uncovered, windows int
}

func (o *overshoot) ask(w *World, edge string) (allowed bool) {
	req := w.Node(edge).Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", "u")
	req.Bounds = true
	w.Touch()
	if allowed = w.Node(edge).Check(w.NowAt(edge), req).Allowed; allowed {
		o.admitted = append(o.admitted, w.Now())
	}
	for len(o.admitted) > 0 && w.Now().Sub(o.admitted[0]) >= o.spec.Per {
		o.admitted = o.admitted[1:]
	}
	if this := int64(w.Now().Sub(start) / (50 * time.Millisecond)); this != o.window {
		if o.windows++; o.over > o.told {
			o.uncovered++
		}
		o.window, o.over, o.told = this, 0, 0
	}
	over := uint64(max(0, len(o.admitted)-int(o.spec.Limit)))
	if req.Bound.Known {
		o.over, o.told = max(o.over, over), max(o.told, req.Bound.Now)
	}
	o.most = max(o.most, over)
	return allowed
}

// Aggregators that start while another region is cut off know of no window what that
// admitted, and say so: once it is back they know it all.
func TestTruthAfterRestartsInACut(t *testing.T) {
	w := wideOf(t, 3, 2, func(c *Config) { c.Seed = 5 }, limit.RateSpec{Limit: 100, Per: 2 * time.Second, Consistency: "loose"})
	w.Advance(start.Add(5 * time.Second))
	o := newAdmitted(w)
	w.Cut("r2", true)
	w.Advance(w.Now().Add(3 * time.Second))
	w.restart(t, "r0", 0)
	w.restart(t, "r1", 0)
	w.Advance(w.Now().Add(5 * time.Second))
	o.crowd(w, 1, 8*time.Millisecond, 10*time.Second)
	w.Advance(w.Now().Add(10 * time.Second))
	for _, region := range []string{"r0", "r1"} {
		seen := w.Servers(region)[0].aggregator.Truth("t", "api")[0].Seen
		if seen.Windows == 0 || seen.Incomplete != seen.Windows {
			t.Errorf("%s, cut off from r2: %+v, want no window complete", region, seen)
		}
	}
	w.Cut("r2", false)
	rest(w, 40*time.Second)
	hits, _, _ := o.over()
	for _, region := range []string{"r0", "r1"} {
		seen := w.Servers(region)[0].aggregator.Truth("t", "api")[0].Seen
		if got := float64(seen.Hits); seen.ToldSince != seen.Incomplete || got < 0.95*float64(hits) || got > 1.05*float64(hits) {
			t.Errorf("%s, after the cut: %+v, want %v hits too many, as all was told since", region, seen, hits)
		}
	}
}

// Who takes a key over during a cut goes on with the parts that regions had of it: clients
// that come to the region which is cut off find there what it had, and no more.
func TestPartsOutliveAggregators(t *testing.T) {
	w := settled(t, 3, 2, limit.RateSpec{Limit: 1000, Per: 10 * time.Second})
	few := map[string]int{"r0-0": 60, "r0-1": 60, "r1-0": 60, "r1-1": 60, "r2-0": 6, "r2-1": 6}
	stormAt(w, 15*time.Second, few)
	w.Cut("r2", true)
	stormAt(w, 4*time.Second, few)
	for _, r := range []string{"r0", "r1", "r2"} {
		w.restart(t, r, 0)
	}
	stormAt(w, 12*time.Second, few)
	few["r2-0"], few["r2-1"] = 100, 100
	stormAt(w, 10*time.Second, few)
	if got := stormAt(w, 10*time.Second, few); got["r2"] > 150 || got[""] > 1150 {
		t.Errorf("%v admitted, want about 70 of 1000 at r2", got)
	}
}

// What regions had in a cut is over with it: who starts as the next one comes, and nothing
// of that is noted yet, finds nothing else in the store.
func TestPartsOfACutEndWithIt(t *testing.T) {
	w := settled(t, 3, 2, limit.RateSpec{Limit: 1000, Per: 10 * time.Second})
	even := map[string]int{"r0-0": 16, "r0-1": 16, "r1-0": 16, "r1-1": 16, "r2-0": 16, "r2-1": 16}
	few := map[string]int{"r0-0": 24, "r0-1": 24, "r1-0": 24, "r1-1": 24}
	much := map[string]int{"r0-0": 60, "r0-1": 60, "r1-0": 60, "r1-1": 60, "r2-0": 60, "r2-1": 60}
	stormAt(w, 15*time.Second, few)
	w.Cut("r2", true)
	stormAt(w, 6*time.Second, few)
	w.Cut("r2", false)
	stormAt(w, 8*time.Second, even)
	w.Cut("r2", true)
	w.restart(t, "r0", 0)
	w.restart(t, "r1", 0)
	stormAt(w, 12*time.Second, much)
	if got := stormAt(w, 10*time.Second, much); got[""] > 1060 {
		t.Errorf("%v admitted, want about 1000", got)
	}
}

// Aggregators that start in a cut without their store do not know who is there. When it is
// back they go on with what it knows of that: a window later all together admit little
// more than the limit, for as long as the cut lasts, and say by how much.
func TestStoreComesBackInACut(t *testing.T) {
	for name, regions := range map[string][]string{"the one that is cut off": {"r2"}, "all": {"r0", "r1", "r2"}} {
		t.Run(name, func(t *testing.T) {
			spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
			w := wideOf(t, 3, 2, func(c *Config) { c.Seed, c.Aggregators, c.Lanes = 3, 2, 2 }, spec)
			store := func(mode StoreState) {
				for _, r := range regions {
					w.Store(r).Set(mode)
				}
			}
			w.boundsThrough(spec, 26, map[int]func(w *World){
				16: func(w *World) { w.Cut("r2", true) },
				20: func(w *World) {
					store(StoreDown)
					for _, r := range regions {
						w.restart(t, r, 0)
						w.restart(t, r, 1)
					}
				},
			})
			store(StoreUp)
			w.boundsThrough(spec, 37, nil)
			most, uncovered, windows := w.boundsThrough(spec, 60, nil)
			if most > 60 || uncovered > 0 {
				t.Errorf("%d above a limit of %d, and above what was told in %d of %d windows; want at most 60, and none", most, spec.Limit, uncovered, windows)
			}
		})
	}
}

// What regions have in a cut is known for as long as it lasts, also to who starts where nobody
// asked for a window and more, so that all counts are over.
func TestPartsOutliveCounts(t *testing.T) {
	for _, late := range []time.Duration{12 * time.Second, 40 * time.Second} {
		for _, aggregators := range []int{1, 2} {
			spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
			w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Aggregators, cfg.Lanes = 33, aggregators, 2 }, spec)
			w.Advance(start.Add(6 * time.Second))
			o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
			asks := func(lasts time.Duration, rich, poor int) {
				o.asks(w, rnd, lasts, func(edge string) int {
					if edge[:2] == "r1" {
						return rich
					}
					return poor
				})
			}
			asks(14*time.Second, 150, 0)
			w.Cut("r1", true)
			asks(late, 150, 0)
			for nth := range aggregators {
				w.restart(t, "r0", nth)
			}
			asks(4*time.Second, 150, 0)
			asks(12*time.Second, 60, 150)
			o.most = 0
			asks(12*time.Second, 60, 150)
			if o.most > 60 {
				t.Errorf("r0 starts %v after the cut, %d aggregators: %d above a limit of %d, want at most 60", late, aggregators, o.most, spec.Limit)
			}
		}
	}
}

// Aggregators that start in a cut without their store take all regions to be there that are
// configured, and share limits by their number, for as long as it is away.
func TestStoreStaysAwayInACut(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		name       string
		deaf, mute bool
	}{{"cut off", true, true}, {"deaf", true, false}, {"mute", false, true}} {
		for name, regions := range map[string][]string{"its own start": {"r2"}, "one of the others' start": {"r0"}, "all start": {"r0", "r1", "r2"}} {
			t.Run(how.name+", "+name, func(t *testing.T) {
				spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
				w := wideOf(t, 3, 2, func(c *Config) { c.Seed, c.Aggregators, c.Lanes = 3, 2, 2 }, spec)
				w.Advance(start.Add(6 * time.Second))
				o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
				asks := func(lasts time.Duration) map[string]int {
					return o.asks(w, rnd, lasts, func(string) int { return 100 })
				}
				asks(14 * time.Second)
				for _, other := range []string{"r0", "r1"} {
					w.CutPath(other, "r2", how.deaf)
					w.CutPath("r2", other, how.mute)
				}
				asks(4 * time.Second)
				for _, r := range regions {
					w.Store(r).Set(StoreDown)
					w.restart(t, r, 0)
					w.restart(t, r, 1)
				}
				asks(14 * time.Second)
				got := asks(spec.Per)
				if o.most > 60 || o.uncovered > 0 || got[""] < 900 {
					t.Errorf("%d above a limit of %d, and above what was told in %d of %d windows, at last %v; want at most 60, none, and most of it", o.most, spec.Limit, o.uncovered, o.windows, got)
				}
			})
		}
	}
}

// Where the store cannot tell what regions have in a cut, those who start guess, and say by
// how much all together may exceed the limit for that.
func TestGuessesInACutAreTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rich   string   // where most was asked for
		starts []string // anew, without their stores
	}{
		"what the one has that is cut off": {"r2", []string{"r0", "r1"}},
		"what the others have":             {"r0", []string{"r2"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
			w := wideOf(t, 3, 2, func(c *Config) { c.Seed, c.Aggregators, c.Lanes = 3, 2, 2 }, spec)
			w.Advance(start.Add(6 * time.Second))
			o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
			asks := func(lasts time.Duration, rich, poor int) {
				o.asks(w, rnd, lasts, func(edge string) int {
					if edge[:2] == c.rich {
						return rich
					}
					return poor
				})
			}
			asks(14*time.Second, 150, 5)
			w.Cut("r2", true)
			asks(4*time.Second, 150, 5)
			for _, r := range c.starts {
				w.Store(r).Set(StoreDown)
				w.restart(t, r, 0)
				w.restart(t, r, 1)
			}
			asks(24*time.Second, 60, 150)
			if o.most > 700 || o.uncovered > 0 {
				t.Errorf("%d above a limit of %d, and above what was told in %d of %d windows; want at most 700, and none", o.most, spec.Limit, o.uncovered, o.windows)
			}
		})
	}
}
