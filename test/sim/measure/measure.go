// Package measure runs a scenario on a simulated cluster and says how accurate
// its limit was, beside an exact log that sees every request at once
// (../../../../shared/research/accuracy.md §2 defines the figures).
package measure

import (
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/sim/scenarios"
	"github.com/spillgate/spillgate/test/sim/world"
)

// Options say what is measured.
type Options struct {
	Scenario       scenarios.Scenario
	Limit          uint64
	Window         time.Duration
	Regions, Edges int // edges of each region
	Consistency    string
	Seed           uint64
}

// Figures are the accuracy of one run, as parts of one.
type Figures struct {
	Over     float64 // the most admitted in any window of any key, above the limit
	Util     float64 // admitted, of what the exact log admits
	Wrong    float64 // free places that were refused, each counted once, of what the exact log admits
	Requests int
	Messages uint64
	Bytes    uint64
	Trace    uint64
}

// settled is how long the cluster is up before anybody asks: its parts have met, and
// know how far they are from each other.
const settled = 5 * time.Second

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var names = []string{"eu", "us", "ap", "sa", "af"}

// Run measures one seed.
func Run(o Options) (f Figures, err error) {
	cfg := world.Config{Start: start.Add(-settled), Seed: o.Seed + 1, Rules: []limit.Document{{Namespace: "t", Rules: []limit.RuleSpec{{
		Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: o.Limit, Per: o.Window, Consistency: o.Consistency}},
	}}}}}
	for r := range o.Regions {
		region := world.Region{Name: nameOf(r)}
		for e := range o.Edges {
			region.Edges = append(region.Edges, fmt.Sprintf("%s-%d", region.Name, e+1))
		}
		cfg.Regions = append(cfg.Regions, region)
	}
	w, err := world.New(cfg)
	if err != nil {
		return f, err
	}
	toRegion, between := w.Links()
	toRegion.Jitter, between.Jitter = toRegion.Delay/10, between.Delay/10
	befall := faults(w, o)
	users := map[int]*user{}
	for _, a := range workload(o) {
		at := start.Add(a.after)
		for len(befall) > 0 && !befall[0].at.After(at) {
			w.Advance(befall[0].at)
			if err := befall[0].do(); err != nil {
				return f, err
			}
			befall = befall[1:]
		}
		w.Advance(at)
		u := users[a.key]
		if u == nil {
			u = newUser(fmt.Sprint("u", a.key), o)
			users[a.key] = u
		}
		n := w.Node(w.Edges()[a.edge])
		req := n.Rules().Only().NewRequest()
		req.Set("user", u.name)
		allowed := n.Check(at, req).Allowed
		req.Release()
		u.saw(a.after, allowed)
		f.Requests++
	}
	var admitted, ideal, wrong uint64
	for _, u := range users {
		f.Over = max(f.Over, float64(u.most)/float64(o.Limit)-1)
		admitted, ideal, wrong = admitted+u.admitted.total, ideal+u.ideal.total, wrong+u.wrong
	}
	if ideal > 0 {
		f.Util, f.Wrong = float64(admitted)/float64(ideal), float64(wrong)/float64(ideal)
	}
	f.Messages, f.Bytes = w.Sent()
	f.Trace, _ = w.Trace()
	return f, nil
}

func nameOf(region int) string {
	if region < len(names) {
		return names[region]
	}
	return fmt.Sprint("r", region)
}

// user is one key as exact logs see it.
type user struct {
	name     string
	limit    int
	ideal    window // what a log that sees all requests admits
	admitted window // what was admitted
	filled   window // that, and places that were free and refused
	most     int    // in a window, of what was admitted
	wrong    uint64
}

func newUser(name string, o Options) *user {
	w := window{length: o.Window}
	return &user{name: name, limit: int(o.Limit), ideal: w, admitted: w, filled: w}
}

// saw notes one request and what became of it.
func (u *user) saw(at time.Duration, allowed bool) {
	if u.ideal.at(at) < u.limit {
		u.ideal.add(at)
	}
	free := u.filled.at(at) < u.limit
	switch u.admitted.at(at); {
	case allowed:
		u.admitted.add(at)
		u.filled.add(at)
		u.most = max(u.most, len(u.admitted.log))
	case free:
		u.filled.add(at)
		u.wrong++
	}
}

// window is the exact log of the last window.
type window struct {
	length time.Duration
	log    []time.Duration
	total  uint64
}

// at is how many are in the window that ends now.
func (w *window) at(now time.Duration) int {
	n := 0
	for n < len(w.log) && w.log[n] <= now-w.length {
		n++
	}
	w.log = w.log[n:]
	return len(w.log)
}

func (w *window) add(now time.Duration) {
	w.log = append(w.log, now)
	w.total++
}

// fault befalls the world at some time.
type fault struct {
	at time.Time
	do func() error
}

// faults are those of the scenario, in the order of time.
func faults(w *world.World, o Options) (out []fault) {
	for _, f := range o.Scenario.Faults {
		from := start.Add(f.From.Of(o.Window))
		until := from.Add(f.For.Of(o.Window))
		if f.Cut > 0 {
			region := nameOf((f.Cut - 1) % o.Regions)
			out = append(out, fault{from, func() error { w.Cut(region, true); return nil }},
				fault{until, func() error { w.Cut(region, false); return nil }})
			continue
		}
		region := nameOf((f.Restart - 1) % o.Regions)
		out = append(out, fault{from, func() error {
			for _, v := range w.Servers(region) {
				w.Stop(v)
			}
			w.Store(region).Wipe()
			return nil
		}}, fault{until, func() error {
			for _, v := range w.Servers(region) {
				if err := w.Start(v); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	slices.SortStableFunc(out, func(a, b fault) int { return a.at.Compare(b.at) })
	return out
}
