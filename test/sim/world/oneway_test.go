package world

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// asks has edges asked so many times a second each, by chance, and says how many were
// admitted in each region, and in all ("").
func (o *overshoot) asks(w *World, rnd *rand.Rand, lasts time.Duration, hz func(edge string) int) (admitted map[string]int) {
	var names []string
	for _, name := range w.Edges() {
		names = append(names, slices.Repeat([]string{name}, hz(name))...)
	}
	admitted = map[string]int{}
	for end := w.Now().Add(lasts); w.Now().Before(end); {
		w.Advance(w.Now().Add(time.Duration(rnd.ExpFloat64() * float64(time.Second) / float64(len(names)))))
		if name := names[rnd.IntN(len(names))]; o.ask(w, name) {
			admitted[name[:2]]++
			admitted[""]++
		}
	}
	return admitted
}

// An edge whose region does not answer keeps to the part that it had, and the others of the
// region to the rest, also where it is heard there: all together admit little more than the
// limit, and no more than the edge itself says.
func TestEdgeCutOffFromItsRegion(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{true, false} {
		t.Run(fmt.Sprintf("in one direction alone %v", deaf), func(t *testing.T) {
			spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
			w, err := New(Config{Start: start, Seed: 3, Rules: rules(spec), Regions: []Region{{Name: "r0", Edges: []string{"e0", "e1", "e2", "e3"}}}})
			if err != nil {
				t.Fatal(err)
			}
			w.Advance(start.Add(6 * time.Second))
			o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
			asks := func(lasts time.Duration, rich, poor int) {
				o.asks(w, rnd, lasts, func(edge string) int {
					if edge == "e3" {
						return rich
					}
					return poor
				})
			}
			cut := func(cut bool) {
				w.CutPath("r0", "e3", cut)
				if !deaf {
					w.CutPath("e3", "r0", cut)
				}
			}
			asks(15*time.Second, 180, 7)
			cut(true)
			asks(3*time.Second, 180, 7)
			asks(14*time.Second, 0, 120)
			before := o.uncovered // nobody knows of what the one that is cut off admitted, and it is not asked
			asks(12*time.Second, 180, 70)
			cut(false)
			asks(12*time.Second, 180, 70)
			if o.most > 100 || o.uncovered > before {
				t.Errorf("%d above a limit of %d, and above what was told in %d windows; want at most 100, and none", o.most, spec.Limit, o.uncovered-before)
			}
		})
	}
}

// Where frames are lost in one direction alone one region hears the other, and is not
// heard. Both keep to the parts that they had all the same, though the demand moves from
// where most of it was to where none was, and then is on both sides: all together admit
// little more than the limit, and no more than they say. After the heal the whole of it is
// used, within seconds.
func TestOneWayCuts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		regions int
		rich    string            // where most was asked for
		deaf    map[string]string // who hears nothing of whom; "": of all
		during  []string          // whose aggregators start anew
		away    time.Duration     // and for so long without their stores
	}{
		"the rich one is deaf":                     {3, "r2", map[string]string{"r2": ""}, nil, 0},
		"the rich one is mute":                     {3, "r2", map[string]string{"r0": "r2", "r1": "r2"}, nil, 0},
		"the poor one is deaf":                     {3, "r0", map[string]string{"r2": ""}, nil, 0},
		"the poor one is mute":                     {3, "r0", map[string]string{"r0": "r2", "r1": "r2"}, nil, 0},
		"of two":                                   {2, "r1", map[string]string{"r1": ""}, nil, 0},
		"a third hears both":                       {3, "r2", map[string]string{"r2": "r0"}, nil, 0},
		"keys have homes":                          {9, "r2", map[string]string{"r2": ""}, nil, 0},
		"the deaf one starts anew":                 {3, "r2", map[string]string{"r2": ""}, []string{"r2"}, 0},
		"the deaf one starts anew, its store away": {3, "r2", map[string]string{"r2": ""}, []string{"r2"}, 3 * time.Second},
		"the others start anew, their stores away": {3, "r2", map[string]string{"r2": ""}, []string{"r0", "r1"}, 3 * time.Second},
		"the others start anew":                    {3, "r2", map[string]string{"r2": ""}, []string{"r0", "r1"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
			w := wideOf(t, c.regions, 2, func(cfg *Config) { cfg.Seed, cfg.Aggregators, cfg.Lanes = 3, 2, 2 }, spec)
			w.Advance(start.Add(6 * time.Second))
			o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
			asks := func(lasts time.Duration, rich, poor int) (admitted map[string]int) {
				return o.asks(w, rnd, lasts, func(edge string) int {
					if edge[:2] == c.rich {
						return rich
					}
					return poor
				})
			}
			cut := func(cut bool) {
				for n := range c.regions {
					from := fmt.Sprint("r", n)
					for deaf, to := range c.deaf {
						if from != deaf && (to == "" || to == from) {
							w.CutPath(from, deaf, cut)
						}
					}
				}
			}
			asks(15*time.Second, 90, 5)
			cut(true)
			asks(3*time.Second, 90, 5)
			for _, region := range c.during {
				if c.away > 0 {
					w.Store(region).Set(StoreDown)
				}
				w.restart(t, region, 0)
				w.restart(t, region, 1)
			}
			asks(c.away, 0, 90)
			for _, region := range c.during {
				w.Store(region).Set(StoreUp)
			}
			asks(14*time.Second-c.away, 0, 90)
			asks(20*time.Second, 90, 50)
			if o.most > 40 || o.uncovered > 0 {
				t.Errorf("%d above a limit of %d, and above what was told in %d of %d windows; want at most 40, and none", o.most, spec.Limit, o.uncovered, o.windows)
			}
			cut(false)
			asks(3*time.Second, 90, 50)
			got, want := asks(spec.Per, 90, 50), float64(spec.Limit)*90/float64(90+50*(c.regions-1))
			if got[""] < 950 || math.Abs(float64(got[c.rich])-want) > want*.15 {
				t.Errorf("after the heal: %v, want about %d, and %.0f of it at %s", got, spec.Limit, want, c.rich)
			}
		})
	}
}

