package measure

import (
	"cmp"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/spillgate/spillgate/test/sim/scenarios"
)

// Request is one that is given, in place of what a scenario draws.
type Request struct {
	After time.Duration // since the start
	Edge  int           // its place among all
	Key   int
}

// arrival is one request of the workload.
type arrival struct {
	after time.Duration // since the start
	edge  int           // its place among all
	key   int
	cost  uint64
	tries int // so often it was denied before
}

// workload draws what a scenario asks: the same for every strategy, and the
// demands of a scenario each from a source of their own.
func workload(o Options) (out []arrival) {
	for _, r := range o.Given {
		out = append(out, arrival{after: r.After, edge: r.Edge, key: r.Key, cost: 1})
	}
	s := &o.Scenario
	end := s.Lasts.Of(o.Window)
	for i := range s.Demand {
		d := &s.Demand[i]
		p := placer{Demand: d, o: o, rnd: stream(o.Seed, "places", i)}
		rnd := stream(o.Seed, "demand", i)
		from, until := d.From.Of(o.Window), d.Until.Of(o.Window)
		if until == 0 {
			until = end
		}
		keys := keysOf(s, stream(o.Seed, "keys", i))
		most := uint64(o.Conditions.Costs)
		costs := stream(o.Seed, "costs", i)
		add := func(at time.Duration, edge int) (cost uint64) {
			key := keys()
			if s.Home > 0 {
				edge = p.near(key, edge)
			}
			cost = 1 + costs.Uint64N(most)
			out = append(out, arrival{after: at, edge: edge, key: key, cost: cost})
			return cost
		}
		if d.Burst > 0 {
			for at := from; at < until; at += d.Every.Of(o.Window) {
				edge := p.edge(at)
				for left := int64(d.Burst * float64(o.Limit)); left > 0; {
					within := time.Duration(rnd.Float64() * float64(d.Within.Of(o.Window)))
					left -= int64(add(at+within, edge))
				}
			}
			continue
		}
		mean := float64(o.Window) / (d.Rate * float64(o.Limit)) * (1 + float64(most)) / 2
		for at := from; ; {
			at += time.Duration(rnd.ExpFloat64() * mean)
			if at >= until {
				break
			}
			if edge := p.edge(at); edge >= 0 {
				add(at, edge)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b arrival) int { return cmp.Compare(a.after, b.after) })
	return out
}

// keysOf draws keys: one, or by their popularity.
func keysOf(s *scenarios.Scenario, rnd *rand.Rand) func() int {
	if s.Keys <= 1 {
		return func() int { return 0 }
	}
	return Zipf(s.Keys, cmp.Or(s.Zipf, 1.1), rnd)
}

// Zipf draws the most popular of n keys, which is 0, k to the power of s times as
// often as the k-th. (That of the library wants an s above 1.)
func Zipf(n int, s float64, rnd *rand.Rand) func() int {
	upTo, sum := make([]float64, n), 0.0
	for k := range upTo {
		sum += math.Pow(float64(k+1), -s)
		upTo[k] = sum
	}
	return func() int {
		k, _ := slices.BinarySearch(upTo, rnd.Float64()*sum)
		return min(k, n-1)
	}
}

// stream is a source of chance for one purpose.
func stream(seed uint64, purpose string, i int) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(purpose + strconv.Itoa(i)))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// placer finds the edge of a demand's request.
type placer struct {
	*scenarios.Demand
	o     Options
	rnd   *rand.Rand
	phase int   // of what changes each Every, from 1
	half  []int // the edges that are on
}

// near has a key's request come at an edge where the key is at home, or, of the rest,
// anywhere else; edge is where it would come.
func (p *placer) near(key, edge int) int {
	in, home := p.o.Edges, key%p.o.Regions
	if p.rnd.Float64() < p.o.Scenario.Home {
		return home*in + edge%in
	}
	return (home+1+p.rnd.IntN(p.o.Regions-1))%p.o.Regions*in + edge%in
}

// edge is the place of an edge among all; -1: nobody asks now.
func (p *placer) edge(at time.Duration) int {
	all, in := p.o.Regions*p.o.Edges, p.o.Edges
	switch p.Where {
	case scenarios.One:
		return p.rnd.IntN(in)
	case scenarios.Others:
		return in + p.rnd.IntN(all-in)
	case scenarios.Moving:
		region := int(at/p.Every.Of(p.o.Window)) % p.o.Regions
		return region*in + p.rnd.IntN(in)
	case scenarios.Half:
		every := p.Every.Of(p.o.Window)
		if int(at/every)%2 == 1 {
			return -1
		}
		if phase := int(at/every) + 1; phase != p.phase {
			p.phase, p.half = phase, p.rnd.Perm(all)[:all/2]
		}
		return p.half[p.rnd.IntN(len(p.half))]
	case scenarios.Home:
		return 0
	default: // all, and random for each burst
		return p.rnd.IntN(all)
	}
}
