package deferred

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// makeEvery is how often an edge tries to make what is missing: one that may not is
	// refused, and NATS logs that.
	makeEvery = time.Minute
	// watchEvery is how often it looks whether the queue is what it was.
	watchEvery = 10 * time.Second
)

// Run opens the queue, again and again until that succeeds, and has what waits done, so
// many at a time, until ctx ends. Where JetStream has it no more, or otherwise, it begins anew.
func (f *Front) Run(ctx context.Context, js jetstream.JetStream, cfg Config, workers int) {
	cfg.Metrics = f.cfg.Metrics
	def(&cfg.Command, DefaultCommand)
	var made time.Time
	makes := func() bool {
		if time.Since(made) < makeEvery {
			return false
		}
		made = time.Now()
		return true
	}
	for ; ctx.Err() == nil; pause(ctx, pullWait) {
		at, cancel := context.WithTimeout(ctx, DefaultLease)
		q, err := open(at, js, cfg, makes)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.away(err, cfg.Command)
			continue
		}
		f.works(q.plan, cfg.Command)
		f.queue.Store(q)
		life, end := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() { // until life ends, or what is opened is no more
			defer end()
			f.watch(life, q)
		})
		q.Work(life, workers, f.Send)
		end()
		watching.Wait()
	}
}

// watch looks again and again whether JetStream has a queue as it was opened, and has nothing
// wait from when it has not. It returns then, or when ctx ends.
func (f *Front) watch(ctx context.Context, q *Queue) {
	every := time.NewTicker(watchEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		plan, err := q.inspect(ctx)
		if ctx.Err() != nil || !f.saw(q, plan, err) {
			return
		}
	}
}

// saw takes what JetStream said of a queue that is open, and says whether that is one still.
func (f *Front) saw(q *Queue, plan *Plan, err error) bool {
	switch {
	case err != nil: // that it is away; it may be the same when it is back
		f.away(err, q.cfg.Command)
	case plan.broken():
		f.queue.Store(nil)
		f.away(&unfit{plan: plan}, q.cfg.Command)
		return false
	default:
		q.marks(plan)
		f.works(plan, q.cfg.Command)
	}
	return true
}

// trouble is what is wrong with the queue, as it was told.
type trouble struct {
	reason string
	about  string // what is told once for all
	err    error
}

// away is that nothing waits.
func (f *Front) away(err error, command string) {
	t := trouble{reasonAway, "", fmt.Errorf("denied requests do not wait: %w", err)}
	if is, unfit := errors.AsType[*unfit](err); unfit {
		t = trouble{is.plan.reason(), is.plan.String(), fmt.Errorf("%w; an operator makes it so: %s", t.err, command)}
	}
	if f.tells(t) {
		f.log.Warn("the queue of deferred requests cannot be used", "err", t.err)
	}
}

// works is that requests wait, in a queue that may have other sizes than it is to have.
func (f *Front) works(plan *Plan, command string) {
	t := trouble{plan.reason(), plan.String(), nil}
	if t.reason != "" {
		t.err = fmt.Errorf("deferred: %v: that stands, for all edges of the region, until an operator changes it: %s", plan, command)
	}
	switch told := f.tells(t); {
	case told && t.err != nil:
		f.log.Warn("the queue of deferred requests is not as this edge's settings say", "err", t.err)
	case told:
		f.log.Info("denied requests wait where their rule lets them")
	}
}

// tells has a trouble be the front's, and says whether it was another until now.
func (f *Front) tells(t trouble) bool {
	is := f.trouble.Load()
	if is != nil && is.reason == t.reason && is.about == t.about {
		return false
	}
	f.trouble.Store(&t)
	f.cfg.Metrics.troubled(t.reason)
	return true
}

// errUnasked: of JetStream nothing is known yet.
var errUnasked = fmt.Errorf("deferred: %w: JetStream has not answered yet", ErrUnavailable)

// Trouble is why no denied request waits, or not as the edge's settings say; nil: they do.
func (f *Front) Trouble() error {
	if t := f.trouble.Load(); t != nil {
		return t.err
	}
	return errUnasked
}
