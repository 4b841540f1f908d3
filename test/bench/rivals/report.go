package main

import (
	"fmt"
	"io"
	"time"
)

// beside says where the services stand that are no Go library, which readers look for here.
const beside = "What a whole call costs a server, beside envoyproxy/ratelimit and its Redis, gubernator, and a handler that decides nothing, is in [WIRE.md](WIRE.md)."

// write prints the findings as Markdown.
func (f *findings) write(w io.Writer, about surroundings, o options) {
	fmt.Fprintf(w, "# Benchmarks: edge.Check beside other Go limiters\n\n")
	fmt.Fprintf(w, "Written by `%s`, which tells in its package comment how it measures. Shared machines are noisy: ratios within a run count, absolute figures are context. A missed target stays here until it is met.\n\n", about.command)
	fmt.Fprintf(w, "%s\n\n", beside)
	fmt.Fprintf(w, "- machine: %s\n- commit: %s; %s\n- %s, took %v; load average %s before, %s after; with two goroutines the harness alone got %.2f processors\n- Zipf s = %g over shuffled ranks, %d requests drawn; medians of %d rounds of %v, contestants in turn\n\n",
		about.machine, about.commit, about.goVersion, about.started.UTC().Format(time.DateTime+" UTC"), f.took.Round(time.Second), about.loadBefore, about.loadAfter, f.processors(),
		o.exponent, o.draws, o.rounds, o.round)
	f.writeTargets(w)
	f.writeParts(w)
	f.writeSpeed(w)
	f.writeStalls(w)
	f.writeWeights(w)
}

func (f *findings) writeTargets(w io.Writer) {
	fmt.Fprintf(w, "## Targets\n\n| # | what | target | measured | |\n|---|---|---|---|---|\n")
	for _, v := range f.judge() {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", v.id, v.what, v.target, v.measured, v.outcome())
	}
	fmt.Fprintf(w, "\n")
}

// writeParts says what keeps P1 from its targets: the parts of a check, in
// processor time, as far as rows of the run tell them apart.
func (f *findings) writeParts(w io.Writer) {
	harness, check, warm := f.find(judged, rowEmpty), f.find(judged, rowEdge), f.find(growing, rowEdge)
	table, warmTable, peer := f.find(judged, rowTable), f.find(growing, rowTable), f.find(judged, rowGoLimiter)
	for _, r := range []*result{harness, check, warm, table, warmTable, peer} {
		if r == nil {
			return
		}
	}
	ns := func(r *result) float64 { return 1e9 * median(r.two.cpu) }
	miss := ns(table) - ns(warmTable)
	fmt.Fprintf(w, "## Where the time of P1 goes\n\n| part of a check, 1 M keys, 2 goroutines | processor time, ns |\n|---|---|\n")
	for _, part := range []struct {
		what string
		ns   float64
	}{
		{"the harness", ns(harness)},
		{"the check where nothing misses the cache (1 k keys)", ns(warm) - ns(harness)},
		{"the miss of a record (the bare table, 1 M against 1 k keys)", miss},
		{"the rest: further places of a fuller table, and folds with what lies apart for them", ns(check) - ns(warm) - miss},
	} {
		fmt.Fprintf(w, "| %s | %.0f |\n", part.what, part.ns)
	}
	fmt.Fprintf(w, "\n10 M/s on two processors is 200 ns a check, twice go-limiter is %.0f ns; the first three parts alone are %.0f ns. A finer split stands in the package comment of test/bench/rivals.\n\n",
		ns(peer)/2, ns(warm)+miss)
}

func (f *findings) writeSpeed(w io.Writer) {
	fmt.Fprintf(w, "## Side by side\n\nTime of a call as each goroutine sees it, and calls per second over all goroutines; ± is the distance of the quartiles as a share of the median; CPU is processor time per call of both goroutines. The edge builds its request each time, keeps 40 sub-windows and a window of history behind each key; unless it says otherwise it takes the time as an argument, as do the rows of x/time/rate. The bytes a key are what building added to the heap, the key strings themselves not counted; the edge's rows have a window of counts in them.\n")
	for _, t := range f.sizes {
		fmt.Fprintf(w, "\n### %s %s\n\n| | 1 goroutine, ns | M/s | ± | 2 goroutines, ns | M/s | ± | CPU, ns | allocations | B a key |\n|---|---|---|---|---|---|---|---|---|---|\n", count(t.keys), plural(t.keys, "key"))
		for _, r := range t.results {
			one, two := median(r.one.rate), median(r.two.rate)
			heap := "–"
			if t.keys >= 10_000 && r.name != rowEmpty {
				heap = fmt.Sprintf("%d", r.heap/int64(t.keys))
			}
			fmt.Fprintf(w, "| %s | %.0f | %.1f | %.0f %% | %.0f | %.1f | %.0f %% | %.0f | %.2f | %s |\n", r.name,
				1e9/one, one/1e6, 100*r.one.spread(), 2e9/two, two/1e6, 100*r.two.spread(), 1e9*median(r.two.cpu), r.allocs, heap)
		}
		if t.keys > large {
			fmt.Fprintf(w, "\nNot all fit into memory together: they ran a few at a time, so rows far apart compare less well.\n")
		}
	}
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func (f *findings) writeStalls(w io.Writer) {
	fmt.Fprintf(w, "\n## Decisions while the edge does something else\n\nOne goroutine decides and times each decision (two readings of the clock included), the other works. Only decisions that fell into that work count.\n\n| the other | decisions | p50, µs | p99 | p99.9 | longest | work |\n|---|---|---|---|---|---|---|\n")
	for _, s := range f.stalls {
		fmt.Fprintf(w, "| %s | %d | %.1f | %.1f | %.1f | %.0f | %s |\n", s.what, s.decisions, micros(s.p50), micros(s.p99), micros(s.p999), micros(s.max), s.work)
	}
}

func (f *findings) writeWeights(w io.Writer) {
	fmt.Fprintf(w, "\n## Memory\n\n%d keys, which fills the tables as far as 1,000,000 do: %.0f B a key with one count, %.0f B with counts of ours and of others in 40 slices far from the limit, %.0f B at two fifths of it; everything the node holds, a small outbox included.\n", f.weight.keys, f.weight.sparse, f.weight.hot, f.weight.near)
}

// processors is how many of two processors the run really had.
func (f *findings) processors() float64 {
	var rate, cpu []float64
	for _, t := range f.sizes {
		if r := f.find(t.keys, rowEmpty); r != nil {
			rate = append(rate, r.two.rate...)
			cpu = append(cpu, r.two.cpu...)
		}
	}
	had := make([]float64, len(rate))
	for i := range had {
		had[i] = rate[i] * cpu[i]
	}
	return median(had)
}
