package main

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// targets hold what a call costs against what another does.
var targets = []struct {
	id         string
	name, than string
	most       float64
}{
	{"P5", "spillgate", "empty handler", 1.2},
	{"P5", "spillgate, ten descriptors", "spillgate", 1.5},
	{"P5", "spillgate and all behind it", "envoyproxy/ratelimit and its Redis", .2},
	{"P6", "spillgate /v1/check", "empty page", 1.3},
	{"P6", "spillgate /v1/auth", "empty page, without a body", 1.3},
}

// report writes what was measured, and returns how many targets are missed.
func (f *field) report(w io.Writer, args []string, took time.Duration) (missed int) {
	command := strings.TrimSpace("go run ./test/bench/wire " + strings.Join(args, " "))
	fmt.Fprintf(w, "# What a call costs a server\n\nWritten by `%s` at commit %s, %s, GOMAXPROCS %d, in %v.", command, commit(), runtime.Version(), runtime.GOMAXPROCS(0), took.Round(time.Second))
	fmt.Fprintf(w, " Processor time of a server for a call, median of rounds; %d calls at a time over loopback, of %d users whom a rule each of a huge limit a minute is for.", inFlight, users)
	fmt.Fprint(w, " The client takes as much as it likes of the same processors, so that calls a second are context.")
	if f.version != "" {
		fmt.Fprintf(w, " envoyproxy/ratelimit is %s.", f.version)
	}
	fmt.Fprint(w, "\n\n| # | what | target | measured | |\n|---|---|---|---|---|\n")
	of := map[string]float64{}
	for i := range f.contestants {
		of[f.contestants[i].name] = median(f.contestants[i].costs)
	}
	for _, t := range targets {
		cost, other := of[t.name], of[t.than]
		if cost == 0 || other == 0 {
			continue // not measured
		}
		verdict := "met"
		if cost/other > t.most {
			verdict = "**missed**"
			missed++
		}
		fmt.Fprintf(w, "| %s | %s, against %s | ≤ %.1f × | %.2f × | %s |\n", t.id, t.name, t.than, t.most, cost/other, verdict)
	}
	fmt.Fprint(w, "\n| | processor time a call, µs | calls a second |\n|---|---|---|\n")
	for i := range f.contestants {
		c := &f.contestants[i]
		fmt.Fprintf(w, "| %s | %.1f | %.0f |\n", c.name, median(c.costs), median(c.rates))
	}
	return missed
}

// commit is that of the checkout, "+" where something in it is changed.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty=+", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
