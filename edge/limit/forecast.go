package limit

import "time"

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
	Cost      uint64        // that each request has; 0: 1
}

// Forecast is how far a limit will be exceeded at the worst, in cost above its ceiling.
type Forecast struct {
	Steady float64 // by twice the limit, evenly, all the time
	Surge  float64 // by F times the limit, at once, everywhere
}

// rough is how many times as far as sub-windows an adaptive limit of an algorithm was seen
// to be exceeded by twice its demand, of what a Bound makes of sub-windows: half of a
// window before is taken as even, or what drains meanwhile is admitted again.
var rough = map[Algorithm]float64{SlidingWindow: 2, TokenBucket: 1.75, LeakyBucket: 1.75}

// wholes is how many of all edges pass a whole request for the part of one that they have,
// where a crowd comes to all at once; who has less than one each passes one.
const wholes = 0.7

// twice is what steady demand is taken to be, times the limit.
const twice = 2

// Forecast is what a Bound would tell of a counter at its limit. Loose edges admit what
// is asked for until they hear of each other: soon, where they are near the limit
// anyhow, and an interval later, where it comes out of the blue. A limit is held for
// requests of a cost as one that is so many times smaller is for those of 1.
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
	cost := float64(max(1, min(r.CostOf(t.Cost), r.Ceiling)))
	ceiling := float64(r.Ceiling) / cost
	w := worst{used: ceiling, ceiling: ceiling, piece: 1, others: float64(others), shares: r.Consistency == Adaptive}
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
	w.first = w.wholes(cost > 1)
	f.Surge = of(w.surge, late+t.Interval-t.UrgentGap)
	k := rough[r.Algorithm]
	if w.shares && k > 1 {
		f.Steady = min(k*f.Steady, w.others*w.ceiling)
	}
	if w.shares && k > 1 && cost > 1 { // for 1 it is enough
		f.Surge = min(k*f.Surge, w.others*w.ceiling)
	}
	f.Steady *= cost
	f.Surge = max(f.Steady, f.Surge*cost)
	return f
}

// MeshRegions is up to how many regions all tell each other all; above, news goes by
// way of a key's homes.
const MeshRegions = 8
