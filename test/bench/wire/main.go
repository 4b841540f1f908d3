// Command wire measures targets P5 and P6: what a call costs the server that answers
// it, over gRPC and over HTTP, beside handlers that do nothing and beside
// envoyproxy/ratelimit.
//
//	go run ./test/bench/wire                                       # two minutes or so
//	go run ./test/bench/wire -out test/bench/wire/RESULTS.md       # and keep it
//
// All that is compared takes turns, in processes of their own; a figure is the median
// over rounds of the processor time that a server, its Redis included, took while so
// many calls were made to it, 32 at a time. The reference is installed by go install,
// into a directory that goes when this ends. It exits with 1 where a target is missed.
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
	reference bool
	out       string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("wire", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 7, "rounds of each measurement")
	flags.DurationVar(&o.lasts, "lasts", 2*time.Second, "how long each is called in a round")
	flags.BoolVar(&o.reference, "reference", true, "measure envoyproxy/ratelimit too, which go install fetches")
	flags.StringVar(&o.out, "out", "", "file to write the report to; none: standard output alone")
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
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	began := time.Now()
	fmt.Fprintln(stderr, "starting servers")
	f, err := newField(ctx, o)
	if err != nil {
		return err
	}
	defer f.stop()
	for round := range o.rounds {
		fmt.Fprintf(stderr, "round %d of %d\n", round+1, o.rounds)
		for i := range f.contestants {
			c := &f.contestants[(i+round)%len(f.contestants)] // none is always the first
			if err := c.measure(ctx, o.lasts); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	var b bytes.Buffer
	missed := f.report(&b, args, time.Since(began))
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
	name  string
	pids  []int // whose processor time counts
	call  func(ctx context.Context) error
	costs []float64 // of a call, in microseconds, by round
	rates []float64 // calls a second
}

// measure calls it for some time, 32 at once, and notes what that took.
func (c *contestant) measure(ctx context.Context, lasts time.Duration) error {
	before, err := processorTime(c.pids)
	if err != nil {
		return err
	}
	calls, took, err := load(ctx, lasts, c.call)
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
