package main

import (
	"fmt"
	"math"
	"time"
)

// verdict is a line of the table of targets.
type verdict struct {
	id, what, target, measured string
	met                        bool
	context                    bool // nothing is demanded
}

// outcome is how the line ends.
func (v verdict) outcome() string {
	switch {
	case v.context:
		return ""
	case v.met:
		return "met"
	}
	return "**missed**"
}

// ratio shows what counts, by the wall clock, and what the processors' own
// clocks say, which others on the machine disturb less.
const ratio = "%.2f × (by processor time %.2f ×)"

// judge holds what was measured against the targets P1 to P4, P7 and the first
// half of P11. Rows that the run did not measure count as missed.
func (f *findings) judge() []verdict {
	var out []verdict
	demand := func(met bool, id, what, target, measured string, args ...any) {
		out = append(out, verdict{id: id, what: what, target: target, measured: fmt.Sprintf(measured, args...), met: met})
	}
	show := func(id, what, measured string, args ...any) {
		out = append(out, verdict{id: id, what: what, target: "–", measured: fmt.Sprintf(measured, args...), context: true})
	}
	rate := func(keys int, row string) float64 { // NaN, which meets nothing, where it is not measured
		if r := f.find(keys, row); r != nil {
			return median(r.two.rate)
		}
		return math.NaN()
	}
	byTime := func(row string) float64 { // what both processors would do, were they all ours
		if r := f.find(judged, row); r != nil {
			return 2 / median(r.two.cpu)
		}
		return math.NaN()
	}
	ours, oursByTime := rate(judged, rowEdge), byTime(rowEdge)
	allocs := math.NaN()
	if r := f.find(judged, rowEdge); r != nil {
		allocs = r.allocs
	}
	demand(ours >= 10e6, "P1", "`edge.Check`, one rule, one rate, 1 M keys Zipf, 2 goroutines", "≥ 10 M/s", "%.1f M/s (by processor time %.1f)", ours/1e6, oursByTime/1e6)
	demand(allocs < 0.0005, "P1", "allocations of it (a key's first counts in new slices included)", "0", "%.3f", allocs)
	x := ours / rate(judged, rowGoLimiter)
	demand(x >= 2, "P1", "against sethvargo/go-limiter", "≥ 2 ×", ratio, x, oursByTime/byTime(rowGoLimiter))
	name, best := f.fastest()
	demand(ours/best >= 2, "P1", "against the fastest Go limiter of this run, "+name, "≥ 2 ×", ratio, ours/best, oursByTime/byTime(name))
	x = rate(judged, rowTable) / ours
	demand(x <= 2, "P1", "time of it, against a bare sharded table with one atomic add", "≤ 2 ×", ratio, x, byTime(rowTable)/oursByTime)
	show("P1", "against the same table with records of 16 bytes", ratio, rate(judged, rowPacked)/ours, byTime(rowPacked)/oursByTime)
	show("P1", "with time.Now each; with a clock refreshed every 0.5 ms", "%.1f M/s; %.1f M/s", rate(judged, rowEdgeNow)/1e6, rate(judged, rowEdgeClock)/1e6)
	show("P1", "all denied", "%.1f M/s", rate(judged, rowDenied)/1e6)

	x = ours / rate(judged, rowThree)
	demand(x <= 2, "P2", "time of three rates on a rule, against P1", "≤ 2 ×", ratio, x, oursByTime/byTime(rowThree))
	x = ours / rate(judged, rowTen)
	demand(x <= 1.5, "P2", "time of ten rules of which the last matches, against P1", "≤ 1.5 ×", ratio, x, oursByTime/byTime(rowTen))
	x = ours / rate(judged, rowBatch)
	demand(x <= 0.5, "P2", "batches of 64, per check, against P1", "≤ 0.5 ×", ratio, x, oursByTime/byTime(rowBatch))

	hot := rate(1, rowEdge)
	demand(hot >= 8e6, "P3", "one hot key, 2 goroutines", "≥ 8 M/s", "%.1f M/s", hot/1e6)

	if n := len(f.stalls); n > 0 {
		s := f.stalls[n-1]
		demand(s.p999 <= 50*time.Microsecond, "P4", "p99.9 of a decision while 64 KB frames are applied and 100 k keys retire", "≤ 50 µs", "%.1f µs", micros(s.p999))
	}
	demand(f.weight.sparse <= 100, "P7", "heap a live key, sparse", "≤ 100 B", "%.0f B", f.weight.sparse)
	demand(f.weight.hot <= 400, "P7", "heap a live key, hot: 40 slices of ours and of others, far from its limit", "≤ 400 B", "%.0f B", f.weight.hot)
	demand(f.weight.near <= 400, "P7", "the same at two fifths of its limit, where a share of what is left stands beside it", "≤ 400 B", "%.0f B", f.weight.near)

	low, high, most := f.growth()
	demand(high/low <= 3, "P11", fmt.Sprintf("decisions per second from 1 k to %s keys, fastest against slowest", count(most)), "≤ 3 ×", "%.2f × (%.1f to %.1f M/s)", high/low, low/1e6, high/1e6)
	return out
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// fastest is the fastest limiter that is not ours where P1 is judged.
func (f *findings) fastest() (name string, rate float64) {
	for _, t := range f.sizes {
		if t.keys != judged {
			continue
		}
		for _, r := range t.results {
			if x := median(r.two.rate); !r.cache && !r.small && r.name != rowEdge && x > rate {
				name, rate = r.name, x
			}
		}
	}
	return name, rate
}

// growth is the slowest and the fastest of the sizes from 1 k keys on.
func (f *findings) growth() (low, high float64, most int) {
	low, high = math.Inf(1), 0
	for _, t := range f.sizes {
		if t.keys < growing {
			continue
		}
		if r := f.find(t.keys, rowEdge); r != nil {
			x := median(r.two.rate)
			low, high, most = min(low, x), max(high, x), max(most, t.keys)
		}
	}
	if most <= growing {
		return math.NaN(), math.NaN(), most // nothing to compare
	}
	return low, high, most
}

// count writes a number of keys as people do.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%d M", n/1_000_000)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%d k", n/1000)
	}
	return fmt.Sprint(n)
}
