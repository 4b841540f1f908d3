package capacity

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spillgate/spillgate/regional"
)

// Targets of exports.
const (
	Mesh  = string(regional.TargetsMesh)  // every other region
	Homes = string(regional.TargetsHomes) // two regions a key
)

// homes is how many regions a key has its home in.
const homes = 2

// Plan is a fleet: what it is asked, and how it is set up.
type Plan struct {
	Regions int     `json:"regions"`
	Edges   int     `json:"edges"` // of each region
	RPS     float64 `json:"rps"`   // of each edge
	Keys    int     `json:"keys"`  // active ones, in the whole fleet
	Skew    float64 `json:"skew"`  // of Zipf's law: the key of rank r is asked r^-Skew times as often as the first
	// Limit is that of every key in a Window of so many Slices.
	Limit  float64       `json:"limit"`
	Window time.Duration `json:"window"`
	Slices int           `json:"slices"`

	Lanes       int    `json:"lanes"`
	Aggregators int    `json:"aggregators"` // of each region
	Targets     string `json:"targets"`

	// EdgeRTT is the way from an edge to its region and back, RegionRTT that
	// between regions; Interval and Urgent are those of the daemons.
	EdgeRTT   time.Duration `json:"edge_rtt"`
	RegionRTT time.Duration `json:"region_rtt"`
	Interval  time.Duration `json:"interval"`
	Urgent    time.Duration `json:"urgent"`
	// Apart is how far apart edges flush cold keys of one second: as far as an
	// Interval, unless they were all started at once, as a simulator does.
	Apart time.Duration `json:"apart"`
}

// Default is the fleet of research/substrate.md §11 with so many regions, or
// the one of the three that is next in size. Who tells whom is as of aggregators that are
// not told otherwise.
func Default(regions int) Plan {
	p := Plan{
		Regions: regions, Edges: 100, RPS: 1000, Keys: 1_000_000, Skew: 1.1,
		Limit: 60_000, Window: time.Minute, Slices: 40, Lanes: 8, Aggregators: 2, Targets: string(regional.TargetsAuto.For(regions)),
		EdgeRTT: 10 * time.Millisecond, RegionRTT: 160 * time.Millisecond, Interval: 100 * time.Millisecond, Urgent: 20 * time.Millisecond, Apart: 100 * time.Millisecond,
	}
	switch {
	case regions > 35:
		p.Edges, p.RPS, p.Keys = 1000, 400, 100_000_000
	case regions > 8:
		p.Edges, p.RPS, p.Keys = 500, 600, 30_000_000
	}
	return p
}

// Validate returns every mistake.
func (p *Plan) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(p.Regions >= 1 && p.Regions <= 1000, "regions %d: want 1 to 1000", p.Regions)
	check(p.Edges >= 1 && p.Edges <= 1e6, "edges %d: want 1 to a million", p.Edges)
	check(p.RPS > 0 && p.RPS <= 1e8, "rps %v: want more than 0", p.RPS)
	check(p.Keys >= 1 && p.Keys <= 1e11, "keys %d: want 1 to 1e11", p.Keys)
	check(p.Skew >= 0 && p.Skew <= 5, "skew %v: want 0 to 5", p.Skew)
	check(p.Limit >= 1, "limit %v: want 1 or more", p.Limit)
	check(p.Window >= 100*time.Millisecond && p.Window <= 24*time.Hour, "window %v: want 100ms to 24h", p.Window)
	check(p.Slices >= 1 && p.Slices <= 1024, "slices %d: want 1 to 1024", p.Slices)
	check(p.Lanes >= 1 && p.Lanes <= 64, "lanes %d: want 1 to 64", p.Lanes)
	check(p.Aggregators >= 1 && p.Aggregators <= 64, "aggregators %d: want 1 to 64", p.Aggregators)
	check(p.Targets == Mesh || p.Targets == Homes, "targets %q: want mesh or homes", p.Targets)
	return errors.Join(errs...)
}

// peers is to how many regions one exports a key.
func (p *Plan) peers() float64 {
	n := float64(p.Regions - 1)
	if p.Targets == Homes {
		// A home exports its keys to the other home alone.
		return min(n, homes-homes/float64(p.Regions))
	}
	return n
}

// far is how many regions hear of a key only when it nears its limit.
func (p *Plan) far() float64 { return float64(p.Regions-1) - p.peers() }

// often is how often at most they do, and the homes are asked by a region that has
// nothing to tell them: regional/homes.go.
func (p *Plan) often() float64 {
	return max(seconds(p.Interval), min(seconds(p.Window)/20, 1))
}

// rank is a run of keys that are asked equally often.
type rank struct {
	keys float64
	part float64 // of all requests that one of them is asked in
}

// ranks are the keys by Zipf's law: the first ones singly, then in runs whose
// ends differ by a hundredth.
func (p *Plan) ranks() []rank {
	const singly = 512
	var out []rank
	sum := 0.0
	for lo := 1; lo <= p.Keys; {
		hi := lo
		if lo > singly {
			hi = min(p.Keys, lo+lo/100)
		}
		n := float64(hi - lo + 1)
		r := rank{keys: n, part: math.Pow(float64(lo), -p.Skew)}
		if n > 1 {
			r.part = integral(float64(lo)-0.5, float64(hi)+0.5, p.Skew) / n
		}
		sum += n * r.part
		out = append(out, r)
		lo = hi + 1
	}
	for i := range out {
		out[i].part /= sum
	}
	return out
}

// integral is that of x^-s.
func integral(from, to, s float64) float64 {
	if math.Abs(s-1) < 1e-9 {
		return math.Log(to / from)
	}
	return (math.Pow(to, 1-s) - math.Pow(from, 1-s)) / (1 - s)
}
