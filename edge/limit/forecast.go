package limit

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Topology is how many edges there are and how far they are from each other, as far as
// limits care.
type Topology struct {
	Regions   int
	Edges     int           // of all regions
	Largest   int           // of the region that has most of them
	Between   time.Duration // from region to region, one way
	Within    time.Duration // from an edge to its region, one way
	Interval  time.Duration // between flushes
	UrgentGap time.Duration // between urgent ones, at the least
}

// Forecast is how far a limit will be exceeded at the worst, in cost above its ceiling.
type Forecast struct {
	Steady float64 // by twice the limit, evenly, all the time
	Surge  float64 // by F times the limit, at once, everywhere
}

// twice is what steady demand is taken to be, times the limit.
const twice = 2

// Forecast is what a Bound would tell of a counter at its limit. Loose edges admit what
// is asked for until they hear of each other: soon, where they are near the limit
// anyhow, and an interval later, where it comes out of the blue.
func (r *Rate) Forecast(t Topology) (f Forecast) {
	others := t.Edges - 1
	if r.Scope == ScopeRegion {
		others, t.Regions = t.Largest-1, 1
	}
	if t.Regions == 1 { // then nothing is between regions
		t.Between = 0
	}
	if r.Scope == ScopeEdge || r.Consistency == Strict || others <= 0 || r.PerRequest {
		return f
	}
	hop := t.Between * 11 / 10
	if t.Regions > MeshRegions {
		hop *= 2
	}
	way := hop + 2*t.Within
	w := worst{used: float64(r.Ceiling), ceiling: float64(r.Ceiling), piece: 1, others: float64(others), shares: r.Consistency == Adaptive}
	pace := w.ceiling / max(r.Window.Seconds(), 1e-3)
	w.surge, w.leeway = r.surge()*pace, r.leeway()*w.ceiling
	soon := t.Between*11/10 + 2*t.Within + 2*t.UrgentGap // as edges take it to be
	w.blur, w.delay = t.Between/10+t.UrgentGap/2, soon
	w.lent = w.lends(pace)
	elsewhere := float64(others) / float64(others+1)
	of := func(asked float64, news time.Duration) float64 {
		return w.above(asked*elsewhere*news.Seconds(), asked, asked)
	}
	late := way + 2*t.UrgentGap + t.Interval/2
	f.Steady = of(twice*pace, late)
	if trusting := w.surge*soon.Seconds() - w.leeway; trusting < w.ceiling { // R2 lets pass what the news is late for
		w.leeway += w.surge * elsewhere * (late - soon).Seconds()
	}
	f.Surge = max(f.Steady, of(w.surge, late+t.Interval-t.UrgentGap))
	return f
}

// MeshRegions is up to how many regions all tell each other all; above, news goes by
// way of a key's homes.
const MeshRegions = 8

const (
	// mostHeld is the part of a limit above which it is not held at all, steadyHeld and
	// surgeHeld those above which whoever wrote it should know.
	mostHeld   = 0.75
	steadyHeld = 0.2
	surgeHeld  = 1.0
	// tiny is a cost that is nothing to speak of, whatever the limit.
	tiny = 3
)

// strain says whether a forecast is bad enough to be refused, or to warn of.
func (f Forecast) strain(r *Rate) (refuse, warn bool) {
	exceeds := func(cost, part float64) bool { return cost > max(tiny, part*float64(r.Ceiling)) }
	return exceeds(f.Steady, mostHeld), exceeds(f.Steady, steadyHeld) || exceeds(f.Surge, surgeHeld)
}

// Strain is what a topology makes of a rate, at a path: nil where it is held well
// enough. refuse says that it is not held at all.
func (r *Rate) Strain(path string, t Topology) (p *Problem, refuse bool) {
	if r.Consistency == Strict {
		return r.scarce(path, t), false
	}
	f := r.Forecast(t)
	refuse, warn := f.strain(r)
	if !refuse && !warn {
		return nil, false
	}
	code, verdict := "W230", "is exceeded by much"
	if refuse {
		code, verdict = "E230", "cannot be held"
	}
	return &Problem{Path: path, Code: code, Hint: r.relief(t), Detail: fmt.Sprintf(
		"%s over %d edges %s: at twice the limit about %s more may be admitted in a window, and %s if %v times the limit comes at once",
		r.words(), r.sharers(t), verdict, r.part(f.Steady), r.part(f.Surge), r.surge())}, refuse
}

// words are the rate in short: "100 per 1s, loose".
func (r *Rate) words() string {
	return fmt.Sprintf("%d per %v, %v", r.Limit, short(r.Window), r.Consistency)
}

// short is a window as rules write it.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// part is a cost as a part of the limit.
func (r *Rate) part(cost float64) string {
	return fmt.Sprintf("%.0f %% (%.0f)", math.Ceil(100*cost/float64(r.Ceiling)), math.Ceil(cost))
}

// relief is what would mend it, as far as it does, the least change first.
func (r *Rate) relief(t Topology) string {
	var ways []string
	try := func(word string, change func(*Rate)) {
		other := *r
		change(&other)
		f := other.Forecast(t)
		if refuse, warn := f.strain(&other); !refuse && !warn {
			ways = append(ways, fmt.Sprintf("%s (%.0f %%)", word, math.Ceil(100*f.Steady/float64(other.Ceiling))))
		}
	}
	if r.Consistency == Loose {
		try("consistency: adaptive", func(o *Rate) { o.Consistency = Adaptive })
	}
	for _, times := range []uint64{5, 10, 60} {
		if before := len(ways); times*r.Ceiling <= maxLimit && time.Duration(times)*r.Window <= MaxWindow {
			try(fmt.Sprintf("%d per %v", times*r.Limit, short(time.Duration(times)*r.Window)), func(o *Rate) {
				o.Limit, o.Ceiling, o.Window = times*o.Limit, times*o.Ceiling, time.Duration(times)*o.Window
			})
			if len(ways) > before {
				break
			}
		}
	}
	if r.Scope == ScopeGlobal && t.Regions > 1 {
		try("scope: region, a limit for each", func(o *Rate) { o.Scope = ScopeRegion })
	}
	if len(ways) == 0 {
		return "scope: edge and a part of the limit for each, a longer window, or fewer edges"
	}
	return strings.Join(ways, ", or ")
}
