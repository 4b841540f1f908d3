package world

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
)

// admitted is the exact log of a rate: what was admitted, by key, slice and region.
type admitted struct {
	rate *limit.Rate
	keys map[string]map[int64]map[string]uint64
}

func newAdmitted(w *World) *admitted {
	return &admitted{w.Node(w.Edges()[0]).Rules().Rules()[0].Rates[0], map[string]map[int64]map[string]uint64{}}
}

// hit has an edge decide, and logs what it admits.
func (o *admitted) hit(w *World, edge, user string) bool {
	if !check(w, edge, user).Allowed {
		return false
	}
	if o.keys[user] == nil {
		o.keys[user] = map[int64]map[string]uint64{}
	}
	s := int64(o.rate.SliceAt(w.NowAt(edge).UnixNano()))
	if o.keys[user][s] == nil {
		o.keys[user][s] = map[string]uint64{}
	}
	o.keys[user][s][w.Site(edge).Region]++
	return true
}

// over is what a limiter that knew all would have denied of it, slice after slice; by
// whom it was spent; and by how much the worst window was above the ceiling.
func (o *admitted) over() (hits uint64, by map[string]float64, worst uint64) {
	by = map[string]float64{}
	for _, log := range o.keys {
		kept := map[int64]uint64{}
		var times []int64
		for s := range log {
			times = append(times, s)
		}
		slices.Sort(times)
		for _, s := range times {
			spent, fits, window := uint64(0), uint64(0), uint64(0)
			for _, n := range log[s] {
				spent += n
			}
			for before := s - int64(o.rate.Slices) + 1; before < s; before++ {
				fits += kept[before]
				for _, n := range log[before] {
					window += n
				}
			}
			kept[s] = min(spent, o.rate.Ceiling-min(o.rate.Ceiling, fits))
			worst = max(worst, window+spent-min(window+spent, o.rate.Ceiling))
			hits += spent - kept[s]
			for region, n := range log[s] {
				by[region] += float64(spent-kept[s]) * float64(n) / float64(spent)
			}
		}
	}
	return hits, by, worst
}

// reported sums what all aggregators say of the first rate.
func reported(w *World) (all regional.Sums) {
	for _, h := range w.order {
		for _, v := range h.servers {
			if v.aggregator == nil {
				continue
			}
			r := v.aggregator.Truth("t", "api")[0].Reported
			all.Windows += r.Windows
			all.Over += r.Over
			all.Incomplete += r.Incomplete
			all.ToldSince += r.ToldSince
			all.Amended += r.Amended
			all.Hits += r.Hits
			all.Under += r.Under
			all.Known += r.Known
		}
	}
	return all
}

// crowd has users ask everywhere for a while, an edge after the other.
func (o *admitted) crowd(w *World, users int, every, lasts time.Duration) {
	for i, end := 0, w.Now().Add(lasts); w.Now().Before(end); i++ {
		o.hit(w, w.Edges()[(i*7+i/11)%len(w.Edges())], fmt.Sprint("u", i%users))
		w.Advance(w.Now().Add(every))
	}
}

// rest lets a time pass, at whose end the parts have been awake for a while.
func rest(w *World, d time.Duration) {
	const awake = 8 * time.Second
	end := w.Now().Add(d)
	for w.Advance(end.Add(-awake)); w.Now().Before(end); w.Advance(w.Now().Add(time.Second)) {
		w.Touch()
	}
}

