// Command sim runs clusters on virtual time through random lives, and holds
// them to the invariants of design.md §5.
//
//	go run ./test/sim -seed 7                 # one trial, in words
//	go run ./test/sim -seed 7 -tale u4/api.r1 # who told whom what of one counter in it
//	go run ./test/sim -seeds 1000             # as many, each twice, until one fails
//	go run ./test/sim -seeds 100000 -once     # a long run: each once, in half the time
//	go run ./test/sim -seed 7 -without loss   # one fault less, all else the same
//	go run ./test/sim -seeds 100 -without all # with nothing that ails anybody
//	go run ./test/sim -mutate                 # plants protocol bugs, which must be caught
//	go run ./test/sim -cuts -seeds 100        # of one limit that all want, through random cuts: is it held, and are its error bounds
//	go run ./test/sim -cuts -seed 7           # one of them, in words
//	go run ./test/sim -list                   # the kinds of faults, and the scenarios
//
// and through scenarios, to see how accurate a limit is:
//
//	go run ./test/sim -scenario flash-all -limit 100/1s -seeds 5
//	go run ./test/sim -scenario flash-all -limit 1000/10s -seeds 5 -o json
//	go run ./test/sim -scenario flash-all -consistency adaptive -one-way 150ms -loss 5% -clock-offset 50ms
//	go run ./test/sim -accuracy -out test/sim/RESULTS.md # the targets, all strategies in one table
//	go run ./test/sim -accuracy -rows A1,A8 -seeds 1
//	go run ./test/sim -accuracy -rows A1,A8 -seeds 1 -algorithm token_bucket # of limits of another kind
//	go run ./test/sim -bounds -rows A1,A8 -seeds 1 # how well edges know how far limits are exceeded
//
// and computes what a fleet of a given size sends, merges and holds:
//
//	go run ./test/sim -capacity
//	go run ./test/sim -capacity -regions 50 -edges 1000 -rps 400 -keys 100000000 -targets homes -o json
//
// It exits with 1 where an invariant was broken, and prints the command that
// shows it again.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/test/sim/capacity"
	"github.com/spillgate/spillgate/test/sim/measure"
	"github.com/spillgate/spillgate/test/sim/scenarios"
	"github.com/spillgate/spillgate/test/sim/trial"
)

func main() {
	debug.SetGCPercent(400) // a world is small, and makes much that is soon forgotten
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "sim: %v\n", err)
		os.Exit(1)
	}
}

// options are what the command was asked for.
type options struct {
	trial.Options
	seeds    uint64
	workers  int
	once     bool
	tale     string // "": none
	list     bool
	mutate   bool
	cuts     bool
	scenario string // "": trials
	measured measured
	output   string
	accuracy bool
	bounds   bool
	rows     []string // of the table of accuracy, or of bounds; none: all
	out      string   // where it is written; "": printed
	paper    paper
	fleets   []capacity.Plan // of the paper
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{measured: measured{rate: scenarios.Limit{Limit: 100, Window: time.Second}}}
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Uint64Var(&o.Seed, "seed", 0, "the trial to run, or the first one")
	flags.Uint64Var(&o.seeds, "seeds", 0, "how many trials to run, each twice; 0: the one of -seed, in words")
	flags.BoolVar(&o.once, "once", false, "with -seeds: run each once, so that none is compared with itself")
	flags.StringVar(&o.tale, "tale", "", "with -seed: tell all that is told of one counter, such as u4/api.r1")
	flags.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "how many run at once")
	flags.BoolVar(&o.list, "list", false, "print the kinds of faults and the scenarios, in words")
	flags.StringVar(&o.scenario, "scenario", "", "measure how accurate a limit is in this one")
	flags.Var(&o.measured.rate, "limit", "of the scenario, or of each key of -capacity, such as 1000/10s")
	flags.IntVar(&o.measured.regions, "regions", 5, "of the scenario")
	flags.IntVar(&o.measured.edges, "edges", 2, "of each of its regions")
	flags.StringVar(&o.measured.consistency, "consistency", "loose", "of its limit: loose | naive (loose, with nothing urgent) | adaptive | strict")
	flags.Func("algorithm", "of its limit, or of all rows of -accuracy or -bounds: "+strings.Join(measure.Algorithms, " | ")+" (sub_windows)", func(s string) error {
		o.measured.algorithm = s
		return measure.KnowsAlgorithm(s)
	})
	conditions(flags, &o.measured.conditions)
	flags.StringVar(&o.output, "o", "text", "how figures are printed: text | json")
	flags.BoolVar(&o.accuracy, "accuracy", false, "measure the targets for accuracy, five seeds each, and write their table")
	flags.BoolVar(&o.bounds, "bounds", false, "measure how well error bounds cover what happens (A20), five seeds of each row, and write the table")
	flags.Func("rows", "with -accuracy or -bounds: rows of the table alone, with commas, such as A1,A18,A22", func(s string) error {
		o.rows = strings.Split(s, ",")
		return nil
	})
	flags.StringVar(&o.out, "out", "", "with -accuracy or -bounds: the file to write the table to")
	o.paper.flags(flags)
	flags.BoolVar(&o.mutate, "mutate", false, "plant protocol bugs, which the trials must catch")
	flags.BoolVar(&o.cuts, "cuts", false, "run one contested limit through random cuts, -seed in words or -seeds of them, and hold its error bounds to A20")
	faults := func(to *[]trial.Fault) func(string) error {
		return func(names string) error {
			if names == "all" {
				*to = trial.Faults
				return nil
			}
			for name := range strings.SplitSeq(names, ",") {
				if !slices.Contains(trial.Faults, trial.Fault(name)) {
					return fmt.Errorf("%q is no kind of fault; -list prints them", name)
				}
				*to = append(*to, trial.Fault(name))
			}
			return nil
		}
	}
	flags.Func("without", "kinds of faults to leave out, with commas, or all", faults(&o.Without))
	flags.Func("only", "kinds of faults to keep, with commas, or all", faults(&o.Only))
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q: no arguments are expected", flags.Args())
	case o.workers < 1:
		return o, fmt.Errorf("-workers %d: want 1 or more", o.workers)
	case o.output != "text" && o.output != "json":
		return o, fmt.Errorf("-o %q: want text or json", o.output)
	}
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if o.paper.wanted {
		o.fleets = o.plans(set)
	}
	return o, strays(o, set)
}

