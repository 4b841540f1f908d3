package measure

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/spillgate/spillgate/test/sim/scenarios"
)

// arrival is one request of the workload.
type arrival struct {
	after time.Duration // since the start
	edge  int           // its place among all
	key   int
}

// workload draws what a scenario asks: the same for every strategy, and the
// demands of a scenario each from a source of their own.
func workload(o Options) (out []arrival) {
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
		if d.Burst > 0 {
			for at := from; at < until; at += d.Every.Of(o.Window) {
				n := int(d.Burst * float64(o.Limit))
				edge := p.edge(at)
				for range n {
					within := time.Duration(rnd.Float64() * float64(d.Within.Of(o.Window)))
					out = append(out, arrival{at + within, edge, keys()})
				}
			}
			continue
		}
		mean := float64(o.Window) / (d.Rate * float64(o.Limit))
		for at := from; ; {
			at += time.Duration(rnd.ExpFloat64() * mean)
			if at >= until {
				break
			}
			if edge := p.edge(at); edge >= 0 {
				out = append(out, arrival{at, edge, keys()})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b arrival) int { return int(a.after - b.after) })
	return out
}

// keysOf draws keys: one, or by their popularity, Zipf with s = 1.1.
func keysOf(s *scenarios.Scenario, rnd *rand.Rand) func() int {
	if s.Keys <= 1 {
		return func() int { return 0 }
	}
	z := rand.NewZipf(rnd, 1.1, 1, uint64(s.Keys-1))
	return func() int { return int(z.Uint64()) }
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
