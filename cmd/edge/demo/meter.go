package demo

import (
	"math"
	"time"

	deltasync "github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

const (
	// sampleEvery is how often drift is measured, and hottest on how many
	// counters.
	sampleEvery = 250 * time.Millisecond
	hottest     = 50
	// maxSamples bounds the timeline of a long run: the last ten minutes.
	maxSamples = int(10 * time.Minute / sampleEvery)
)

// Sample is one point of a run's timeline.
type Sample struct {
	Millis int64 `json:"t_ms"`
	// Drift is the worst |believed − true| / limit, over the counters with the
	// largest part of their limit used, and the edges that have just decided
	// about them. Hits under way are part of it, so under load it is seldom 0.
	Drift float64 `json:"drift_ratio"`
	// Over is the worst window that ends now, above its limit.
	Over float64 `json:"over_admitted_ratio"`
	// Cut says that some region is cut off.
	Cut bool `json:"cut"`
}

// meter compares what edges believe and admit with the exact log.
type meter struct {
	c       *cluster
	worst   []float64 // drift by region
	samples []Sample
}

func newMeter(c *cluster) *meter {
	return &meter{c: c, worst: make([]float64, len(c.regions))}
}

// sample measures now.
func (m *meter) sample(now time.Time) Sample {
	at := now.Sub(m.c.begun)
	s := Sample{Millis: at.Milliseconds(), Cut: len(m.c.cuts(at)) > 0}
	global := m.c.global.Truths(now, math.MaxInt)
	s.Over = worstOver(global)
	for i, r := range m.c.regions {
		own := r.oracle.Truths(now, math.MaxInt)
		s.Over = max(s.Over, worstOver(own))
		drift := 0.0
		for _, s := range r.edges {
			used := s.takeUsed()
			drift = max(drift, s.drift(global, used, now), s.drift(own, used, now))
		}
		m.worst[i] = max(m.worst[i], drift)
		s.Drift = max(s.Drift, drift)
	}
	if len(m.samples) == maxSamples {
		m.samples = append(m.samples[:0], m.samples[1:]...)
	}
	m.samples = append(m.samples, s)
	return s
}

func worstOver(truths []world.Truth) (over float64) {
	for _, t := range truths {
		over = max(over, t.Over)
	}
	return over
}

// drift is how far off the edge is, at the worst, of the counters that it has
// just decided about. Of others it may hold something old: it is told anew with
// its next request.
func (s *edgeSite) drift(truths []world.Truth, used map[deltasync.Key]struct{}, now time.Time) (worst float64) {
	for _, t := range truths[:min(len(truths), hottest)] {
		if _, ok := used[t.Key]; ok {
			b := s.node.Believe(now, t.Rate, t.Key)
			worst = max(worst, math.Abs(float64(b.Total)-float64(t.Used))/float64(max(1, t.Rate.Limit)))
		}
	}
	return worst
}

// viewAge is how long ago the region last answered the edge that has waited
// the longest; -1: some edge never had an answer.
func viewAge(r *region, now time.Time) (oldest time.Duration) {
	for _, s := range r.edges {
		age := s.node.Stats(now).ViewAge
		if age < 0 {
			return -1
		}
		oldest = max(oldest, age)
	}
	return oldest
}

// over is the worst window of the run.
func (m *meter) over() float64 {
	worst := m.c.global.Worst()
	for _, r := range m.c.regions {
		worst = max(worst, r.oracle.Worst())
	}
	return worst
}

// Summary is what a run came to.
type Summary struct {
	Millis    int64           `json:"duration_ms"`
	Decisions uint64          `json:"decisions"`
	Allowed   uint64          `json:"allowed"`
	Denied    uint64          `json:"denied"`
	Over      float64         `json:"over_admitted_ratio"`  // of the worst window of any counter
	Unjudged  []string        `json:"not_judged,omitempty"` // rates of which over is not told, as it is not by windows, or not theirs
	Unlogged  uint64          `json:"unlogged,omitempty"`   // admissions that the exact log had no room for: drift and over are wrong then
	Regions   []RegionSummary `json:"regions"`
	Samples   []Sample        `json:"samples"`

	untold bool // no over is told
}

// RegionSummary is one region's part of a Summary.
type RegionSummary struct {
	Name      string  `json:"name"`
	Edges     int     `json:"edges"`
	Decisions uint64  `json:"decisions"`
	Denied    uint64  `json:"denied"`
	Drift     float64 `json:"drift_ratio"` // the worst of all samples
	ViewAge   int64   `json:"view_age_ms"` // of the edge that waited longest, at the end; -1: it never heard anything
}

// summary is the run so far.
func (m *meter) summary(now time.Time) Summary {
	sum := Summary{Millis: now.Sub(m.c.begun).Milliseconds(), Over: round(m.over()), Unlogged: m.c.global.Missed(), Samples: []Sample{}}
	for i, r := range m.c.regions {
		for _, s := range r.edges {
			sum.Unjudged, sum.untold = unjudged(s.Rules()) // of all the same
		}
		rs := RegionSummary{Name: r.name, Edges: len(r.edges), Drift: round(m.worst[i]), ViewAge: -1}
		if age := viewAge(r, now); age >= 0 {
			rs.ViewAge = age.Milliseconds()
		}
		rs.Decisions, rs.Denied = r.decided()
		sum.Unlogged += r.oracle.Missed()
		sum.Decisions += rs.Decisions
		sum.Denied += rs.Denied
		sum.Regions = append(sum.Regions, rs)
	}
	sum.Allowed = sum.Decisions - sum.Denied
	for _, s := range m.samples {
		s.Drift, s.Over = round(s.Drift), round(s.Over)
		sum.Samples = append(sum.Samples, s)
	}
	return sum
}

// decided is how many requests the region's edges have decided about.
func (r *region) decided() (decisions, denied uint64) {
	for _, s := range r.edges {
		denied += s.denied.Load() // before decisions: so that it is never above them
		decisions += s.decisions.Load()
	}
	return decisions, denied
}

// round keeps four digits: more would pretend to an accuracy that samples do
// not have.
func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }
