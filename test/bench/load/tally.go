package load

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/test/bench/latency"
)

// outcome is what became of a request.
type outcome struct {
	denied bool
	waits  bool   // it was denied, and is to be done later (202)
	fault  string // "": it was answered; else a short name for what failed, as errors are counted by
	detail string // of a fault: what was said of it
}

// tally is what became of requests. Many may add to it at once.
type tally struct {
	admitted, deferred, denied, failed atomic.Uint64
	latency                            latency.Histogram // of those that were answered
}

func (t *tally) add(o outcome, took time.Duration) {
	switch {
	case o.fault != "":
		t.failed.Add(1)
		return
	case o.waits:
		t.deferred.Add(1)
	case o.denied:
		t.denied.Add(1)
	default:
		t.admitted.Add(1)
	}
	t.latency.Add(took)
}

func (t *tally) merge(other *tally) {
	t.admitted.Add(other.admitted.Load())
	t.deferred.Add(other.deferred.Load())
	t.denied.Add(other.denied.Load())
	t.failed.Add(other.failed.Load())
	t.latency.Merge(&other.latency)
}

func (t *tally) asked() uint64 {
	return t.admitted.Load() + t.deferred.Load() + t.denied.Load() + t.failed.Load()
}

// maxFaults is how many kinds of faults are told apart; further ones are one kind.
const maxFaults = 32

// fault is one kind of failure.
type fault struct {
	count  uint64
	detail string // of the first of them
}

// faults are counted by kind.
type faults struct {
	mu sync.Mutex
	of map[string]*fault // guarded by mu
}

func (f *faults) add(o outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]*fault{}
	}
	kind := f.of[o.fault]
	if kind == nil && len(f.of) >= maxFaults {
		o.fault = "others"
		kind = f.of[o.fault]
	}
	if kind == nil {
		kind = &fault{detail: o.detail}
		f.of[o.fault] = kind
	}
	kind.count++
}
