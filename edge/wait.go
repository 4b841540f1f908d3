package edge

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// CheckWait is Check for who can wait: a request that is denied as this edge has no
// rights in a strict limit yet is decided once more as soon as some come, and at last
// when the rate's strict_wait is over. It is charged as it is decided at last; where ctx
// ends before, it stays denied, and is not charged at all. Peeks do not wait.
func (n *Node) CheckWait(ctx context.Context, now time.Time, req *limit.Request) limit.Decision {
	d, wait := n.CheckOrWait(now, req)
	if wait != nil {
		return wait(ctx)
	}
	return d
}

// CheckOrWait is CheckWait for who has something else to do first. Where wait is nil, d
// is the decision. Else d is how things stand, nothing was charged, and wait is to be
// called, once; the time runs from now on.
func (n *Node) CheckOrWait(now time.Time, req *limit.Request) (d limit.Decision, wait func(context.Context) limit.Decision) {
	queue := &n.cluster.escrow.queue
	news := queue.news.Load()
	req.Awaits = !req.Peek
	d = n.Check(now, req)
	if d.Basis.Await == 0 || req.Peek {
		req.Awaits = false
		return d, nil
	}
	return d, n.waiter(now, req, news, d)
}

// waiter waits with a request that was told d as the queue's news was news. It is a
// function of its own, as what it keeps is on the heap: most requests keep nothing.
//
//go:noinline
func (n *Node) waiter(now time.Time, req *limit.Request, news uint64, d limit.Decision) func(context.Context) limit.Decision {
	called := time.Now() // now may be of another clock
	return func(ctx context.Context) limit.Decision { return n.wait(ctx, now, called, req, news, d) }
}

func (n *Node) wait(ctx context.Context, now, called time.Time, req *limit.Request, news uint64, d limit.Decision) limit.Decision {
	queue := &n.cluster.escrow.queue
	over := time.NewTimer(d.Basis.Await - time.Since(called))
	defer over.Stop()
	for {
		err := queue.wait(ctx, deltasync.Key(req.Awaited), news, over.C)
		if ctx.Err() != nil {
			req.Awaits = false
			queue.gone.Add(1)
			return d
		}
		news, req.Awaits = queue.news.Load(), err == nil
		d = n.Check(now.Add(time.Since(called)), req)
		switch {
		case d.Allowed:
			queue.served.Add(1)
		case errors.Is(err, errFull):
			queue.full.Add(1)
		case err != nil || d.Basis.Await == 0:
			queue.vain.Add(1)
		default:
			continue
		}
		req.Awaits = false
		return d
	}
}

// waiters are the requests that wait for rights, by counter. Grants wake them; none
// looks again by itself.
type waiters struct {
	news   atomic.Uint64 // frames of grants that were taken in
	served atomic.Uint64 // requests that waited, and passed
	vain   atomic.Uint64 // and were denied
	gone   atomic.Uint64 // and were over before
	full   atomic.Uint64 // for which there was no place

	mu    sync.Mutex // guards what follows
	count int
	by    map[deltasync.Key]*waiting
}

// waiting are the requests that wait for rights of one counter.
type waiting struct {
	woken chan struct{} // closed by the next grant
	count int
}

// mostWaiting bounds the requests of a node that wait: each holds a connection and a
// goroutine of its surface. Those beyond are denied, as without strict_wait.
const mostWaiting = 4096

// Why nobody waits any longer.
var (
	errOver = errors.New("rights did not come in time")
	errFull = errors.New("too many wait for rights")
)

// wait returns nil when something came of a counter, be it while nobody listened: of
// that heard knows nothing.
func (w *waiters) wait(ctx context.Context, key deltasync.Key, heard uint64, over <-chan time.Time) error {
	w.mu.Lock()
	if w.news.Load() != heard {
		w.mu.Unlock()
		return nil
	}
	if w.count == mostWaiting {
		w.mu.Unlock()
		return errFull
	}
	if w.by == nil {
		w.by = map[deltasync.Key]*waiting{}
	}
	k := w.by[key]
	if k == nil {
		k = &waiting{woken: make(chan struct{})}
		w.by[key] = k
	}
	k.count++
	w.count++
	w.mu.Unlock()
	defer w.leave(key, k)
	select {
	case <-k.woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-over:
		return errOver
	}
}

// leave has one less wait.
func (w *waiters) leave(key deltasync.Key, k *waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	if k.count--; k.count == 0 && w.by[key] == k {
		delete(w.by, key)
	}
}

// wake wakes who waits for rights of the counters that grants are of. It comes after
// these were taken in.
func (w *waiters) wake(grants []deltasync.Grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.news.Add(1)
	for i := range grants {
		if k := w.by[grants[i].Key]; k != nil {
			close(k.woken)
			delete(w.by, grants[i].Key)
		}
	}
}

// waits is how many wait now.
func (w *waiters) waits() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}
