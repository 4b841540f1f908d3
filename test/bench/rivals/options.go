package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

// options are how much is measured.
type options struct {
	sizes    []int
	rounds   int
	round    time.Duration
	draws    int
	aged     int     // requests that contestants with a past begin with
	exponent float64 // of the Zipf distribution
	together int     // contestants above large that are in memory at a time
	weighed  int     // keys of P7
	stalled  int     // idle keys of P4
	episodes int     // of P4
	out      string
	profile  string
}

const (
	// large is the size above which not all contestants fit into memory
	// together: they run in heats then, and our variants stay out.
	large = 2_000_000
	// judged is the size at which P1 and P2 are judged.
	judged = 1_000_000
	// growing is the smallest size of P11.
	growing = 1000
)

// parse reads the command line. Long adds ten million keys.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{
		sizes: []int{1, growing, 100_000, judged}, draws: draws, aged: 1 << 20, together: 4,
		weighed: judged / 16, stalled: 100_000, episodes: 8,
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	long := flags.Bool("long", false, "ten million keys too; takes some 10 GB of memory")
	flags.IntVar(&o.rounds, "rounds", 7, "rounds of each contestant, size and number of goroutines")
	flags.DurationVar(&o.round, "round", 60*time.Millisecond, "length of a round")
	flags.Float64Var(&o.exponent, "zipf", 1.1, "exponent of the keys' popularity, above 1")
	flags.StringVar(&o.out, "out", "", "file to write the report to beside standard output; go run ./test/bench names RESULTS.md, unless told otherwise")
	flags.StringVar(&o.profile, "profile", "", "file to write a profile of the processor to, as cmd/edge/default.pgo was made; what is measured is slower for it")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *long {
		o.sizes = append(o.sizes, 10_000_000)
		o.weighed = judged
	}
	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("%q: no arguments are expected", flags.Args()))
	}
	if o.rounds < 3 || o.rounds > 1000 {
		errs = append(errs, fmt.Errorf("-rounds %d: want 3 to 1000, or a median says nothing", o.rounds))
	}
	if o.round < time.Millisecond || o.round > time.Minute {
		errs = append(errs, fmt.Errorf("-round %v: want 1ms to 1m", o.round))
	}
	if !(o.exponent > 1 && o.exponent <= 10) {
		errs = append(errs, fmt.Errorf("-zipf %v: want more than 1 and at most 10", o.exponent))
	}
	return o, errors.Join(errs...)
}
