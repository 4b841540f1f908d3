package deferred

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A worker keeps the request that it has from others in two ways: JetStream delivers it to
// nobody else while it hears of it, and its status says Running, and since when. The second
// is for what was delivered twice, as when JetStream heard of it too late.

// held is for how long a request may still be a worker's that is at the upstream with it; 0:
// none has it, or that worker is dead, or cut off from JetStream. One whose clock is ahead by
// more than a lease is not believed: a dead one's request would wait as long.
func (q *Queue) held(s *Status) time.Duration {
	age := q.cfg.Now().Sub(s.Updated)
	if s.State != Running || age >= q.cfg.Lease || age < -q.cfg.Lease {
		return 0
	}
	return q.cfg.Lease - age
}

// attempt sends a request, and keeps it from other workers meanwhile.
func (q *Queue) attempt(crew *crew, m jetstream.Msg, r *Request, s *Status, turn *turn) (out Outcome) {
	ctx, cancel := context.WithCancel(crew.sends)
	began, begun := false, make(chan struct{})
	var holding sync.WaitGroup
	holding.Go(func() { q.hold(ctx, m, r.ID, s, begun) }) // until it is cancelled below
	defer func() {
		out.Began = began
		if p := recover(); p != nil {
			out = Outcome{Began: began, Err: fmt.Errorf("panic: %v", p)}
		}
		cancel()
		holding.Wait()
	}()
	return crew.send(ctx, &Attempt{r, func() error {
		if crew.ends.Err() != nil {
			return errEnds
		}
		s.State, s.Tries = Running, s.Tries+1
		if err := q.note(ctx, r.ID, s); err != nil { // another worker has it, or nobody could know of this one
			s.Tries--
			return err
		}
		began = true
		turn.begins(q.cfg.Now())
		close(begun)
		return nil
	}})
}

// hold says again and again that a worker lives which has a request, until ctx ends or
// another worker has it. From when begun is closed the status is its own until it returns.
func (q *Queue) hold(ctx context.Context, m jetstream.Msg, id string, s *Status, begun <-chan struct{}) {
	every := time.NewTicker(q.cfg.Lease / 3)
	defer every.Stop()
	is := ours
	for is != anothers {
		select {
		case <-ctx.Done():
			if is == unsure { // what became of it is to be written over what is there
				q.reread(ctx, id, s)
			}
			return
		case <-every.C:
			_ = m.InProgress() // if it is lost, so may the lease be: what is noted decides
		}
		select {
		case <-begun:
			is = q.renew(ctx, id, s)
		default:
		}
	}
}

// holder is whose a request is, as far as is known.
type holder int

const (
	ours holder = iota
	anothers
	unsure
)

// renew notes anew that a request is at the upstream.
func (q *Queue) renew(ctx context.Context, id string, s *Status) holder {
	// Not cut by the end of the attempt, or it would not be known if it is written.
	if q.note(context.WithoutCancel(ctx), id, s) == nil {
		return ours
	}
	return q.reread(ctx, id, s)
}

// reread takes the revision of a status of which it is not known if the last note of it was
// written, only not answered. Another worker's has another state, or more tries.
func (q *Queue) reread(ctx context.Context, id string, s *Status) holder {
	is, err := q.Status(context.WithoutCancel(ctx), id)
	switch {
	case err != nil:
		return unsure
	case is.State != Running || is.Tries != s.Tries:
		return anothers
	}
	s.revision = is.revision
	return ours
}
