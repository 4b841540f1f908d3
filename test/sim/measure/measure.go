// Package measure runs a scenario on a simulated cluster and says how accurate
// its limit was, beside an exact log that sees every request at once
// (../../../../shared/research/accuracy.md §2 defines the figures).
package measure

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate/test/sim/scenarios"
	"github.com/spillgate/spillgate/test/sim/world"
)

// Options say what is measured.
type Options struct {
	Scenario       scenarios.Scenario
	Given          []Request // what is asked beside it, in the order of time
	Conditions     scenarios.Conditions
	Limit          uint64
	Window         time.Duration
	Regions, Edges int    // edges of each region
	Consistency    string // of the rates, or Naive
	Algorithm      string // of the rates, one of Algorithms; "": sub_windows
	Seed           uint64

	told func(u *user, at time.Duration, t told) // of each request, once it is logged; nil: edges are not asked for bounds
}

// Naive is loose without anything urgent: own counts and the others' as told each
// interval.
const Naive = "naive"

// Figures are the accuracy of one run, as parts of one.
type Figures struct {
	Over     float64 // the most admitted in any window of any key, above the limit
	Util     float64 // admitted, of what the exact log admits
	Wrong    float64 // free places that were refused, each counted once, of what the exact log admits
	Exact    float64 // cost that the exact log denies, of all that was asked for
	Excess   float64 // cost that was admitted above a limit, of all that was asked for
	Refused  float64 // cost that was wrongly denied, likewise
	Requests int
	Messages uint64
	Bytes    uint64
	EdgeRate float64     // bytes a second between an edge and its region, both ways, pushes too
	Fates    world.Fates // of frames
	Trace    uint64

	Waited                float64       // requests that waited for rights and passed, of all
	WaitMedian, WaitWorst time.Duration // and for how long
}

// settled is how long the cluster is up before anybody asks: its parts have met, and
// know how far they are from each other. Clocks are corrected by 5 ms a second.
const (
	settled   = 5 * time.Second
	corrected = 30 * time.Second
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var names = []string{"eu", "us", "ap", "sa", "af"}

// Run measures one seed.
func Run(o Options) (f Figures, err error) {
	r, err := newRun(o)
	if err != nil {
		return f, err
	}
	users := map[int]*user{}
	rates := limits(r.o)
	asked := uint64(0)
	for {
		a, ok := r.next()
		if !ok && len(r.waits.of) == 0 {
			break
		}
		if !ok { // some wait yet, and may come back
			if err := r.advance(r.waits.of[0].until); err != nil {
				return f, err
			}
			continue
		}
		if err := r.advance(a.after); err != nil {
			return f, err
		}
		u := users[a.key]
		if u == nil {
			u = newUser(fmt.Sprint("u", a.key), rates)
			users[a.key] = u
		}
		u.asks(a.after, a.cost)
		r.ask(a, u)
		f.Requests++
		asked += a.cost
	}
	var admitted, ideal, wrong, excess uint64
	for _, u := range users {
		f.Over = max(f.Over, u.over)
		admitted, ideal, wrong, excess = admitted+u.admitted.total, ideal+u.ideal.total, wrong+u.wrong, excess+u.excess
	}
	if ideal > 0 {
		f.Util, f.Wrong = float64(admitted)/float64(ideal), float64(wrong)/float64(ideal)
		f.Exact = 1 - float64(ideal)/float64(asked)
		f.Excess, f.Refused = float64(excess)/float64(asked), float64(wrong)/float64(asked)
	}
	f.Messages, f.Bytes = r.w.Sent()
	f.EdgeRate = float64(r.w.SentAtEdges()) / float64(len(r.edges)) / r.up().Seconds()
	f.Fates = r.w.Fates()
	f.Trace, _ = r.w.Trace()
	f.Waited, f.WaitMedian, f.WaitWorst = r.waits.figures(f.Requests)
	return f, nil
}

func nameOf(region int) string {
	if region < len(names) {
		return names[region]
	}
	return fmt.Sprint("r", region)
}
