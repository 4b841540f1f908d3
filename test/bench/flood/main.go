// Command flood measures target P8: how an edge, or an aggregator and its Redis,
// with a budget of memory fares under a flood of keys.
//
//	go run ./test/bench/flood                  # 5 million keys a scenario, a minute or so
//	go run ./test/bench/flood -long            # 50 million
//	go run ./test/bench/flood -at aggregator   # and Redis; RESULTS-aggregator.md
//
// Each scenario runs in a process of its own, whose peak resident memory is
// what counts. It exits with 1 where a target is missed.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

func main() {
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "flood: %v\n", err)
		os.Exit(1)
	}
}

// options are how much is measured.
type options struct {
	keys     int
	budget   int64  // bytes
	out      string // file that the report goes to as well
	at       string // what is flooded: edge or aggregator
	scenario string // to run in this process; "": all, each in its own
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("flood", flag.ContinueOnError)
	flags.SetOutput(stderr)
	long := flags.Bool("long", false, "50 million keys in place of 5")
	flags.IntVar(&o.keys, "keys", 5_000_000, "distinct keys of the flood, or requests where a key makes several")
	megabytes := flags.Int64("budget", 256, "memory of the process, in MB")
	flags.StringVar(&o.out, "out", "", "file to write the report to; none: standard output alone")
	flags.StringVar(&o.at, "at", "edge", "what is flooded: edge, or aggregator")
	flags.StringVar(&o.scenario, "scenario", "", "one scenario, run in this process, told as JSON")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *long {
		o.keys = 50_000_000
	}
	o.budget = *megabytes << 20
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q: no arguments are expected", flags.Args())
	case o.keys < 1 || o.keys > 1<<30:
		return o, fmt.Errorf("-keys %d: want 1 to %d", o.keys, 1<<30)
	case o.at != "edge" && o.at != "aggregator":
		return o, fmt.Errorf("-at %q: want edge or aggregator", o.at)
	case *megabytes < 32 || *megabytes > 1<<20:
		return o, fmt.Errorf("-budget %d: want 32 to %d", *megabytes, 1<<20)
	}
	return o, nil
}

func run(args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.scenario != "" {
		return alone(o, stdout)
	}
	var report bytes.Buffer
	var missed []error
	if o.at == "aggregator" {
		var results []aftermath
		for _, s := range atAggregator {
			r, err := apart[aftermath](o, s.name, stderr)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			results, missed = append(results, r), append(missed, r.missed(o)...)
		}
		writeAftermath(&report, o, results, commit())
	} else {
		var results []result
		for _, s := range scenarios {
			r, err := apart[result](o, s.name, stderr)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			results, missed = append(results, r), append(missed, r.missed(o)...)
		}
		write(&report, o, results, commit())
	}
	if o.out != "" {
		if err := os.WriteFile(o.out, report.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	if _, err := stdout.Write(report.Bytes()); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return errors.Join(missed...)
}

// apart runs a scenario in a process of its own.
func apart[R any](o options, name string, stderr io.Writer) (r R, err error) {
	fmt.Fprintf(stderr, "%s …\n", name)
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.Command(self, "-scenario", name, "-keys", fmt.Sprint(o.keys), "-budget", fmt.Sprint(o.budget>>20))
	cmd.Stderr = stderr
	out, err := cmd.Output()
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(out, &r)
}

// alone runs a scenario here and tells what came of it.
func alone(o options, stdout io.Writer) error {
	runs := map[string]func(options) (any, error){}
	for _, s := range scenarios {
		runs[s.name] = func(o options) (any, error) { return s.run(o) }
	}
	for _, s := range atAggregator {
		runs[s.name] = func(o options) (any, error) { return s.run(o) }
	}
	if run := runs[o.scenario]; run != nil {
		r, err := run(o)
		if err != nil {
			return err
		}
		return json.NewEncoder(stdout).Encode(r)
	}
	return fmt.Errorf("-scenario %q: there is none of that name", o.scenario)
}

// commit is what the working tree was made from.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// write writes the report.
func write(w io.Writer, o options, results []result, commit string) {
	fmt.Fprintf(w, "# P8: a flood of keys\n\nWritten by `go run ./test/bench/flood -keys %d -budget %d` at commit %s, %s, GOMAXPROCS %d: so many requests, of as many distinct keys where it does not say else, half IPv4, half IPv6, through an edge of a process with so many MB (GOMEMLIMIT, of which Config.MaxBytes is seven eighths), at a million a second of virtual time, windows of ten minutes, no view. Times are context: the machine is shared.\n\n",
		o.keys, o.budget>>20, commit, runtime.Version(), runtime.GOMAXPROCS(0))
	fmt.Fprintf(w, "| | target | %s |\n|---|---|%s\n", names(results), strings.Repeat("---|", len(results)))
	row := func(what, target string, cell func(result) string) {
		fmt.Fprintf(w, "| %s | %s |", what, target)
		for _, r := range results {
			fmt.Fprintf(w, " %s |", cell(r))
		}
		fmt.Fprintln(w)
	}
	row("peak resident memory, MB", fmt.Sprintf("≤ %d", o.budget*11/10>>20), func(r result) string { return fmt.Sprint(r.Peak >> 20) })
	row("keys at 80 to 100 % of their limit that stayed limited", "all", func(r result) string { return fmt.Sprintf("%d of %d", r.Limited-r.Freed, r.Limited) })
	row("other keys wrongly denied", "≤ 1 %", func(r result) string {
		return fmt.Sprintf("%.3f %% (%d of %d)", 100*float64(r.Wrong)/float64(r.Others), r.Wrong, r.Others)
	})
	row("regular clients' requests wrongly denied", "≤ 1 %", func(r result) string {
		return fmt.Sprintf("%.3f %% (%d of %d)", 100*float64(r.RegularWrong)/float64(max(1, r.Regular)), r.RegularWrong, r.Regular)
	})
	row("a key at 40 % wins, of its limit", "stated", func(r result) string {
		if r.Low == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f %% on average, %.0f %% at the most", 100*r.Won, 100*r.WonMost)
	})
	row("live keys at the end", "", func(r result) string { return fmt.Sprint(r.Live) })
	row("blocked keys: exact; in the filter; lost", "", func(r result) string {
		return fmt.Sprintf("%d; %d; %d", r.BlockedExact, r.BlockedFilter, r.BlockedLost)
	})
	row("heap in use after a collection, MB", "", func(r result) string { return fmt.Sprint(r.Heap >> 20) })
	row("time of a decision, µs", "", func(r result) string { return fmt.Sprintf("%.2f", r.Micros) })
}

func names(results []result) string {
	var s []string
	for _, r := range results {
		s = append(s, r.Name)
	}
	return strings.Join(s, " | ")
}
