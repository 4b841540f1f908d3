package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/test/sim/cuts"
)

// mostUncovered is the part of windows that may be above error_bound, by A20.
const mostUncovered = 0.001

// runCuts runs random cuts, one life in words or many, and says how well the bounds hold.
func runCuts(o options, stdout io.Writer) error {
	if o.seeds == 0 {
		out := cuts.Run(o.Seed, stdout)
		fmt.Fprintln(stdout, told(out))
		return out.Err
	}
	begun := time.Now()
	outcomes := make([]cuts.Outcome, o.seeds)
	var next atomic.Uint64
	var all sync.WaitGroup
	for range o.workers {
		all.Go(func() { // ends with the seeds
			for n := next.Add(1) - 1; n < o.seeds; n = next.Add(1) - 1 {
				outcomes[n] = cuts.Run(o.Seed+n, nil)
			}
		})
	}
	all.Wait()
	var sum, worst cuts.Outcome
	var failed []error
	for _, out := range outcomes {
		sum.Windows, sum.Uncovered, sum.Surged = sum.Windows+out.Windows, sum.Uncovered+out.Uncovered, sum.Surged+out.Surged
		if out.Over > worst.Over {
			worst = out
		}
		if out.Uncovered > 0 || out.Err != nil {
			fmt.Fprintln(stdout, told(out))
		}
		if out.Err != nil {
			failed = append(failed, fmt.Errorf("%w\nreplay: go run ./test/sim -cuts -seed %d", out.Err, out.Seed))
		}
	}
	fmt.Fprintf(stdout, "%d lives with cuts in %v: above the limit by %.1f %% at the most (seed %d); of %d windows %d were above error_bound (%.3f %%), %d above error_bound_surge\n",
		o.seeds, time.Since(begun).Round(time.Second), float64(worst.Over)/10, worst.Seed, sum.Windows, sum.Uncovered, 100*float64(sum.Uncovered)/float64(max(1, sum.Windows)), sum.Surged)
	if float64(sum.Uncovered) > mostUncovered*float64(sum.Windows) {
		failed = append(failed, fmt.Errorf("%d of %d windows are above error_bound, want %.1f %% at the most", sum.Uncovered, sum.Windows, 100*mostUncovered))
	}
	return errors.Join(failed...)
}

// told says what became of a life.
func told(o cuts.Outcome) string {
	end := "all healed"
	if o.Err != nil {
		end = o.Err.Error()
	}
	return fmt.Sprintf("%s: above the limit of 1000 by %d at the most, after %v; of %d windows %d above error_bound, %d above error_bound_surge; %s", o.Plan, o.Over, o.At.Round(time.Millisecond), o.Windows, o.Uncovered, o.Surged, end)
}
