package deferred

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Outcome is what came of a request that a worker was given.
type Outcome struct {
	// Began says that Attempt.Begin was called: it had room, and counts as a try.
	Began bool
	// Status is the upstream's; 0: none, and Err says why.
	Status int
	Err    error
	// Unreached says that nothing was sent, as there was no connection to the upstream: that is no try.
	Unreached bool
	// Cut is why the rest of the answer was not waited for; nil: it ended.
	Cut error
	// Location is where a redirection points.
	Location string
	// Wait is when to try again, as the limit or the upstream says; 0: they do not. Every
	// is how often the limit lets one of its tenant's pass from then on; 0: it is not known.
	Wait, Every time.Duration
	// By names the limit that had no room, as it may have none for others either; "": that
	// says nothing about others.
	By string
}

// failed says that the upstream is to be asked again: it was not there, says that it is busy
// or broken, or that it did not process the request and one may come again (408 and 425: RFC
// 9110, section 15.5.9, and RFC 8470).
func (o *Outcome) failed() bool {
	switch o.Status {
	case 0, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return o.Err != nil || o.Status >= 500
}

// elsewhere says that the upstream did nothing, as the same request is to be sent to another
// place. Nobody follows: the place is the upstream's word, and the request has its client's
// credentials. After 302 and 303 another one is, to read: this one was done.
func (o *Outcome) elsewhere() bool {
	switch o.Status {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// Attempt is a request that is to be done now, if there is room.
type Attempt struct {
	*Request
	// Begin is to be called when there is room, before the upstream is asked, which it
	// must not be where it fails.
	Begin func() error
}

// Send does a request. It ends with ctx.
type Send func(ctx context.Context, a *Attempt) Outcome

const (
	// awayLeast and awayMost bound how long a request waits where there is no upstream.
	awayLeast = time.Second
	awayMost  = 15 * time.Second
	// retryLeast and retryMost bound how long a request waits until it is tried again.
	retryLeast = 100 * time.Millisecond
	retryMost  = time.Minute
	// pullWait is for how long a worker that lost JetStream waits before it looks anew.
	pullWait = time.Second
	// pullTime is how long a pull waits for requests; one of which nothing is heard for twice
	// pullHeartbeat is lost, as with a connection, and another takes its place.
	pullTime      = 10 * time.Second
	pullHeartbeat = 2 * time.Second
	// unclaimedLeast is how often a request that has no status is met before it is given up.
	unclaimedLeast = 4
)

// Work does what waits until ctx ends, so many at a time: no more is taken then, and what is at
// the upstream has Config.Drain to end, after which it is cut. It returns when all have ended.
// Several may work, in several processes.
func (q *Queue) Work(ctx context.Context, workers int, send Send) {
	sends, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	crew := &crew{idle: make(chan struct{}, max(1, workers)), lanes: newLanes(max(1, workers)), send: send, sends: sends, ends: ctx}
	for range cap(crew.idle) {
		crew.idle <- struct{}{}
	}
	for ctx.Err() == nil {
		if err := q.work(ctx, crew); err != nil && ctx.Err() == nil {
			q.log.Warn("deferred requests wait", "err", err)
			pause(ctx, pullWait)
		}
	}
	late := time.AfterFunc(q.cfg.Drain, func() {
		q.log.Info("deferred requests that last are cut off, and sent again by another edge", "after", q.cfg.Drain)
		cut(errEnds)
	})
	defer late.Stop()
	crew.busy.Wait()
}

// crew is the workers of a queue in a process.
type crew struct {
	idle  chan struct{} // has one for each worker that has nothing to do
	busy  sync.WaitGroup
	lanes *lanes
	send  Send
	sends context.Context // of what is sent
	ends  context.Context // when it has ended no more is
}

// errEnds: the process ends, and sends no more.
var errEnds = errors.New("the edge ended")

// free waits for a worker that has nothing to do, and takes it, with all others that have
// nothing either; 0: ctx has ended.
func (c *crew) free(ctx context.Context) int {
	select {
	case <-ctx.Done():
		return 0
	case <-c.idle:
	}
	for n := 1; ; n++ {
		select {
		case <-c.idle:
		default:
			return n
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// work does what waits until ctx ends or JetStream is lost. It asks for as many requests as
// there are workers without one, and each begins as it comes: one that waited here for a
// worker longer than its lease would be another edge's as well.
func (q *Queue) work(ctx context.Context, crew *crew) error {
	at, cancel := q.bounded(ctx)
	consumer, err := q.js.Consumer(at, q.stream, replay)
	cancel()
	if err != nil {
		return q.unavailable("ask for the consumer", err)
	}
	for err == nil {
		n := crew.free(ctx)
		if n == 0 {
			return nil
		}
		if n, err = q.pull(ctx, consumer, crew, n); err != nil {
			err = q.unavailable("pull", err)
		}
		for range n {
			crew.idle <- struct{}{}
		}
	}
	return err
}

// pull has so many workers do a request each, and returns how many got none, in time or as
// JetStream is lost.
func (q *Queue) pull(ctx context.Context, from jetstream.Consumer, crew *crew, workers int) (int, error) {
	at, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	batch, err := from.Fetch(workers, jetstream.FetchContext(at), jetstream.FetchHeartbeat(pullHeartbeat))
	if err != nil {
		return workers, err
	}
	for m := range batch.Messages() {
		workers--
		// Work waits for it; its send ends with crew.sends.
		crew.busy.Go(func() {
			defer func() { crew.idle <- struct{}{} }()
			defer q.survive(m)
			q.handle(crew, m)
		})
	}
	if err = batch.Error(); errors.Is(err, jetstream.ErrNoHeartbeat) || at.Err() != nil {
		err = nil // the next pull tells
	}
	return workers, err
}

// survive keeps a bug from ending the process, as the message would come to the next one then, and
// to all of the region's.
func (q *Queue) survive(m jetstream.Msg) {
	if p := recover(); p != nil {
		q.log.Error("panic over a deferred request", "subject", m.Subject(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		q.settle(m.NakWithDelay(retryMost), nil)
	}
}

// handle does one request, or puts it off, or gives it up.
func (q *Queue) handle(crew *crew, m jetstream.Msg) {
	ctx := crew.sends
	if crew.ends.Err() != nil { // it came as the process began to end
		q.settle(m.NakWithDelay(retryLeast), nil)
		return
	}
	if left := q.left(m.Headers()); left > 0 && q.another(m.Headers()) {
		wait := retryLeast
		if at, err := m.Metadata(); err == nil {
			wait <<= min(at.NumDelivered-1, 4)
		}
		q.settle(m.NakWithDelay(min(wait, left)), nil)
		return
	}
	// Whether it is its turn comes first, as of many that wait it is that of few. What is at
	// its end needs none.
	turn := &turn{}
	if left, at := q.left(m.Headers()), q.cfg.Now(); left > 0 {
		delivery, err := m.Metadata()
		fresh := err == nil && delivery.NumDelivered == 1
		var wait time.Duration
		if turn, wait = crew.lanes.enter(m.Subject(), fresh, left, at); turn == nil {
			q.settle(m.NakWithDelay(max(retryLeast, wait)), nil)
			return
		}
		defer turn.done()
	}
	r, err := requestOf(m.Headers(), m.Data())
	if err != nil { // whoever may publish here wrote it; there is nobody to tell
		q.log.Error("a message in the queue of deferred requests is thrown away", "subject", m.Subject(), "err", err)
		q.settle(m.TermWithReason("malformed"), r)
		return
	}
	s, err := q.Status(ctx, r.ID)
	switch {
	case errors.Is(err, ErrUnknown):
		q.unclaimed(ctx, m, r)
		return
	case err != nil:
		q.settle(m.NakWithDelay(pullWait), r)
		return
	case s.over(): // a worker died after it had noted that, or the reply got lost
		q.settle(m.Ack(), r)
		return
	}
	if left := q.held(&s); left > 0 {
		q.settle(m.NakWithDelay(left), r)
		return
	}
	switch now := q.cfg.Now(); {
	case s.State == Unclaimed:
		q.giveUp(ctx, m, r, &s, reasonUnclaimed)
		return
	case !now.Before(r.Expires):
		reason := "there was no room in time"
		if s.Reason != "" {
			reason = s.Reason
		}
		q.giveUp(ctx, m, r, &s, "expired: "+reason)
		return
	case s.Tries >= q.cfg.Tries: // it was running when its worker died
		q.giveUp(ctx, m, r, &s, fmt.Sprintf("given up after %d tries: %s", s.Tries, orUnknown(s.Reason)))
		return
	}
	out := q.attempt(crew, m, r, &s, turn)
	switch {
	case !out.Began:
		turn.denied(max(retryLeast, min(out.Wait, retryMost)), out.Every, out.By, q.cfg.Now())
		q.settle(m.NakWithDelay(q.putOff(r, min(out.Wait, retryMost))), r) // there may be room early
	case ctx.Err() != nil && out.failed():
		// The process ends, and cut it: that is no fault of the upstream's. It is soon
		// tried again.
		s.State, s.Tries = Queued, s.Tries-1
		if err := q.note(context.WithoutCancel(ctx), r.ID, &s); err != nil {
			q.log.Warn("a deferred request's try was cut, and counts", "id", r.ID, "err", err)
		}
		q.settle(m.NakWithDelay(retryLeast), r)
	case out.Unreached:
		q.cfg.Metrics.ends[endUnreached].Inc()
		s.State, s.Tries, s.Status, s.Reason = Queued, s.Tries-1, 0, reasonOf(&out)
		if err := q.note(ctx, r.ID, &s); err != nil {
			q.log.Warn("that an upstream is away is not noted of a deferred request, and counts as a try", "id", r.ID, "err", err)
		}
		q.settle(m.NakWithDelay(q.putOff(r, max(out.Wait, awayLeast))), r)
	case out.failed():
		q.cfg.Metrics.ends[endFailed].Inc()
		s.Status, s.Reason = out.Status, reasonOf(&out)
		if s.Tries >= q.cfg.Tries {
			q.giveUp(ctx, m, r, &s, fmt.Sprintf("given up after %d tries: %s", s.Tries, s.Reason))
			return
		}
		s.State = Queued
		if err := q.note(ctx, r.ID, &s); err != nil {
			q.log.Warn("a deferred request's try is not noted", "id", r.ID, "err", err)
		}
		q.settle(m.NakWithDelay(q.putOff(r, max(out.Wait, time.Second<<min(2*(s.Tries-1), 6)))), r)
	case out.elsewhere():
		s.Status = out.Status
		q.giveUp(ctx, m, r, &s, fmt.Sprintf("the upstream answered %d: it is to be sent to %q, which is not followed", out.Status, out.Location))
	default:
		s.State, s.Status, s.Reason, s.life = Done, out.Status, "", q.life(context.WithoutCancel(ctx), r.Tenant)
		if out.Cut != nil {
			s.Reason = out.Cut.Error()
		}
		if err := q.note(context.WithoutCancel(ctx), r.ID, &s); err != nil {
			// It is done, and nobody knows: it comes again, with the same key.
			q.log.Warn("a deferred request was done, and that is not noted", "id", r.ID, "err", err)
			q.settle(m.NakWithDelay(pullWait), r)
			return
		}
		q.cfg.Metrics.ends[endDone].Inc()
		q.settle(m.Ack(), r)
	}
}

// reasonUnclaimed is why a request that was kept is not done.
const reasonUnclaimed = "its client was not told that it waits, as the edge ended, or JetStream did not answer, when it was kept"

// unclaimed puts a request off that has no status. Most often that is about to be written;
// where it is not for long, its client was not told that it waits, and may have come again.
// It is neither done then, nor lost, but a dead letter. A status says so first: whoever was
// to write one cannot from then on.
func (q *Queue) unclaimed(ctx context.Context, m jetstream.Msg, r *Request) {
	at, err := m.Metadata()
	switch {
	case err != nil:
		q.settle(m.NakWithDelay(pullWait), r)
		return
	case at.NumDelivered < unclaimedLeast || q.cfg.Now().Sub(at.Timestamp) < 2*q.cfg.Timeout:
		q.settle(m.NakWithDelay(retryLeast<<min(at.NumDelivered-1, 5)), r)
		return
	}
	bounded, cancel := q.bounded(ctx)
	defer cancel()
	s := Status{State: Unclaimed, Accepted: r.Accepted, Expires: r.Expires, Updated: q.cfg.Now()}
	if s.revision, err = q.statuses.Create(bounded, r.ID, s.encoded()); err != nil {
		q.settle(m.NakWithDelay(pullWait), r)
		return
	}
	q.giveUp(ctx, m, r, &s, reasonUnclaimed)
}

// giveUp makes a dead letter of a request.
func (q *Queue) giveUp(ctx context.Context, m jetstream.Msg, r *Request, s *Status, reason string) {
	err := q.bury(ctx, m, r, s.Tries, reason)
	if err == nil {
		s.State, s.Reason, s.life = Dead, reason, q.life(ctx, r.Tenant)
		err = q.note(ctx, r.ID, s)
	}
	if err != nil {
		q.settle(m.NakWithDelay(pullWait), r)
		return
	}
	ended := endDead
	if !q.cfg.Now().Before(r.Expires) {
		ended = endExpired
	}
	q.cfg.Metrics.ends[ended].Inc()
	q.log.Warn("a deferred request is dead", "id", r.ID, "tenant", r.Tenant, "method", r.HTTP.Method, "path", r.HTTP.URL.Path, "reason", reason)
	q.settle(m.Ack(), r)
}

// bury writes a dead letter, once however often it is told.
func (q *Queue) bury(ctx context.Context, m jetstream.Msg, r *Request, tries int, reason string) error {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	letter := nats.NewMsg(q.grave(r.ID))
	letter.Data = m.Data()
	for _, name := range []string{jetstream.MsgIDHeader, headerTenant, headerClient, headerAccepted, headerExpires} {
		letter.Header.Set(name, m.Headers().Get(name))
	}
	for _, name := range []string{headerScheme, headerUpstream} { // not all have them
		if is := m.Headers().Get(name); is != "" {
			letter.Header.Set(name, is)
		}
	}
	letter.Header.Set(headerReason, strconv.Quote(reason))
	letter.Header.Set(headerTries, strconv.Itoa(tries))
	if _, err := q.js.PublishMsg(ctx, letter, jetstream.WithExpectStream(q.dead)); err != nil {
		return q.unavailable("bury "+r.ID, err)
	}
	return nil
}

// putOff is how long a request waits until it is tried again, by what is asked for, be it by the
// upstream (Retry-After): where that is past its end, half of what is left, as it may be done by then.
func (q *Queue) putOff(r *Request, asked time.Duration) time.Duration {
	if left := r.Expires.Sub(q.cfg.Now()); asked >= left {
		asked = left / 2
	}
	return max(retryLeast, asked)
}

// another says that a request is for another upstream than this process has: it would be told
// what is none of its business, credentials included.
func (q *Queue) another(h nats.Header) bool {
	is := h.Get(headerUpstream)
	return is != "" && q.cfg.Upstream != "" && is != q.cfg.Upstream
}

// left is how long a request may still wait, by its message; 0: no longer, or there is no
// telling.
func (q *Queue) left(h nats.Header) time.Duration {
	expires, err := time.Parse(time.RFC3339Nano, h.Get(headerExpires))
	if err != nil {
		return 0
	}
	return max(0, expires.Sub(q.cfg.Now()))
}

// settle takes what became of an answer to JetStream. Where it got lost the request comes
// again, when its lease ends, and what was noted of it decides.
func (q *Queue) settle(err error, r *Request) {
	if err != nil && r != nil {
		q.log.Debug("JetStream was not told of a deferred request", "id", r.ID, "err", err)
	}
}

func reasonOf(o *Outcome) string {
	if o.Err != nil {
		return o.Err.Error()
	}
	return fmt.Sprintf("the upstream answered %d", o.Status)
}

func orUnknown(reason string) string {
	if reason == "" {
		return "what came of the last is not known"
	}
	return reason
}