// A region that is so far away that no answer of it comes in time is no more cut off than
// others, though each heard nothing of the other for a moment as the way grew that long: its
// share follows demand.
func TestLongWaysAreNoCut(t *testing.T) {
	t.Parallel()
	for _, longer := range []time.Duration{450 * time.Millisecond, 600 * time.Millisecond} {
		spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
		w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed = 3 }, spec)
		w.Advance(start.Add(6 * time.Second))
		o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
		asks := func(lasts time.Duration, rich, poor int) map[string]int {
			return o.asks(w, rnd, lasts, func(edge string) int {
				if edge[:2] == "r2" {
					return rich
				}
				return poor
			})
		}
		asks(14*time.Second, 5, 150)
		for _, region := range []string{"r0", "r1"} {
			w.Slow(region, "r2", longer)
			w.Slow("r2", region, longer)
		}
		asks(20*time.Second, 150, 20)
		got, well, looks := map[string]int{}, 0, 0
		for range 40 {
			for region, n := range asks(500*time.Millisecond, 150, 20) {
				got[region] += n
			}
			for _, region := range w.Servers("r0")[0].aggregator.Regions(w.Now()) {
				if looks++; region.State == "ok" || region.State == "self" {
					well++
				}
				if len(region.Unheard) > 0 {
					t.Errorf("%v longer each way: r0 says that %s does not hear %v", longer, region.Region, region.Unheard)
				}
			}
		}
		if got["r2"] < 1300 {
			t.Errorf("%v longer each way: %v, want about 2000, and most of it at r2", longer, got)
		}
		if well*10 < looks*8 { // an answer comes after its time now and then
			t.Errorf("%v longer each way: r0 says that all is well with regions %d of %d times", longer, well, looks)
		}
	}
}

// A region that was deaf may be mute the next moment, and the other way round: neither side
// takes that for the end of the cut, and has other parts from then on.
func TestDeafThenMute(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{true, false} {
		t.Run(fmt.Sprintf("deaf first %v", deaf), func(t *testing.T) {
			spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
			w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Lanes = 3, 2 }, spec)
			w.Advance(start.Add(6 * time.Second))
			o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
			asks := func(lasts time.Duration, r0, others int) {
				o.asks(w, rnd, lasts, func(edge string) int {
					if edge[:2] == "r0" {
						return r0
					}
					return others
				})
			}
			cut := func(deaf, mute bool) {
				for _, other := range []string{"r1", "r2"} {
					w.CutPath(other, "r0", deaf)
					w.CutPath("r0", other, mute)
				}
			}
			asks(14*time.Second, 5, 90)
			cut(deaf, !deaf)
			asks(time.Second, 5, 90)
			asks(4*time.Second, 150, 20)
			cut(!deaf, deaf)
			asks(4*time.Second, 150, 20)
			asks(12*time.Second, 150, 150)
			if o.most > 40 || o.uncovered > 0 {
				t.Errorf("%d above a limit of %d, and above what was told in %d of %d windows; want at most 40, and none", o.most, spec.Limit, o.uncovered, o.windows)
			}
		})
	}
}
