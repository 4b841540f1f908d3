package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/test/bench/latency"
)

// inFlight is how many calls are made at once.
const inFlight = 32

// load makes calls for some time, notes how long each took, and says how many there were.
// The first that fails ends it.
func load(ctx context.Context, lasts time.Duration, call func(context.Context) error, each *latency.Histogram) (calls int, took time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var made atomic.Int64
	var callers sync.WaitGroup
	began := time.Now()
	for range inFlight {
		callers.Go(func() { // until its time is over, or ctx ends
			for time.Since(began) < lasts && ctx.Err() == nil {
				at := time.Now()
				if err := call(ctx); err != nil {
					cancel(err)
					return
				}
				each.Add(time.Since(at))
				made.Add(1)
			}
		})
	}
	callers.Wait()
	if ctx.Err() != nil {
		return 0, 0, fmt.Errorf("a call failed: %w", context.Cause(ctx))
	}
	return int(made.Load()), time.Since(began), nil
}

// tick is in what processes' times are told: USER_HZ, which is 100 on every Linux that Go
// runs on (proc_pid_stat(5)).
const tick = 10 * time.Millisecond

// processorTime is what processes have taken so far, in user and system mode.
func processorTime(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("processor time: %w", err)
		}
		_, rest, ok := strings.Cut(string(text), ") ") // the name before may hold anything
		fields := strings.Fields(rest)
		if !ok || len(fields) < 13 {
			return 0, fmt.Errorf("processor time of %d: %q is not understood", pid, text)
		}
		for _, field := range fields[11:13] { // utime, stime
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("processor time of %d: %w", pid, err)
			}
			sum += time.Duration(n) * tick
		}
	}
	return sum, nil
}