// A flash crowd at loose limits: what aggregators say of it, a while later, is what the
// exact log says, hit by hit, and no key is told of by two of them.
func TestTruthIsWhatTheLogSays(t *testing.T) {
	for _, c := range []struct {
		name        string
		spec        limit.RateSpec
		margin      float64
		aggregators int
		targets     regional.Targets
		lanes       int
	}{
		{name: "sub-windows", spec: limit.RateSpec{Limit: 40, Per: 10 * time.Second}},
		{name: "a second", spec: limit.RateSpec{Limit: 40, Per: time.Second}},
		{name: "a fixed window", spec: limit.RateSpec{Limit: 40, Per: 10 * time.Second, Algorithm: "fixed_window"}},
		{name: "a sliding window", spec: limit.RateSpec{Limit: 40, Per: 10 * time.Second, Algorithm: "sliding_window"}},
		{name: "a soft margin", spec: limit.RateSpec{Limit: 40, Per: 10 * time.Second}, margin: 20},
		{name: "a day of the calendar", spec: limit.RateSpec{Limit: 40, Period: "day"}},
		{name: "lanes", spec: limit.RateSpec{Limit: 40, Per: 10 * time.Second}, aggregators: 2, lanes: 4},
		{name: "homes", spec: limit.RateSpec{Limit: 40, Per: 10 * time.Second}, targets: regional.TargetsHomes},
	} {
		t.Run(c.name, func(t *testing.T) {
			docs := rules(c.spec)
			docs[0].Rules[0].Margin.SoftPercent = c.margin
			cfg := Config{Rules: docs, Start: start, Aggregators: c.aggregators, Lanes: c.lanes, Targets: c.targets}
			for _, r := range []string{"ap", "eu", "us"} {
				cfg.Regions = append(cfg.Regions, Region{Name: r, Edges: []string{r + "-1", r + "-2"}})
			}
			w, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			w.Advance(start.Add(6 * time.Second))
			o := newAdmitted(w)
			o.crowd(w, 8, time.Millisecond, 4*time.Second)
			o.crowd(w, 8, 5*time.Millisecond, 8*time.Second)
			later := 20 * time.Second
			if o.rate.Period != limit.NoPeriod {
				later = 25 * time.Hour
			}
			rest(w, later)
			hits, by, worst := o.over()
			if hits == 0 {
				t.Fatal("the crowd was held: there is nothing to tell of")
			}
			got := reported(w)
			if got.Hits != hits || got.Over == 0 || got.Over > got.Windows {
				t.Errorf("reported %+v, want %d hits too many", got, hits)
			}
			if got.Incomplete != 0 || got.Amended != 0 {
				t.Errorf("reported %+v: nobody was away", got)
			}
			if c.aggregators > 1 {
				return // none of them sees all
			}
			for _, region := range []string{"ap", "eu", "us"} {
				r := w.Servers(region)[0].Aggregator().Truth("t", "api")[0]
				if c.targets == "" {
					if r.Seen.Hits != hits || r.Worst == nil || r.Worst.Over != worst {
						t.Errorf("%s sees %+v, worst %+v, want %d hits, and %d in the worst window", region, r.Seen, r.Worst, hits, worst)
					}
					for _, cause := range r.Regions {
						if math.Abs(cause.Hits-by[cause.Name]) > 1e-6*float64(hits) {
							t.Errorf("%s says that %s admitted %v of it, want %v", region, cause.Name, cause.Hits, by[cause.Name])
						}
					}
				}
				if i := slices.IndexFunc(r.PoPs, func(c regional.Cause) bool { return c.Name == "pop" }); i < 0 || len(r.PoPs) != 1 {
					t.Errorf("%s: PoPs %+v, want its one", region, r.PoPs)
				}
			}
		})
	}
}

