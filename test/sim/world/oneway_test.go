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
	}{
		"the rich one is deaf":     {3, "r2", map[string]string{"r2": ""}, nil},
		"the rich one is mute":     {3, "r2", map[string]string{"r0": "r2", "r1": "r2"}, nil},
		"the poor one is deaf":     {3, "r0", map[string]string{"r2": ""}, nil},
		"the poor one is mute":     {3, "r0", map[string]string{"r0": "r2", "r1": "r2"}, nil},
		"of two":                   {2, "r1", map[string]string{"r1": ""}, nil},
		"a third hears both":       {3, "r2", map[string]string{"r2": "r0"}, nil},
		"keys have homes":          {9, "r2", map[string]string{"r2": ""}, nil},
		"the deaf one starts anew": {3, "r2", map[string]string{"r2": ""}, []string{"r2"}},
		"the others start anew":    {3, "r2", map[string]string{"r2": ""}, []string{"r0", "r1"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
			w := wideOf(t, c.regions, 2, func(cfg *Config) { cfg.Seed, cfg.Aggregators, cfg.Lanes = 3, 2, 2 }, spec)
			w.Advance(start.Add(6 * time.Second))
			o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
			asks := func(lasts time.Duration, rich, poor int) (admitted map[string]int) {
				var names []string
				for _, name := range w.Edges() {
					hz := poor
					if name[:2] == c.rich {
						hz = rich
					}
					names = append(names, slices.Repeat([]string{name}, hz)...)
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
				w.restart(t, region, 0)
				w.restart(t, region, 1)
			}
			asks(14*time.Second, 0, 90)
			asks(20*time.Second, 90, 50)
			if o.most > 40 || o.uncovered > 0 {
				t.Errorf("%d above a limit of %d, and above what was told in %d of %d windows; want at most 40, and none", o.most, spec.Limit, o.uncovered, o.windows)
			}
			cut(false)
			asks(2*time.Second, 90, 50)
			got, want := asks(spec.Per, 90, 50), float64(spec.Limit)*90/float64(90+50*(c.regions-1))
			if got[""] < 950 || math.Abs(float64(got[c.rich])-want) > want*.15 {
				t.Errorf("after the heal: %v, want about %d, and %.0f of it at %s", got, spec.Limit, want, c.rich)
			}
		})
	}
}
