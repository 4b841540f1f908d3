package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// findings are all that one run measured.
type findings struct {
	sizes  []sizeTable
	stalls []stall
	weight weights
	took   time.Duration
}

// sizeTable is the results of all contestants at one number of keys.
type sizeTable struct {
	keys    int
	results []result
}

// measure runs everything, and tells progress what it is at.
func measure(o options, progress io.Writer) (*findings, error) {
	started := time.Now()
	f := &findings{}
	var err error
	// Memory first, on a heap where nothing of others is still to be swept.
	fmt.Fprintf(progress, "%5.0fs  memory\n", time.Since(started).Seconds())
	if f.weight, err = weigh(o.weighed); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "%5.0fs  latency\n", time.Since(started).Seconds())
	if f.stalls, err = stalls(o.stalled, o.episodes); err != nil {
		return nil, err
	}
	for _, keys := range o.sizes {
		fmt.Fprintf(progress, "%5.0fs  %d keys\n", time.Since(started).Seconds(), keys)
		t := sizeTable{keys: keys}
		w := newWorkload(keys, o.draws, o.exponent)
		for _, heat := range heats(keys, o.together) {
			results, err := race(heat, w, o, time.Now())
			if err != nil {
				return nil, err
			}
			for i := range results {
				if err := results[i].worked(); err != nil {
					return nil, fmt.Errorf("at %d keys nothing was measured: %w", keys, err)
				}
			}
			t.results = append(t.results, results...)
		}
		f.sizes = append(f.sizes, t)
	}
	f.took = time.Since(started)
	return f, nil
}

// heats are the contestants of a size, as many at a time as memory holds.
func heats(keys, together int) [][]contestant {
	list := contestants()
	switch {
	case keys == growing:
		// Of interest for the growth alone.
		return [][]contestant{slices.DeleteFunc(list, func(c contestant) bool {
			return c.name != rowEmpty && c.name != rowTable && c.name != rowEdge
		})}
	case keys > large:
		list = slices.DeleteFunc(list, func(c contestant) bool { return c.small })
		return slices.Collect(slices.Chunk(list, together))
	}
	return [][]contestant{list}
}

// find is the result of a row at a size; nil where it was not measured.
func (f *findings) find(keys int, row string) *result {
	for _, t := range f.sizes {
		if t.keys != keys {
			continue
		}
		for i := range t.results {
			if t.results[i].name == row {
				return &t.results[i]
			}
		}
	}
	return nil
}

// judges says that a target is judged by the row.
func (r *result) judges() bool {
	return slices.Contains([]string{rowEdge, rowTable, rowThree, rowTen, rowGoLimiter}, r.name)
}

// absurd is the spread (see series.spread) above which a run is refused.
const absurd = 0.75

// trust says why the run cannot be reported: rounds of rows that targets are
// judged by lie too far apart.
func (f *findings) trust() error {
	for _, t := range f.sizes {
		for i := range t.results {
			r := &t.results[i]
			if r.judges() && r.two.spread() > absurd {
				return fmt.Errorf("%s, %d keys, 2 goroutines: the middle half of the rounds lies %.0f %% of the median apart, at most %.0f %% can be trusted: wait until the machine is quieter, or take more and longer rounds (-rounds, -round)",
					r.name, t.keys, 100*r.two.spread(), 100*absurd)
			}
		}
	}
	return nil
}
