package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// strictly is a world of a strict limit, of regions of two edges and as many aggregators.
func strictly(t *testing.T, seed uint64, spec limit.RateSpec) *World {
	t.Helper()
	return softly(t, seed, 0, spec)
}

// softly is strictly for a limit with a soft margin, in percent.
func softly(t *testing.T, seed uint64, soft float64, spec limit.RateSpec) *World {
	t.Helper()
	spec.Consistency = "strict"
	cfg := Config{Start: start, Seed: seed + 1, Aggregators: 2, Lanes: 2, Rules: rules(spec), Lease: 4 * time.Second}
	cfg.Rules[0].Rules[0].Margin.SoftPercent = soft
	for _, r := range []string{"eu", "us", "ap"} {
		cfg.Regions = append(cfg.Regions, Region{Name: r, Edges: []string{r + "-1", r + "-2"}})
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// befall has something go wrong, and returns what.
func befall(t *testing.T, w *World, rnd *rand.Rand) string {
	t.Helper()
	names := []string{"eu", "us", "ap"}
	a, b := names[rnd.IntN(3)], names[rnd.IntN(3)]
	e := w.Edges()[rnd.IntN(len(w.Edges()))]
	v := w.Servers(a)[rnd.IntN(2)]
	var err error
	what := ""
	switch rnd.IntN(10) {
	case 0:
		what, err = "crash "+e, w.Crash(e)
	case 1:
		what = "stop " + v.Name
		w.Stop(v)
	case 2, 3:
		if v.aggregator == nil {
			what, err = "start "+v.Name, w.Start(v)
		}
	case 4:
		if cut := rnd.IntN(2) == 0; a != b {
			what = fmt.Sprint("cut ", a, b, cut)
			w.CutPath(a, b, cut)
			w.CutPath(b, a, cut)
		}
	case 5:
		cut := rnd.IntN(2) == 0
		what = fmt.Sprint("cut ", e, cut)
		w.CutPath(e, w.Site(e).Region, cut)
	case 6, 7:
		off := time.Duration(rnd.Int64N(int64(4*time.Second))) - 2*time.Second
		what = fmt.Sprint("clock of ", e, " ", off)
		w.SetClock(e, off, 0)
	case 8:
		off := time.Duration(rnd.Int64N(int64(time.Second))) - 500*time.Millisecond
		what = fmt.Sprint("clock of ", v.Name, " ", off)
		w.SetServerClock(v, off, 0)
	case 9:
		if rnd.IntN(8) == 0 {
			what = "wipe the rights of " + a
			w.regions[a].rights.Wipe()
		} else {
			what = "wipe the store of " + a
			w.Store(a).Wipe()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return what
}

// tail is what went wrong last.
func tail(tale []string) []string { return tale[max(0, len(tale)-12):] }

// mend ends all that went wrong, but for clocks.
func mend(t *testing.T, w *World) {
	t.Helper()
	for _, a := range []string{"eu", "us", "ap"} {
		for _, b := range []string{"eu", "us", "ap"} {
			if a != b {
				w.CutPath(a, b, false)
			}
		}
		for _, v := range w.Servers(a) {
			if v.aggregator == nil {
				if err := w.Start(v); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, e := range w.Edges() {
		w.CutPath(e, w.Site(e).Region, false)
		w.SetClock(e, 0, 0)
	}
}

// poured is by how much a bucket runs over into which all of a log was poured.
func poured(capacity int, refill float64) func(log []time.Duration, now time.Duration) int {
	return func(log []time.Duration, now time.Duration) int {
		worst, n := 0, 0
		for i := len(log) - 1; i >= 0; i-- {
			n++
			worst = max(worst, n-capacity-int(refill*(now-log[i]).Seconds()))
		}
		return worst
	}
}

// Strict limits are never exceeded, not by one, whatever goes wrong: edges that crash
// with rights, aggregators that come and go, cut regions and edges, clocks that are set,
// lost frames, stores and logs that are wiped. When all is mended they are used.
func TestStrictIsNeverOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec limit.RateSpec
		soft float64                                          // its margin, in percent
		most float64                                          // that may be admitted a second
		over func(log []time.Duration, now time.Duration) int // admitted at now, too many
	}{
		"window": {limit.RateSpec{Limit: 30, Per: 2 * time.Second}, 0, 15, func(log []time.Duration, now time.Duration) int {
			n := 0
			for i := len(log) - 1; i >= 0 && now-log[i] < 2*time.Second; i-- {
				n++
			}
			return n - 30
		}},
		"small": {limit.RateSpec{Limit: 4, Per: 3 * time.Second}, 0, 4. / 3, func(log []time.Duration, now time.Duration) int {
			n := 0
			for i := len(log) - 1; i >= 0 && now-log[i] < 3*time.Second; i-- {
				n++
			}
			return n - 4
		}},
		"bucket": {limit.RateSpec{Algorithm: "token_bucket", Capacity: 30, Refill: limit.Flow{Units: 15, Per: time.Second}}, 0, 15, poured(30, 15)},
		"bucket with a margin": { // which takes three times its window to drain
			limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 4, Per: time.Second}}, 300, 4, poured(40, 4)},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(12) {
				w := softly(t, seed, c.soft, c.spec)
				edges, between := w.Links()
				edges.Jitter, between.Jitter = time.Millisecond, 8*time.Millisecond
				edges.Loss, between.Loss, edges.Twice, between.Twice = 0.02, 0.02, 0.02, 0.02
				rnd := rand.New(rand.NewPCG(seed, 3))
				var log []time.Duration
				var tale []string
				const faulty, calm = 30 * time.Second, 25 * time.Second
				mended, late := false, 0
				for now := w.Now().Sub(start); now < faulty+calm; now = w.Now().Sub(start) {
					w.Advance(w.Now().Add(time.Duration(rnd.ExpFloat64() * float64(20*time.Millisecond))))
					if now < faulty && rnd.IntN(40) == 0 {
						if what := befall(t, w, rnd); what != "" {
							tale = append(tale, fmt.Sprintf("%v %s", now.Round(time.Millisecond), what))
						}
					} else if now >= faulty && !mended {
						mended = true
						mend(t, w)
						edges.Loss, between.Loss = 0, 0
					}
					name := w.Edges()[rnd.IntN(len(w.Edges()))]
					n := w.Node(name)
					req := n.Rules().Only().NewRequest()
					req.Set("user", "u")
					req.Set("plan", "gold")
					req.Set("class", "batch")
					w.Touch()
					allowed := n.Check(w.NowAt(name), req).Allowed
					req.Release()
					held, rate := uint64(0), n.Rules().Rules()[0].Rates[0]
					for _, e := range w.Edges() {
						held += w.Node(e).RightsOf(rate.Generation).Held
					}
					if held > rate.Ceiling { // invariant 15
						t.Fatalf("seed %d: edges hold %d rights at %v, of %d; what went wrong: %q", seed, held, now, rate.Ceiling, tail(tale))
					}
					if !allowed {
						continue
					}
					now = w.Now().Sub(start)
					if log = append(log, now); now > faulty+calm/2 {
						late++
					}
					if over := c.over(log, now); over > 0 {
						t.Fatalf("seed %d: %d too many at %v; what went wrong: %q", seed, over, now, tail(tale))
					}
				}
				if most := c.most * (calm / 2).Seconds(); float64(late) < 0.6*most {
					t.Errorf("seed %d: %d were admitted when all was mended, of %.0f; what went wrong: %q", seed, late, most, tail(tale))
				}
			}
		})
	}
}
