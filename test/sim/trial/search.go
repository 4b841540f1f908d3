package trial

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Search runs the trials of so many seeds, from that of the options on, by Run or
// Twice, on several goroutines, until one fails or all are done. It calls each with
// every result, one at a time. An error says which seed failed first of those that were
// run, and how.
func Search(from Options, seeds uint64, workers int, run func(Options) Result, each func(Result)) error {
	var (
		next   atomic.Uint64
		failed atomic.Bool
		mu     sync.Mutex // guards first and the calls of each
		first  *Result
		all    sync.WaitGroup
	)
	for range workers {
		all.Go(func() { // ends with the seeds, or when one has failed
			for !failed.Load() {
				n := next.Add(1) - 1
				if n >= seeds {
					return
				}
				o := from
				o.Seed += n
				r := run(o)
				mu.Lock()
				each(r)
				if r.Err != nil && (first == nil || r.Options.Seed < first.Options.Seed) {
					first = &r
					failed.Store(true)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if first == nil {
		return nil
	}
	return fmt.Errorf("%w\n%s\nreplay: go run ./test/sim %v", first.Err, first.Plan, first.Options)
}

// Twice is Run, and once more: the trace has to be the same.
func Twice(o Options) Result {
	r := Run(o)
	if r.Err != nil {
		return r
	}
	if again := Run(o); again.Trace != r.Trace || again.Events != r.Events {
		r.Err = fmt.Errorf("the same seed ran otherwise: trace %x of %d events, then %x of %d", r.Trace, r.Events, again.Trace, again.Events)
	}
	return r
}

// Shrink leaves out kinds of faults as long as the trial still fails.
func Shrink(failed Result) Result {
	least := failed
	for _, f := range Faults {
		o := least.Options
		o.Without = append(slices.Clone(o.Without), f)
		if !newPlan(least.Options).has[f] {
			continue // it was not there
		}
		if r := Run(o); r.Err != nil {
			least = r
		}
	}
	return least
}