// strays says which options were given that go with something else.
func strays(o options, set map[string]bool) error {
	given := func(names ...string) (out []string) {
		for _, name := range names {
			if set[name] {
				out = append(out, "-"+name)
			}
		}
		return out
	}
	if o.once && (o.seeds == 0 || o.mutate || o.list || o.scenario != "") {
		return errors.New("-once: of trials, with -seeds")
	}
	if o.tale != "" && (o.seeds > 0 || o.mutate || o.list || o.scenario != "") {
		return errors.New("-tale: of one trial, with -seed")
	}
	if o.mutate {
		if stray := given("seed", "seeds", "tale", "scenario", "list"); len(stray) > 0 {
			return fmt.Errorf("%s: not with -mutate, which has seeds of its own", strings.Join(stray, ", "))
		}
	}
	if o.cuts {
		if stray := slices.DeleteFunc(slices.Sorted(maps.Keys(set)), func(name string) bool {
			return slices.Contains([]string{"cuts", "seed", "seeds", "workers"}, name)
		}); len(stray) > 0 {
			return fmt.Errorf("-%s: not with -cuts", strings.Join(stray, ", -"))
		}
		return nil
	}
	if !o.accuracy && !o.bounds {
		if stray := given("rows", "out"); len(stray) > 0 {
			return fmt.Errorf("%s: with -accuracy or -bounds", strings.Join(stray, ", "))
		}
	}
	switch {
	case o.accuracy, o.bounds:
		mode := "accuracy"
		if o.bounds {
			mode = "bounds"
		}
		allowed := []string{mode, "rows", "out", "seeds", "workers", "algorithm"}
		for name := range set {
			if !slices.Contains(allowed, name) {
				return fmt.Errorf("-%s: not with -%s", name, mode)
			}
		}
		return nil
	case o.paper.wanted:
		if stray := given(append([]string{"seed", "seeds", "tale", "scenario", "consistency", "algorithm", "mutate", "list", "without", "only"}, conditionFlags...)...); len(stray) > 0 {
			return fmt.Errorf("%s: not with -capacity", strings.Join(stray, ", "))
		}
		return nil
	case o.scenario == "":
		if stray := given(append([]string{"limit", "regions", "edges", "consistency", "algorithm", "o"}, conditionFlags...)...); len(stray) > 0 {
			return fmt.Errorf("%s: for a -scenario", strings.Join(stray, ", "))
		}
	}
	if stray := given(paperFlags...); len(stray) > 0 {
		return fmt.Errorf("%s: for -capacity", strings.Join(stray, ", "))
	}
	return nil
}

func run(args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	switch {
	case err != nil:
		return err
	case o.paper.wanted:
		return printCapacity(o, stdout)
	case o.accuracy:
		return table(o, args, stdout, stderr)
	case o.bounds:
		return boundsTable(o, args, stdout, stderr)
	case o.list:
		return list(stdout)
	case o.scenario != "":
		return scenario(o, stdout)
	case o.mutate:
		return mutate(stdout)
	case o.cuts:
		return runCuts(o, stdout)
	case o.seeds > 0:
		return search(o, stdout)
	}
	return one(o, stdout)
}

// one runs one trial and says what it was.
func one(o options, stdout io.Writer) error {
	do := trial.Twice
	if o.tale != "" {
		o.Tale, do = &trial.Tale{Of: o.tale, To: stdout}, trial.Run
	}
	r := do(o.Options)
	fmt.Fprintf(stdout, "%s\n%d requests, %d denied, %d faults; trace %016x of %d events\n", r.Plan, r.Requests, r.Denied, r.Faults, r.Trace, r.Events)
	return r.Err
}

// search runs many, and shrinks the first that fails.
func search(o options, stdout io.Writer) error {
	begun, done, requests, faults := time.Now(), 0, 0, 0
	var failed *trial.Result
	do, each := trial.Twice, "twice"
	if o.once {
		do, each = trial.Run, "once"
	}
	err := trial.Search(o.Options, o.seeds, o.workers, do, func(r trial.Result) {
		done, requests, faults = done+1, requests+r.Requests, faults+r.Faults
		if r.Err != nil && (failed == nil || r.Options.Seed < failed.Options.Seed) {
			failed = &r
		}
		if done%1000 == 0 {
			fmt.Fprintf(stdout, "%d of %d\n", done, o.seeds)
		}
	})
	fmt.Fprintf(stdout, "%d trials, each %s, %d requests, %d faults in %v\n", done, each, requests, faults, time.Since(begun).Round(time.Second))
	if err != nil && os.Getenv(plantedEnv) == "" { // of a planted bug the first find is enough
		least := trial.Shrink(*failed)
		return fmt.Errorf("%w\nwith fewer faults: go run ./test/sim %v\n%s\n%w", err, least.Options, least.Plan, least.Err)
	}
	return err
}
