package accuracy

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/test/sim/measure"
)

// Options say what is measured.
type Options struct {
	Seeds     int
	Workers   int
	Only      []string  // rows, by their numbers; none: all
	Algorithm string    // of all limits; "": sub_windows
	Told      io.Writer // of what is done so far
}

// strategies are all that rules know, the naive one first.
func strategies() (out []string) {
	for _, s := range []string{measure.Naive, "loose", "adaptive", "strict"} {
		if measure.Knows(s) == nil {
			out = append(out, s)
		}
	}
	return out
}

// worst is the worst of a row's seeds under one strategy.
type worst struct {
	over, util, wd float64
	above, denied  float64 // of all that was asked for
	messages, rate float64 // sum of them; bytes a second of an edge
	took           time.Duration
}

func (w *worst) add(f measure.Figures, took time.Duration, first bool) {
	if first {
		w.util = f.Util
	}
	w.over, w.util, w.wd = max(w.over, f.Over), min(w.util, f.Util), max(w.wd, f.Wrong)
	w.above, w.denied = max(w.above, f.Excess), max(w.denied, f.Refused)
	w.messages += float64(f.Messages)
	w.rate = max(w.rate, f.EdgeRate)
	w.took += took
}

// measured is what a row came to, by strategy.
type measured map[string]*worst

// job is one run.
type job struct {
	section, row int
	strategy     string
	seed         uint64
	figures      measure.Figures
	took         time.Duration
	err          error
}

// runAll measures all rows, several runs at once: the longest first, so that the last
// ones are short.
func runAll(o Options, sections []section) ([][]measured, error) {
	var jobs []job
	for i, s := range sections {
		for j := range s.Rows {
			for _, strategy := range s.strategies() {
				for seed := range o.Seeds {
					jobs = append(jobs, job{section: i, row: j, strategy: strategy, seed: uint64(seed)})
				}
			}
		}
	}
	of := func(j *job) *row { return &sections[j.section].Rows[j.row] }
	size := func(j job) int { r := of(&j); return r.Regions * r.Edges * max(1, r.scenario.Keys) }
	slices.SortStableFunc(jobs, func(a, b job) int { return size(b) - size(a) })
	todo := make(chan *job)
	done := make(chan *job)
	var workers sync.WaitGroup
	for range o.Workers {
		workers.Go(func() {
			for j := range todo {
				begun := time.Now()
				j.figures, j.err = measure.Run(of(j).options(o, j.strategy, j.seed))
				j.took = time.Since(begun)
				done <- j
			}
		})
	}
	go func() {
		for i := range jobs {
			todo <- &jobs[i]
		}
		close(todo)
		workers.Wait()
		close(done)
	}()
	n := 0
	for j := range done {
		if n++; n%50 == 0 || n == len(jobs) {
			fmt.Fprintf(o.Told, "%d of %d runs\n", n, len(jobs))
		}
		if j.err != nil {
			r := of(j)
			fmt.Fprintf(o.Told, "%s %s at %v, %s, seed %d: %v\n", r.ID, r.Scenario, r.Limit, j.strategy, j.seed, j.err)
		}
	}
	return gather(sections, jobs)
}

// gather takes the worst of the seeds.
func gather(sections []section, jobs []job) ([][]measured, error) {
	out := make([][]measured, len(sections))
	for i, s := range sections {
		out[i] = make([]measured, len(s.Rows))
		for j := range out[i] {
			out[i][j] = measured{}
		}
	}
	for _, j := range jobs {
		if j.err != nil {
			return nil, j.err
		}
		m := out[j.section][j.row]
		w := m[j.strategy]
		if w == nil {
			w = &worst{}
			m[j.strategy] = w
		}
		w.add(j.figures, j.took, j.seed == 0)
	}
	return out, nil
}
