package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
)

// writeAftermath writes the report of what became of an aggregator.
func writeAftermath(w io.Writer, o options, results []aftermath, commit string) {
	fmt.Fprintf(w, "# P8: a flood of keys at the aggregator and Redis\n\nWritten by `go run ./test/bench/flood -at aggregator -keys %d -budget %d` at commit %s, %s, GOMAXPROCS %d: so many distinct keys, told by %d edges in frames of %d, to an aggregator of %d lanes and two peers in a process with so many MB (GOMEMLIMIT, of which Config.MaxBytes is three quarters), at a million a second of virtual time; limits of %d in ten minutes. Before the flood an edge told of keys at 80 to 100 %%, at 40 %% and at 20 %%; after it one that knows nothing asks. The store is one in memory that keeps what came before the flood; for redis it is a redis-server as in deploy/redis, but of a tenth of the budget, and there the flood is a tenth, too. Times are context: the machine is shared.\n\n",
		o.keys, o.budget>>20, commit, runtime.Version(), runtime.GOMAXPROCS(0), flooders, frameKeys, lanes, limitOf)
	var names []string
	for _, r := range results {
		names = append(names, r.Name)
	}
	fmt.Fprintf(w, "| | target | %s |\n|---|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(results)))
	row := func(what, target string, cell func(aftermath) string) {
		fmt.Fprintf(w, "| %s | %s |", what, target)
		for _, r := range results {
			fmt.Fprintf(w, " %s |", cell(r))
		}
		fmt.Fprintln(w)
	}
	of := func(n, all int) string { return fmt.Sprintf("%d of %d", n, all) }
	redis := func(cell func(s *shedding) string) func(aftermath) string {
		return func(r aftermath) string {
			if r.Redis == nil {
				return "–"
			}
			return cell(r.Redis)
		}
	}
	row("peak resident memory, MB", fmt.Sprintf("≤ %d", o.budget*11/10>>20), func(r aftermath) string { return fmt.Sprint(r.Peak >> 20) })
	row("keys at 80 to 100 % of their limit that stayed limited", "all", func(r aftermath) string { return of(r.Limited-r.Freed, r.Limited) })
	row("those that got there during the flood", "", func(r aftermath) string { return of(r.Late-r.LateFreed, r.Late) })
	row("other keys of which something was told that nobody used", "≤ 1 %", func(r aftermath) string { return of(r.Wrong, r.Told) })
	row("a key at 40 % wins, of its limit", "stated", func(r aftermath) string { return fmt.Sprintf("%.1f %%", 100*r.Mid) })
	row("a key at 20 % wins, of its limit", "stated", func(r aftermath) string { return fmt.Sprintf("%.1f %%", 100*r.Low) })
	row("keys of the flood turned away, to be told again", "", func(r aftermath) string { return fmt.Sprintf("%.1f %%", 100*float64(r.Refused)/float64(r.Told)) })
	row("keys forgotten: stored; not yet exported; not stored", "", func(r aftermath) string { return fmt.Sprintf("%d; %d; %d", r.Evicted, r.Unexported, r.Alone) })
	row("keys held at the end, and MB that they are counted as", "", func(r aftermath) string { return fmt.Sprintf("%d, %d", r.Keys, r.Bytes>>20) })
	row("heap in use after a collection, MB", "", func(r aftermath) string { return fmt.Sprint(r.Heap >> 20) })
	row("time of a key, µs", "", func(r aftermath) string { return fmt.Sprintf("%.2f", r.Micros) })
	row("Redis: peak memory and maxmemory, MB", "≤ 110 %", redis(func(s *shedding) string { return fmt.Sprintf("%d of %d", s.Peak>>20, s.Max>>20) }))
	row("Redis: names shed, and left", "", redis(func(s *shedding) string { return fmt.Sprintf("%d, %d", s.Shed, s.KeysInRedis) }))
	row("Redis: the epoch stayed", "yes", redis(func(s *shedding) string { return fmt.Sprint(s.EpochKept) }))
	row("Redis: limited keys that it shed; back after a refresh", "", redis(func(s *shedding) string { return fmt.Sprintf("%d; %d", s.Gone, s.Back) }))
}
