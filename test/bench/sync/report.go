package main

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// findings are all that one run measured.
type findings struct {
	traffic   traffic
	loose     traffic // the same of loose limits
	edge      []edgeCost
	handlings []handling
	writings  []writing
}

// target is a row of the report.
type target struct {
	id, what, wanted, measured string
	met                        bool
}

func (f *findings) targets() (out []target) {
	most := func(id, what string, got, want float64, unit string) {
		out = append(out, target{id, what, fmt.Sprintf("≤ %g%s", want, unit), fmt.Sprintf("%.3g%s", got, unit), got <= want})
	}
	least := func(id, what string, got, want float64) {
		out = append(out, target{id, what, "≥ " + thousands(want), thousands(got), got >= want})
	}
	t := f.traffic
	keys := float64(t.keys)
	most("P9", "bytes up for a changed key, beside heads of frames", float64(t.up-t.heads)/keys, 12, " B")
	most("P9", "bytes down for a changed key, heads of replies included", float64(t.down)/keys, 40, " B")
	most("P9", fmt.Sprintf("bytes down for a hot one: others had counts in %d slices or more, in the region and outside", hotFrom), float64(t.hotDown)/float64(t.hotKeys), 90, " B")
	for _, e := range f.edge {
		if e.slices == judged {
			most("P9", fmt.Sprintf("processor of an edge for a changed key: drained, encoded, and the reply with %d slices decoded and applied", e.slices), e.flush+e.receive, 300, " ns")
		}
	}
	one, five := f.handling(2, 1), f.handling(2, 5)
	least("P10", "merges a second and core, store in memory: frames of one slice a key, from decoding to the encoded reply", one.merges(), 300e3)
	least("P10", "flushes of 5 slices a second and core, likewise", five.flushes(), 80e3)
	write := f.writing(1, 5)
	least("P10", "merges a second and core of Redis, 5 slices a write", write.merges(), 400e3)
	least("P10", "flushes of 5 slices a second and core of Redis", write.flushes(), 80e3)
	alone, crowd := f.handling(1, 1), f.handling(100, 1)
	most("P11", "processor of an aggregator for a flush, 100 edges against 1: the whole is linear where this is flat", crowd.perFlush/alone.perFlush, 1.5, " ×")
	few, many := f.writing(1, 1), f.writing(reporters, 1)
	most("P11", fmt.Sprintf("processor of Redis for a write of a key, %d reporters of it against 1", reporters), many.redis/few.redis, 1.5, " ×")
	return out
}

func (f *findings) handling(edges, slices int) handling {
	for _, h := range f.handlings {
		if h.edges == edges && h.slices == slices {
			return h
		}
	}
	panic(fmt.Sprintf("not measured: %d edges, %d slices", edges, slices))
}

func (f *findings) writing(reporters, slices int) writing {
	for _, w := range f.writings {
		if w.reporters == reporters && w.slices == slices {
			return w
		}
	}
	panic(fmt.Sprintf("not measured: %d reporters, %d slices", reporters, slices))
}

func (f *findings) missed() (n int) {
	for _, t := range f.targets() {
		if !t.met {
			n++
		}
	}
	return n
}

func thousands(x float64) string { return fmt.Sprintf("%.0f k", x/1000) }

