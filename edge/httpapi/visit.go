package httpapi

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Visit is a request that was admitted, where something is left to do for it:
// to wait for its turn in a queue or for room, to give its slots of concurrency limits back
// when it ends, or to count what it was answered. Most requests have none, and
// nil does nothing.
type Visit struct {
	api   *API
	path  string    // for the log
	after bool      // some rule that applies counts certain responses only
	turn  time.Time // when its turn is, if it has to wait; only Wait changes it

	mu      sync.Mutex     // guards what follows; held while the limiter is asked, which waits for no I/O
	req     *limit.Request // nil where nothing was decided; its Charges are what is to be given back
	renewal *time.Timer    // nil: no slot to hold on to
	ended   bool
}

// Answer is what a request was answered, for rules that count certain
// responses only. Fields left empty are not told.
type Answer struct {
	Status string // of HTTP, or what comes nearest to it: response.status
	Code   string // of gRPC, by its name: response.code
}

// ErrGone is why Wait let a request's turn pass: whoever waited for its answer
// is gone, or would be by then.
var ErrGone = errors.New("the request ended before its turn came")

func leased(c limit.Charge) bool { return c.Rate.Lease > 0 && c.Cost > 0 }

// begin takes over a request that was just decided; nil where nothing is left
// to do for it, and it may be released.
func (a *API) begin(req *limit.Request, nv *namespaceView, d *limit.Decision, path string) *Visit {
	if !d.Allowed || req.Peek || !nv.charges && !nv.after {
		return nil
	}
	after := nv.after && slices.ContainsFunc(req.Rules(), (*limit.Rule).CountsAfter)
	if d.Delay == 0 && !after && !slices.ContainsFunc(req.Charges, leased) {
		return nil
	}
	v := &Visit{api: a, path: path, req: req, after: after}
	if d.Delay > 0 {
		v.turn = time.Now().Add(d.Delay)
	}
	v.mu.Lock() // the timer may be faster than this
	defer v.mu.Unlock()
	v.hold()
	return v
}

// hold starts renewing the slots among the visit's charges, at half of their
// leases. The visit is locked.
func (v *Visit) hold() {
	half := time.Duration(0)
	for _, c := range v.req.Charges {
		if leased(c) && (half == 0 || c.Rate.Lease/2 < half) {
			half = c.Rate.Lease / 2
		}
	}
	if half > 0 {
		// End stops it; where it is due just then, it finds the visit ended.
		v.renewal = time.AfterFunc(half, func() { v.renew(half) })
	}
}

func (v *Visit) renew(again time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	defer v.api.surviveIn(v.path)
	if v.ended || v.renewal == nil {
		return
	}
	v.api.limiter.Renew(v.api.cfg.Now(), v.req.Charges)
	v.renewal.Reset(again)
}

// Turn is when the request's turn is; ok is false where it need not wait.
func (v *Visit) Turn() (at time.Time, ok bool) {
	if v == nil {
		return time.Time{}, false
	}
	return v.turn, !v.turn.IsZero()
}

// Wait holds the request back until its turn. Where its context ends before
// that, or is bound to, all that it was charged is given back, and the error is
// an ErrGone: the request is not to be served, and the visit is over.
func (v *Visit) Wait(ctx context.Context) error {
	at, waits := v.Turn()
	if !waits {
		return nil
	}
	came := v.api.turn(ctx, time.Until(at))
	v.turn = time.Time{}
	if !came {
		v.over(nil)
		return ErrGone
	}
	return nil
}

// turn waits for a turn in a queue; it is false where the context ends first.
// A context whose deadline is too near to live to it is not waited for: others
// may have the place.
func (a *API) turn(ctx context.Context, delay time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < delay {
		a.metrics.abandoned.Inc()
		return false
	}
	a.metrics.waiting.Inc()
	defer a.metrics.waiting.Dec()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		a.metrics.abandoned.Inc()
		return false
	}
}

// End gives the request's slots back, and charges it to the rules that count
// what it was answered. It is called once the request is served, whatever
// became of it.
func (v *Visit) End(answer Answer) {
	if v != nil {
		v.over(&answer)
	}
}

// over ends the visit; a nil answer is that of a request that was not served,
// which has cost nothing.
func (v *Visit) over(answer *Answer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	defer v.api.surviveIn(v.path)
	if v.ended {
		return
	}
	v.ended = true
	if v.renewal != nil {
		v.renewal.Stop()
	}
	if v.req == nil {
		return
	}
	now := v.api.cfg.Now()
	if answer != nil {
		v.keepCharges()
	}
	if len(v.req.Charges) > 0 {
		v.api.limiter.Refund(now, v.req.Charges, 0)
	}
	if answer != nil && v.after {
		v.req.Set("response.status", answer.Status)
		v.req.Set("response.code", answer.Code)
		v.api.limiter.Answered(now, v.req)
	}
	v.req.Release()
	v.req = nil
}

// keepCharges leaves those charges alone that stay when the request was served:
// all but slots.
func (v *Visit) keepCharges() {
	v.req.Charges = slices.DeleteFunc(v.req.Charges, func(c limit.Charge) bool { return !leased(c) })
}

// surviveIn is deferred around calls of the limiter that no handler waits for:
// a bug in it must not take the service down.
func (a *API) surviveIn(path string) {
	if p := recover(); p != nil {
		a.panicked(path, p)
	}
}
