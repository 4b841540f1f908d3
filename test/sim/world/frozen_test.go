package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// passes are what edges admitted, and when.
type passes []pass

type pass struct {
	at   time.Time
	edge string
}

// storm asks edges so often a second each, at random.
func (p *passes) storm(w *World, lasts time.Duration, hz map[string]int) {
	var names []string
	for _, name := range w.Edges() {
		for range hz[name] {
			names = append(names, name)
		}
	}
	all := len(names)
	rnd := rand.New(rand.NewPCG(2, uint64(all)))
	from := w.Now()
	for i := range all * int(lasts/time.Millisecond) / 1000 {
		w.Advance(from.Add(time.Duration(i) * time.Second / time.Duration(all)))
		if name := names[rnd.IntN(len(names))]; ask(w, name, 1).Allowed {
			*p = append(*p, pass{w.Now(), name})
		}
	}
	w.Advance(from.Add(lasts))
}

// since is how many each edge admitted since then, each region, and all ("").
func (p passes) since(then time.Time) map[string]uint64 {
	n := map[string]uint64{}
	for _, one := range p {
		if one.at.After(then) {
			n[one.edge]++
			n[one.edge[:2]]++
			n[""]++
		}
	}
	return n
}

// stormAt is what edges admit of such a storm.
func stormAt(w *World, lasts time.Duration, hz map[string]int) map[string]uint64 {
	var p passes
	p.storm(w, lasts, hz)
	return p.since(time.Time{})
}

// A key that is asked for in one region alone has nearly all of its limit there, though
// that region is cut off from all others, or one from it that never saw the key; and who
// comes to the others with it meanwhile finds no more than that leaves.
func TestFrozenShareOfTheOnlyRegion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit   uint64
		regions int
		hz      int // at each of the two edges of r0
	}{{60, 5, 6}, {1000, 5, 100}, {1000, 2, 100}, {60, 3, 2}} {
		for _, cut := range []string{"r0", "r1"} {
			t.Run(fmt.Sprintf("%d at %d of %d regions without %s", c.limit, 2*c.hz, c.regions, cut), func(t *testing.T) {
				w := settled(t, c.regions, 2, limit.RateSpec{Limit: c.limit, Per: 10 * time.Second})
				most := min(c.limit, uint64(20*c.hz))
				home := map[string]int{"r0-0": c.hz, "r0-1": c.hz}
				stormAt(w, 20*time.Second, home)
				w.Cut(cut, true)
				stormAt(w, 5*time.Second, home)
				for nth := range 3 {
					if got := stormAt(w, 10*time.Second, home)[""]; got < most*9/10 || got > c.limit*21/20 {
						t.Errorf("window %d: %d admitted, want about %d", nth, got, most)
					}
				}
				if cut != "r0" || c.hz == 2 {
					return
				}
				home["r1-0"] = c.hz
				if got := stormAt(w, 10*time.Second, home); got[""] > c.limit*11/10 {
					t.Errorf("as r1 begins: %d admitted, %d of it at r0, want little more than %d", got[""], got["r0"], c.limit)
				}
				for nth := range 3 {
					got := stormAt(w, 10*time.Second, home)
					if got[""] > c.limit*23/20 || got["r0"] < c.limit*8/10 {
						t.Errorf("window %d with r1: %d admitted, %d of it at r0, want about %d", nth, got[""], got["r0"], c.limit)
					}
				}
			})
		}
	}
}

// A key that is first asked for while regions are cut off from each other is shared by
// their number: on all sides together it has its limit about once.
func TestFrozenShareOfANewKey(t *testing.T) {
	for _, c := range []struct {
		limit uint64
		hz    int // at each edge
	}{{60, 12}, {1000, 100}} {
		w := settled(t, 5, 2, limit.RateSpec{Limit: c.limit, Per: 10 * time.Second})
		w.Cut("r0", true)
		w.Advance(w.Now().Add(5 * time.Second))
		all := map[string]int{}
		for _, name := range w.Edges() {
			all[name] = c.hz
		}
		for nth := range 4 {
			got := stormAt(w, 10*time.Second, all)
			if got[""] < c.limit*9/10 || got[""] > c.limit*115/100 || got["r0"] < c.limit*18/100 || got["r0"] > c.limit*25/100 {
				t.Errorf("%d, window %d: %d admitted, %d of it at r0", c.limit, nth, got[""], got["r0"])
			}
		}
	}
}

// Clients of a region go to another while it is cut off: there they have what that region
// had before, and once it is back, within three seconds, what they ask for.
func TestSharesFollowDemandAfterACut(t *testing.T) {
	for _, c := range []struct {
		limit  uint64
		per    time.Duration
		hz     int // at each edge of the region where most is asked for
		settle time.Duration
	}{{100, time.Second, 100, 5 * time.Second}, {1000, 10 * time.Second, 200, 20 * time.Second}, {60, 10 * time.Second, 12, 20 * time.Second}} {
		t.Run(fmt.Sprintf("%d in %v", c.limit, c.per), func(t *testing.T) {
			w := settled(t, 5, 2, limit.RateSpec{Limit: c.limit, Per: c.per})
			in := func(region string) map[string]int {
				hz := map[string]int{}
				for _, name := range w.Edges() {
					if hz[name] = max(1, c.hz/20); name[:2] == region {
						hz[name] = c.hz
					}
				}
				return hz
			}
			stormAt(w, c.settle, in("r0"))
			w.Cut("r0", true)
			stormAt(w, c.settle, in("r1"))
			var p passes
			p.storm(w, c.per, in("r1"))
			if cut := p.since(w.Now().Add(-c.per)); cut[""] > c.limit*11/10 || cut["r1"] < (cut[""]-cut["r0"])/2 {
				t.Errorf("while r0 is cut off: %v, want most of what is not r0's at r1", cut)
			}
			w.Cut("r0", false)
			p.storm(w, 3*time.Second, in("r1"))
			for second := range 3 {
				if healed := p.since(w.Now().Add(-c.per)); healed[""] < c.limit*9/10 || healed[""] > c.limit*115/100 || healed["r1"] < healed[""]/2 {
					t.Errorf("%d s after the heal: %v in a window, want most of %d at r1", 3+second, healed, c.limit)
				}
				p.storm(w, time.Second, in("r1"))
			}
		})
	}
}

// Who comes late to the other side of a cut, where all counts of the key are over, finds what
// the cut left there, and little more: edges that are far from a limit spend a twentieth of it
// together until they are told their shares.
func TestLateComersInACut(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{8 * time.Second, 40 * time.Second} {
		spec := limit.RateSpec{Name: "r", Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"}
		w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed = 33 }, spec)
		w.Advance(start.Add(6 * time.Second))
		o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
		asks := func(lasts time.Duration, r1, others int) {
			o.asks(w, rnd, lasts, func(edge string) int {
				if edge[:2] == "r1" {
					return r1
				}
				return others
			})
		}
		asks(14*time.Second, 150, 0)
		w.Cut("r1", true)
		asks(late, 150, 0)
		asks(14*time.Second, 60, 150)
		if o.most > 80 || o.uncovered > 0 {
			t.Errorf("others come %v after the cut: %d above a limit of %d, and above what was told in %d of %d windows; want at most 80, and none", late, o.most, spec.Limit, o.uncovered, o.windows)
		}
	}
}
