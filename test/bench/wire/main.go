// Command wire measures targets P5 and P6: what a call costs the server that answers
// it, over gRPC and over HTTP, beside handlers that do nothing, and beside
// envoyproxy/ratelimit and gubernator.
//
//	go run ./test/bench -wire                              # half an hour; writes test/bench/WIRE.md
//	go run ./test/bench -wire -sustained 0 -out /dev/null  # five minutes, and nothing is kept
//
// All that is compared takes turns, in processes of their own, Redis included. First we
// call each in rounds, 32 calls at a time: a figure is the median over rounds of the
// processor time that a server took for a call. Then a client of others makes a load at
// each for as long as -sustained says, as fast as 32 callers are answered: ghz over gRPC,
// h2load over HTTP. That checks our own figures, and shows errors and memory over time.
//
// The rivals and ghz are installed by go install, into a directory that goes when this
// ends; h2load is Debian's nghttp2-client. What cannot be had is said, and left out. It
// exits with 1 where a target is missed.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spillgate/spillgate/test/bench/latency"
)

func main() {
	if addr := os.Getenv(emptyGRPC); addr != "" {
		serveEmptyGRPC(addr)
		return
	}
	if addr := os.Getenv(emptyHTTP); addr != "" {
		serveEmptyHTTP(addr)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "wire: %v\n", err)
		os.Exit(1)
	}
}

// options are how much is measured.
type options struct {
	rounds    int
	lasts     time.Duration
	sustained time.Duration
	rivals    bool
	out       string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("wire", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 7, "rounds of each measurement")
	flags.DurationVar(&o.lasts, "lasts", 2*time.Second, "how long each is called in a round")
	flags.DurationVar(&o.sustained, "sustained", time.Minute, "how long ghz or h2load calls each after that, in whole seconds; 0: not at all")
	flags.BoolVar(&o.rivals, "rivals", true, "measure envoyproxy/ratelimit and gubernator too, which go install fetches")
	flags.StringVar(&o.out, "out", "", "file to write the report to beside standard output; go run ./test/bench -wire names WIRE.md, unless told otherwise")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q: no arguments are expected", flags.Args())
	case o.rounds < 1 || o.rounds > 1000:
		return o, fmt.Errorf("-rounds %d: want 1 to 1000", o.rounds)
	case o.lasts < 100*time.Millisecond || o.lasts > time.Minute:
		return o, fmt.Errorf("-lasts %v: want 100ms to 1m: processor time is told in hundredths of a second", o.lasts)
	case o.sustained < 0 || o.sustained > time.Hour || o.sustained%time.Second != 0:
		return o, fmt.Errorf("-sustained %v: want 0s to 1h, in whole seconds", o.sustained)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	about := look(args, o)
	fmt.Fprintln(stderr, "starting servers")
	f, err := newField(ctx, o)
	if err != nil {
		return err
	}
	defer f.stop()
	for round := range o.rounds {
		fmt.Fprintf(stderr, "round %d of %d\n", round+1, o.rounds)
		for i := range f.contestants {
			c := f.contestants[(i+round)%len(f.contestants)] // none is always the first
			if err := c.attempt(ctx, func() error { return c.measure(ctx, o.lasts) }); err != nil {
				return err
			}
		}
	}
	for _, c := range f.contestants {
		if o.sustained == 0 || c.alone {
			continue
		}
		fmt.Fprintf(stderr, "%v of load: %s\n", o.sustained, c.name)
		if err := c.attempt(ctx, func() error { return f.sustain(ctx, c, o.sustained) }); err != nil {
			return err
		}
	}
	about.after = loadAverage()
	var b bytes.Buffer
	missed := f.report(&b, about)
	if _, err := stdout.Write(b.Bytes()); err != nil {
		return err
	}
	if o.out != "" {
		if err := os.WriteFile(o.out, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d targets are missed", missed)
	}
	return nil
}

// contestant is a server, or one way of calling it, and what it took so far.
type contestant struct {
	name    string
	pids    []int // whose processor time counts
	way     way
	alone   bool      // only the rounds are its: it is another's in all but what is counted
	costs   []float64 // of a call, in microseconds, by round
	rates   []float64 // calls a second
	latency *latency.Histogram
	lasting *lasting // nil: there was none
	failed  error    // what ended its part
}

// attempt does something with a contestant that has not failed yet. What fails ends its
// part alone, and is reported; only the end of ctx ends all.
func (c *contestant) attempt(ctx context.Context, do func() error) error {
	if c.failed == nil {
		c.failed = do()
	}
	return ctx.Err()
}

// measure calls it for some time, 32 at once, and notes what that took.
func (c *contestant) measure(ctx context.Context, lasts time.Duration) error {
	before, err := processorTime(c.pids)
	if err != nil {
		return err
	}
	calls, took, err := load(ctx, lasts, c.way.call, c.latency)
	if err != nil {
		return err
	}
	after, err := processorTime(c.pids)
	if err != nil {
		return err
	}
	c.costs = append(c.costs, float64((after-before).Microseconds())/float64(calls))
	c.rates = append(c.rates, float64(calls)/took.Seconds())
	return nil
}

// median is of what was noted; NaN-free: there is a round at least.
func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}