func (f *findings) write(w io.Writer, args []string) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format, args...) }
	p("# What telling costs: P9, P10 and the second half of P11\n\n")
	p("Written by `go run ./test/bench/sync %s` at commit %s, %s, GOMAXPROCS %d, %s. Processor time, not the clock's; shared machines are noisy, and ratios within a run count. A missed target stays here until it is met.\n\n",
		strings.Join(args, " "), commit(), runtime.Version(), runtime.GOMAXPROCS(0), time.Now().UTC().Format(time.DateTime))
	p("| # | what | target | measured | |\n|---|---|---|---|---|\n")
	for _, t := range f.targets() {
		verdict := "met"
		if !t.met {
			verdict = "**missed**"
		}
		p("| %s | %s | %s | %s | %s |\n", t.id, t.what, t.wanted, t.measured, verdict)
	}
	t, loose := f.traffic, f.loose
	each := func(n, of int) float64 { return float64(n) / float64(max(of, 1)) }
	p("\n## On the wire\n\n%d regions of %d edges in the simulator, %d requests a second at each edge, 600 a minute in 40 slices for each of %d keys (Zipf, %.1f), %d lanes: %d frames of edges with %.1f keys each; with heads of frames %.1f B up and %.1f B down for each. With pushes and what regions tell each other, all bytes are %.0f for each. Limits are adaptive, the default. Of loose ones, which tell no demand and have no shares, it is %.1f B up beside heads, %.1f B down, %.1f for a hot one, and %.0f in all.\n",
		regionsOf, edgesOf, perEdge, keysOf, skew, lanesOf, t.frames, float64(t.keys)/float64(t.frames), float64(t.up)/float64(t.keys), float64(t.down)/float64(t.keys), float64(t.all)/float64(t.keys),
		each(loose.up-loose.heads, loose.keys), each(loose.down, loose.keys), each(loose.hotDown, loose.hotKeys), float64(loose.all)/float64(max(loose.keys, 1)))
	x := t.parts
	p("\n%.0f %% of these keys are told again against loss, changed or not, with %.1f slices each, and %.0f %% are only asked about: the rest has changed. Beside heads of frames a key takes %.1f B for its name, %.1f for what is asked for of it, %.1f for slices and counts, with the slice that they are relative to, %.1f for flags and %.1f for when it was heard of.\n",
		100*each(t.again, t.keys), each(t.againCells, t.again), 100*each(t.asked, t.keys), each(x.names, x.looked), each(x.demand, x.looked), each(x.cells, x.looked), each(x.flags, x.looked), each(x.heard, x.looked))
	p("\nThe least that a frame of n keys can take beside its head is n × (8 of the key + 1 of a charge + 1 of heard), and 15 B of what stands once: the slice that all are relative to (6), and tag and length of the columns (9). With n = %.1f these are %.1f B a key. A byte a key each, and 2 a frame, come with the first delta in a frame that is urgent or a refresh (flags), that has more than one slice, or none (counts), or another than the first (slices). Under 12 B a key a frame has to be of 8 keys or more that are told alike. A form that aggregators of today would not understand, in which one byte a key said which of flags, number of slices, slice and heard are as those of the key before, and the first slice stood relative to when the frame was sent, would take %.1f B here: 8 of the key and that one, a byte for each charge, one for each slice of what is told again, and 4 once; and more where heard differs. So it is not made. Names of less than 8 B, which an aggregator had given out before, would do it, and would have to be forgotten by both in the same instant.\n",
		each(t.keys, t.frames), least(each(t.keys, t.frames)), t.dense())
	p("\n## At an edge and its aggregator, ns of processor for each key that changed\n\n| slices that others have counts in | edge: drain and encode | edge: decode and apply | aggregator: decode, merge, store, reply |\n|---|---|---|---|\n")
	for _, e := range f.edge {
		p("| %d | %.0f | %.0f | %.0f |\n", e.slices, e.flush, e.receive, e.handle)
	}
	p("\nOf what an edge spends in BenchmarkExchange (./edge), whose memory is near (199 ns with 5 slices, at commit c723088), its profile says: some 50 ns to take a key's counts out of the ledger, 45 to put them into the frame, 35 to look what waits and to write the frame, 10 to read the reply and 55 to join it. What is more here is memory: a record, its block and the slices in it lie apart, and the aggregator, which works in between, has had the cache.\n")
	p("\n## At the aggregator, store in memory\n\n| edges that count a key | slices in a flush | ns a flush | flushes/s | merges/s | bytes of reply |\n|---|---|---|---|---|---|\n")
	for _, h := range f.handlings {
		p("| %d | %d | %.0f | %s | %s | %.1f |\n", h.edges, h.slices, h.perFlush, thousands(h.flushes()), thousands(h.merges()), h.bytes)
	}
	p("\n## In Redis, %d keys a call\n\n| edges with counts of a key | slices in a write | ns of Redis a key | ns of ours | flushes/s | merges/s |\n|---|---|---|---|---|---|\n", together)
	for _, x := range f.writings {
		p("| %d | %d | %.0f | %.0f | %s | %s |\n", x.reporters, x.slices, x.redis, x.ours, thousands(x.flushes()), thousands(x.merges()))
	}
}

// least is what each of so many keys of a frame takes at least, beside its head.
func least(keys float64) float64 { return 8 + 1 + 1 + (6+9)/max(keys, 1) }

// dense is what a key would take at least in a form with a byte for what is alike.
func (t *traffic) dense() float64 {
	charges := t.againCells + t.keys - t.again - t.asked
	return 8 + 1 + (float64(charges+t.againCells)+4*float64(t.frames))/float64(max(t.keys, 1))
}

// commit is the one that is checked out, and whether something was changed.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
