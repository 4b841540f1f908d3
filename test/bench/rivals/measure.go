package main

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// tick is how far the time moves with each decision where it is an argument:
// ten million decisions a second fill a second.
const tick = 100 * time.Nanosecond

// result is what was measured of one contestant at one size.
type result struct {
	contestant
	heap   int64   // bytes that building it added to the heap
	allocs float64 // per call
	one    series  // one goroutine
	two    series  // two goroutines
	asked  uint64
	passed uint64
}

// series is a figure for each round.
type series struct {
	rate []float64 // calls per second, all goroutines together
	cpu  []float64 // seconds of processor time per call
}

func median(x []float64) float64 { return quantile(x, 0.5) }

// quantile interpolates between the two nearest ranks; NaN of nothing.
func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(x))
	at := q * float64(len(s)-1)
	i := int(at)
	if i == len(s)-1 {
		return s[i]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

// spread is the distance of the quartiles as a share of the median.
func (s series) spread() float64 {
	return (quantile(s.rate, 0.75) - quantile(s.rate, 0.25)) / median(s.rate)
}

// unsettled says that a row which targets are judged by is not to be trusted.
func unsettled(results []result) bool {
	return slices.ContainsFunc(results, func(r result) bool { return r.judges() && r.two.spread() > absurd })
}

// entry is a contestant in the running.
type entry struct {
	*result
	subject *subject
	clock   time.Time // next round's start where the time is an argument
}

// race builds the contestants and lets them take turns. It measures nothing
// beyond what the options say, and leaves no goroutine behind.
func race(list []contestant, w *workload, o options, origin time.Time) ([]result, error) {
	results := make([]result, len(list))
	entries := make([]*entry, 0, len(list))
	defer func() {
		for _, e := range entries {
			if e.subject.close != nil {
				e.subject.close()
			}
		}
	}()
	before := heap()
	for i, c := range list {
		results[i].contestant = c
		p := population{keys: w.keys, quota: ample, aged: w.aged(o.aged)}
		if c.denies {
			p.quota.limit, p.aged = 1, nil
		}
		s, err := c.build(p, origin)
		if err != nil {
			return nil, fmt.Errorf("build %s for %d keys: %w", c.name, len(w.keys), err)
		}
		entries = append(entries, &entry{result: &results[i], subject: s, clock: origin})
		now := heap()
		results[i].heap, before = now-before, now
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, e := range entries {
		e.countAllocs(w, o)
	}
	// What disturbs the machine for a while must not fill the middle of a row:
	// then the contestants take their turns again, twice at most.
	for k := 0; k < o.rounds || k < 3*o.rounds && unsettled(results); k++ {
		for goroutines := 1; goroutines <= 2; goroutines++ {
			for _, e := range entries {
				e.round(w, turn{goroutines: goroutines, from: (2*k + goroutines) * 99_991, length: o.round, record: true})
			}
		}
	}
	runtime.KeepAlive(entries)
	return results, nil
}

// heap is the bytes of live objects. Only the second collection empties pools
// and frees what the first one's finalizers let go.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// countAllocs measures allocations in a round that does not count otherwise,
// and that warms up pools.
func (e *entry) countAllocs(w *workload, o options) {
	e.round(w, turn{goroutines: 2, from: 7, length: o.round / 4})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := e.round(w, turn{goroutines: 1, from: 7, length: o.round / 2})
	runtime.ReadMemStats(&after)
	e.allocs = float64(after.Mallocs-before.Mallocs) / float64(n)
}

// turn is one round of one contestant.
type turn struct {
	goroutines int
	from       int // request to begin with
	length     time.Duration
	record     bool
}

// round runs a turn and returns the number of calls.
func (e *entry) round(w *workload, t turn) (calls uint64) {
	if e.subject.during != nil {
		defer e.subject.during()()
	}
	var (
		stop    atomic.Bool
		running sync.WaitGroup
		begin   = make(chan struct{})
		made    = make([]uint64, t.goroutines)
		passed  = make([]uint64, t.goroutines)
		rate    = make([]float64, t.goroutines)
	)
	for g := range t.goroutines {
		d := e.subject.worker(e.clock, tick*time.Duration(t.goroutines))
		// Waited for below; ends when the time is up.
		running.Go(func() {
			<-begin
			var n, ok uint64
			started := time.Now()
			for i := t.from + g*w.n/t.goroutines; !stop.Load(); {
				const stretch = 256
				for range stretch {
					if d(w.at(i)) {
						ok++
					}
					i++
				}
				n += stretch
			}
			rate[g] = float64(n) / time.Since(started).Seconds()
			made[g], passed[g] = n, ok
		})
	}
	cpu := processorTime()
	timer := time.AfterFunc(t.length, func() { stop.Store(true) })
	defer timer.Stop()
	close(begin)
	running.Wait()
	cpu = processorTime() - cpu
	total := 0.0
	for g := range t.goroutines {
		calls += made[g]
		e.passed += passed[g]
		total += rate[g]
	}
	e.asked += calls
	e.clock = e.clock.Add(time.Duration(calls) * tick)
	if t.record {
		s := &e.one
		if t.goroutines == 2 {
			s = &e.two
		}
		s.rate = append(s.rate, total)
		s.cpu = append(s.cpu, cpu.Seconds()/float64(calls))
	}
	return calls
}

// processorTime is what this process has used of all processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot fail for oneself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// worked says what is wrong where a contestant did not do what it was asked.
func (r *result) worked() error {
	share := float64(r.passed) / float64(max(1, r.asked))
	switch {
	case r.asked == 0:
		return fmt.Errorf("%s was never asked", r.name)
	case r.denies && share > 0.01:
		return fmt.Errorf("%s let %.1f %% pass, it should deny all", r.name, 100*share)
	case !r.denies && share < 0.99:
		return fmt.Errorf("%s admitted or found %.1f %% only", r.name, 100*share)
	}
	return nil
}
