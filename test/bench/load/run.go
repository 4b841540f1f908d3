package load

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/test/bench/latency"
)

// request is one to make.
type request struct {
	due
	serial int
	tenant int
	surge  bool // it is of a time at which more come than at the rate
}

// source says which request is next. Connections share it.
type source struct {
	rate  float64
	first bool // what comes above the rate is of the first tenant
	parts []float64

	mu       sync.Mutex // guards what follows
	arrivals arrivals
	drawn    *rand.Rand
	serial   int
}

// newSource is of o's load.
func newSource(o Options) *source {
	s := &source{rate: o.Rate, first: o.Surge == surgeFirst, arrivals: arrivals{shape: o.shape()}, drawn: rand.New(rand.NewPCG(1, 9))}
	sum := 0.0
	for i := range o.Tenants {
		sum += math.Pow(float64(i+1), -o.Skew)
		s.parts = append(s.parts, sum)
	}
	return s
}

func (s *source) next() (r request, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.due, ok = s.arrivals.next()
	if !ok {
		return r, false
	}
	r.serial = s.serial
	s.serial++
	r.surge = r.rate > s.rate*(1+rounding)
	if s.first && s.drawn.Float64() >= s.rate/r.rate {
		return r, true
	}
	r.tenant, _ = slices.BinarySearch(s.parts, s.drawn.Float64()*s.parts[len(s.parts)-1])
	return r, true
}

// findings are what a load came to.
type findings struct {
	took    time.Duration
	tenants []tally
	quiet   tally             // of all tenants, while requests come at the rate
	surge   tally             // likewise, while more come
	late    latency.Histogram // how long after they were due requests were sent
	unsent  atomic.Uint64
	cut     atomic.Uint64 // were under way when ctx ended
	faults  faults
}

// overdue is the fault of what was not sent, as no connection was free in time.
const overdue = "not sent in time"

// means are how requests are made.
type means struct {
	send  func(context.Context, request) outcome
	pause func(time.Duration) // waits, to the point, for less than coarse
}

// run makes the load over as many connections as o says, and returns when all requests
// are answered or given up, or ctx ends. A send that fails for ctx's sake counts for
// nothing.
func run(ctx context.Context, o Options, by means) *findings {
	f := &findings{tenants: make([]tally, o.Tenants)}
	next, began := newSource(o), time.Now()
	var connections sync.WaitGroup
	for range o.Connections {
		connections.Go(func() { // until the load is over, or ctx ends
			for {
				r, ok := next.next()
				if !ok || !f.make(ctx, began, r, o.Timeout, by) {
					return
				}
			}
		})
	}
	connections.Wait()
	f.took = time.Since(began)
	return f
}

// make makes one request when it is due; it is false where ctx ended.
func (f *findings) make(ctx context.Context, began time.Time, r request, timeout time.Duration, by means) bool {
	at := began.Add(r.after)
	if !sleep(ctx, time.Until(at), by.pause) {
		return false
	}
	late := time.Since(at)
	f.late.Add(late)
	if late >= timeout {
		f.unsent.Add(1)
		f.note(r, outcome{fault: overdue, detail: fmt.Sprintf("no connection was free for %v: the target is slower than the load, or -connections are too few", timeout)}, late)
		return true
	}
	// From now, not from when it was due: who is sent with hardly any time left costs a
	// connection too, and the load would bring itself down.
	waits, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o := by.send(waits, r)
	if ctx.Err() != nil && o.fault != "" {
		f.cut.Add(1)
		return false
	}
	f.note(r, o, time.Since(at))
	return ctx.Err() == nil
}

func (f *findings) note(r request, o outcome, took time.Duration) {
	f.tenants[r.tenant].add(o, took)
	if r.surge {
		f.surge.add(o, took)
	} else {
		f.quiet.add(o, took)
	}
	if o.fault != "" {
		f.faults.add(o)
	}
}

// coarse is what Go's timers may be late by, and more: they go by milliseconds where
// nothing else wakes the process.
const coarse = 2 * time.Millisecond

// sleep is false where ctx ended before d was over.
func sleep(ctx context.Context, d time.Duration, pause func(time.Duration)) bool {
	if d > coarse {
		over := time.NewTimer(d - coarse)
		defer over.Stop()
		began := time.Now()
		select {
		case <-over.C:
			d -= time.Since(began)
		case <-ctx.Done():
			return false
		}
	}
	if d > 0 {
		pause(d)
	}
	return ctx.Err() == nil
}
