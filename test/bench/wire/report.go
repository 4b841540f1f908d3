package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
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
	{"P5", "spillgate, 4 descriptors", "empty handler, 4 descriptors", 1.2},
	{"P5", "spillgate, 10 descriptors", "spillgate", 1.5},
	{"P5", withAll, "envoyproxy/ratelimit and its Redis", .2},
	{"P5", withAll, "gubernator", .2},
	{"P6", "spillgate /v1/check", "empty page", 1.3},
	{"P6", "spillgate /v1/auth", "empty page, without a body", 1.3},
}

// flat is what memory may grow by in the last two thirds of a sustained load.
const flat = 1.1

// idle is a load average of a machine on which hardly anything runs.
const idle = .5

// surroundings are where, when and how a report was made.
type surroundings struct {
	command       string
	options       options
	machine       string
	began         time.Time
	before, after string // load averages
}

func look(args []string, o options) surroundings {
	words := []string{"go run ./test/bench -wire"}
	for i := 0; i < len(args); i++ {
		switch name := strings.TrimLeft(args[i], "-"); {
		case name == "out":
			i++
		case !strings.HasPrefix(name, "out="):
			words = append(words, args[i])
		}
	}
	return surroundings{command: strings.Join(words, " "), options: o, machine: machine(), began: time.Now(), before: loadAverage()}
}

// machine is its processor, and how many of it there are.
func machine() string {
	name := "unknown"
	text, _ := os.ReadFile("/proc/cpuinfo") // where it cannot be read, it is unknown
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			name = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%s, %d processors, %s/%s", name, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}

// loadAverage is that of the last minute.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return cmp.Or(first, "unknown")
}

// commit is that of the checkout, "+" where something in it is changed.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty=+", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// report writes what was measured, and returns how many targets are missed.
func (f *field) report(w io.Writer, about surroundings) (missed int) {
	o := about.options
	fmt.Fprint(w, "# What a call costs a server\n\n")
	fmt.Fprintf(w, "Written by `%s`, which tells in the package comment of test/bench/wire how it measures. Ratios within a run count, absolute figures are context: clients take as much as they like of the same processors. A missed target stays here until it is met.\n\n", about.command)
	fmt.Fprintf(w, "- machine: %s\n- commit: %s; %s\n- %s, took %v; load average %s before, %s after\n", about.machine, commit(), runtime.Version(),
		about.began.UTC().Format(time.DateTime+" UTC"), time.Since(about.began).Round(time.Second), about.before, about.after)
	fmt.Fprintf(w, "- %d rounds of %v each, then %v of a load by ghz or h2load; %d calls at a time over loopback, of %d users (ghz: of %d messages, h2load: of one user) whom a rule each of a huge limit a minute is for\n", o.rounds, o.lasts, o.sustained, inFlight, users, bodies)
	if beside, err := strconv.ParseFloat(about.before, 64); err == nil && beside > idle {
		fmt.Fprint(w, "- **others worked on this machine meanwhile**, as the load average before tells: to be measured again where it is quiet\n")
	}
	for _, n := range f.notes {
		fmt.Fprintf(w, "- %s\n", n)
	}
	fmt.Fprint(w, "\n## Targets\n\n| # | what | target | measured | |\n|---|---|---|---|---|\n")
	missed = f.judge(w)
	fmt.Fprint(w, "\n## Our own calls, in turns\n\nProcessor time of the server for a call, and what the callers saw.\n\n| | processor time, µs | calls a second | p50 | p99 | longest |\n|---|---|---|---|---|---|\n")
	for _, c := range f.contestants {
		if len(c.costs) == 0 {
			fmt.Fprintf(w, "| %s | failed: %s | | | | |\n", c.name, oneLine(c.failed))
			continue
		}
		fmt.Fprintf(w, "| %s | %.1f | %.0f | %v | %v | %v |\n", c.name, median(c.costs), median(c.rates), short(c.latency.Quantile(.5)), short(c.latency.Quantile(.99)), short(c.latency.Max()))
	}
	f.sustainedTable(w)
	return missed
}

// judge writes the verdicts, and says how many are bad.
func (f *field) judge(w io.Writer) (missed int) {
	verdict := func(met bool) string {
		if met {
			return "met"
		}
		missed++
		return "**missed**"
	}
	of := map[string]float64{}
	for _, c := range f.contestants {
		if len(c.costs) > 0 {
			of[c.name] = median(c.costs)
		}
		if ours := strings.HasPrefix(c.name, "spillgate"); ours && c.failed != nil {
			fmt.Fprintf(w, "| | %s | answers | %s | %s |\n", c.name, oneLine(c.failed), verdict(false))
		}
	}
	for _, t := range targets {
		cost, other := of[t.name], of[t.than]
		if cost == 0 || other == 0 {
			continue // not measured
		}
		fmt.Fprintf(w, "| %s | %s, against %s | ≤ %.1f × | %.2f × | %s |\n", t.id, t.name, t.than, t.most, cost/other, verdict(cost/other <= t.most))
	}
	for _, c := range f.contestants {
		l := c.lasting
		if l == nil || !strings.HasPrefix(c.name, "spillgate") {
			continue
		}
		grown := float64(l.end) / float64(l.settled)
		fmt.Fprintf(w, "| | %s, %v of %s: errors; memory at the end against after a third | none; ≤ %.1f × | %s; %.2f × | %s |\n",
			c.name, l.lasted, l.tool, flat, cmp.Or(l.errors, "none"), grown, verdict(l.errors == "" && grown <= flat))
	}
	return missed
}

func (f *field) sustainedTable(w io.Writer) {
	begun := false
	for _, c := range f.contestants {
		l := c.lasting
		if l == nil && (c.failed == nil || len(c.costs) == 0) {
			continue
		}
		if !begun {
			begun = true
			fmt.Fprint(w, "\n## A sustained load by others' clients\n\nMemory is what is resident of the server, its Redis included: before, after a third, at the end.\n\n| | by | processor time, µs | calls a second | latency | errors | memory, MB |\n|---|---|---|---|---|---|---|\n")
		}
		if l == nil {
			fmt.Fprintf(w, "| %s | failed: %s | | | | | |\n", c.name, oneLine(c.failed))
			continue
		}
		fmt.Fprintf(w, "| %s | %s | %.1f | %.0f | %s | %s | %d, %d, %d |\n", c.name, l.tool, l.cost, l.rate, l.latency, cmp.Or(l.errors, "none"), l.before>>20, l.settled>>20, l.end>>20)
	}
}

// short is d as it is read.
func short(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// oneLine is an error for a cell of a table.
func oneLine(err error) string {
	if err == nil {
		return "not measured"
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.ReplaceAll(line, "|", "/")
}
