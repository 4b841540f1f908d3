// Command sync measures targets P9, P10 and the second half of P11: what telling
// others of a count costs on the wire, at the edge, at the aggregator and in
// Redis.
//
//	go run ./test/bench/sync                                      # a minute or so
//	go run ./test/bench/sync -out test/bench/sync/RESULTS.md      # and keep it
//
// Each figure is the median of rounds in which all that is compared takes turns.
// Of Redis its own processor time counts (INFO cpu), of the rest that of this
// process, the garbage collector's included. It exits with 1 where a target is
// missed.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"
)

func main() {
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "sync: %v\n", err)
		os.Exit(1)
	}
}

// options are how much is measured.
type options struct {
	rounds int
	keys   int           // in a round of edge, aggregator and Redis
	lasts  time.Duration // virtual time of the regions whose bytes are counted
	out    string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("sync", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 9, "rounds of each measurement")
	flags.IntVar(&o.keys, "keys", 4096, "keys in a round")
	flags.DurationVar(&o.lasts, "lasts", 30*time.Second, "virtual time for which bytes are counted")
	flags.StringVar(&o.out, "out", "", "file to write the report to; none: standard output alone")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q: no arguments are expected", flags.Args())
	case o.rounds < 3 || o.rounds > 1000:
		return o, fmt.Errorf("-rounds %d: want 3 to 1000, or a median says nothing", o.rounds)
	case o.keys < reporters || o.keys > 1<<20:
		return o, fmt.Errorf("-keys %d: want %d to %d", o.keys, reporters, 1<<20)
	case o.lasts < time.Second || o.lasts > time.Hour:
		return o, fmt.Errorf("-lasts %v: want 1s to 1h", o.lasts)
	}
	return o, nil
}

func run(args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	var f findings
	for _, part := range []struct {
		name    string
		measure func(options, *findings) error
	}{{"bytes", measureBytes}, {"edge", measureEdge}, {"aggregator", measureAggregator}, {"Redis", measureRedis}} {
		fmt.Fprintf(stderr, "measuring: %s\n", part.name)
		if err := part.measure(o, &f); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	var report bytes.Buffer
	f.write(&report, args)
	if o.out != "" {
		if err := os.WriteFile(o.out, report.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	if _, err := stdout.Write(report.Bytes()); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if missed := f.missed(); missed > 0 {
		return fmt.Errorf("%d targets are missed: see the report", missed)
	}
	return nil
}

// processor is what this process has used of processors.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot fail for oneself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// median of figures that were measured one after the other.
func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