// three is a world of three regions with two edges each.
func three(t *testing.T, spec limit.RateSpec) (*World, *admitted) {
	t.Helper()
	cfg := Config{Rules: rules(spec), Start: start, Seed: 1} // with one, no silence is passed over
	for _, r := range []string{"ap", "eu", "us"} {
		cfg.Regions = append(cfg.Regions, Region{Name: r, Edges: []string{r + "-1", r + "-2"}})
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rest(w, 10*time.Second)
	return w, newAdmitted(w)
}

// A region is cut off, and both sides go on admitting. A short cut holds slices up until
// it has told; after two windows they close without it, and what it tells then amends
// them. Nothing is ever told twice.
func TestTruthOfACutRegion(t *testing.T) {
	spec := limit.RateSpec{Limit: 40, Per: 10 * time.Second}
	w, o := three(t, spec)
	o.crowd(w, 8, 20*time.Millisecond, 2*time.Second)
	w.Cut("eu", true)
	o.crowd(w, 8, 20*time.Millisecond, 8*time.Second)
	w.Advance(w.Now().Add(time.Second))
	held := reported(w)
	w.Cut("eu", false)
	rest(w, 40*time.Second)
	hits, _, _ := o.over()
	if got := reported(w); got.Hits != hits || got.Incomplete != 0 || held.Hits > hits/2 {
		t.Errorf("after a short cut: reported %+v, want %d hits, and nothing incomplete; during it %+v", got, hits, held)
	}

	w, o = three(t, spec)
	w.Cut("eu", true)
	o.crowd(w, 8, 20*time.Millisecond, 45*time.Second)
	during := reported(w)
	seen, _, _ := o.over()
	if during.Incomplete == 0 || during.Incomplete != during.Windows-during.ToldSince || during.Hits > seen {
		t.Errorf("during a long cut: reported %+v of %d hits, want windows that closed as incomplete", during, seen)
	}
	w.Cut("eu", false)
	rest(w, 60*time.Second)
	hits, _, _ = o.over()
	got := reported(w)
	if got.ToldSince == 0 || got.Amended != 0 && got.Hits <= during.Hits || got.Hits > hits || got.Hits < during.Hits {
		t.Errorf("after a long cut: reported %+v of %d hits, and during it %+v: want more, and no more than there are", got, hits, during)
	}
	if got.Hits < hits/2 || got.ToldSince == got.Incomplete {
		t.Errorf("after a long cut: %d hits of %d", got.Hits, hits)
	}
	t.Logf("long cut: %d of %d hits; %d windows, %d incomplete, %d told since, %d slices amended", got.Hits, hits, got.Windows, got.Incomplete, got.ToldSince, got.Amended)
}

// A region that is cut off for up to a window and thirty seconds tells all that it counted
// when it is back, however steadily it was.
func TestTruthOfSteadySpendingInACut(t *testing.T) {
	for _, cut := range []time.Duration{15 * time.Second, 22 * time.Second, 30 * time.Second, 35 * time.Second} {
		for _, every := range []time.Duration{80 * time.Millisecond, 320 * time.Millisecond} {
			w, o := three(t, limit.RateSpec{Limit: 40, Per: 10 * time.Second, Consistency: "loose"})
			o.crowd(w, 1, every, 12*time.Second)
			w.Cut("eu", true)
			o.crowd(w, 1, every, cut)
			w.Cut("eu", false)
			rest(w, 60*time.Second)
			hits, _, _ := o.over()
			got := reported(w)
			if got.Hits != hits || got.Incomplete < got.ToldSince || got.ToldSince+1 < got.Incomplete || got.Incomplete == 0 {
				t.Errorf("%v of a request every %v: reported %+v, want %d hits, and all that was incomplete told of since, but for a slice", cut, every, got, hits)
			}
		}
	}

	w, o := three(t, limit.RateSpec{Limit: 40, Per: 10 * time.Second, Consistency: "loose"}) // for too long
	o.crowd(w, 1, 80*time.Millisecond, 12*time.Second)
	w.Cut("eu", true)
	o.crowd(w, 1, 80*time.Millisecond, 80*time.Second)
	w.Cut("eu", false)
	rest(w, 60*time.Second)
	hits, _, _ := o.over()
	if got := reported(w); got.Hits > hits || got.ToldSince > got.Incomplete*2/3 || got.ToldSince == 0 {
		t.Errorf("80 s: reported %+v of %d hits, want some, and what was told too late to stay incomplete", got, hits)
	}
}

// An aggregator dies and starts anew. What it had told stays told by who read it, and
// its successor tells the rest: together no more than there is.
func TestTruthWithARestart(t *testing.T) {
	w, o := three(t, limit.RateSpec{Limit: 40, Per: 10 * time.Second})
	o.crowd(w, 8, 5*time.Millisecond, 3*time.Second)
	rest(w, 30*time.Second)
	first, _, _ := o.over()
	before := reported(w)
	if before.Hits != first {
		t.Fatalf("reported %+v, want %d hits", before, first)
	}
	restart := func() {
		for _, r := range []string{"ap", "eu", "us"} {
			if err := w.Start(w.Servers(r)[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	restart()
	rest(w, 10*time.Second)
	o.crowd(w, 8, 5*time.Millisecond, 3*time.Second)
	rest(w, 30*time.Second)
	second, _, _ := o.over()
	if got := reported(w); got.Hits != second-first {
		t.Errorf("after a restart %+v, want %d hits", got, second-first)
	}

	w, o = three(t, limit.RateSpec{Limit: 40, Per: 10 * time.Second}) // in the midst of it
	o.crowd(w, 8, 5*time.Millisecond, 5*time.Second)
	before = reported(w)
	restart()
	o.crowd(w, 8, 5*time.Millisecond, 10*time.Second)
	rest(w, 30*time.Second)
	hits, _, _ := o.over()
	got := reported(w)
	if sum := before.Hits + got.Hits; sum > hits || before.Hits == 0 || sum < hits/2 {
		t.Errorf("%d hits before a restart and %d after it, want no more than %d, and most", before.Hits, got.Hits, hits)
	}
	t.Logf("restart: %d and %d of %d hits", before.Hits, got.Hits, hits)
}

// Where edges decide by shares it is known what was asked for, and so what was denied
// though there was room; of loose limits it is not, and nothing is said.
func TestTruthOfWhatWasDenied(t *testing.T) {
	const seconds = 20
	for _, c := range []struct {
		name        string
		consistency string
		hz          int
		known       bool
	}{
		{"below the limit", "adaptive", 50, true},
		{"above it", "adaptive", 200, true},
		{"loose", "loose", 200, false},
	} {
		w := wide(t, 5, 2, limit.RateSpec{Limit: 100, Per: time.Second, Consistency: c.consistency})
		w.Advance(start.Add(2 * time.Second))
		admitted := storm(w, c.hz, seconds*time.Second, 1)
		rest(w, 10*time.Second)
		got, denied := reported(w), min(seconds*uint64(c.hz), seconds*100)-min(admitted, seconds*100)
		switch {
		case c.known != (got.Known > 0):
			t.Errorf("%s: reported %+v", c.name, got)
		case c.hz < 100 && got.Under != 0, c.known && c.hz > 100 && (got.Under < denied/2 || got.Under > 2*denied):
			t.Errorf("%s: %d denied while there was room, want about %d", c.name, got.Under, denied)
		}
	}
}
