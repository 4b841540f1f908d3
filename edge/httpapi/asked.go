package httpapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge/limit"
)

// Question is a call of /v1/check that came over another transport (edge/limiterapi).
type Question struct {
	Namespace  string
	Attributes map[string]string
	Cost       *uint64 // nil: as the rule says; 0 peeks
	Peek       bool
}

// Reply is what /v1/check says of one.
type Reply struct {
	Decision limit.Decision // its Rule is nil where none applies, its Rate where the rule has none
	ID       string
	Status   int           // of a denial: what a client over HTTP is answered with
	Wait     time.Duration // of a denial; see Decision.Delay for what a queue admitted
	Bound    limit.Bound
	Fields   []Field

	// Err is why nothing was decided. It is ErrNotReady, ErrNamespace, or a mistake in the
	// call.
	Err error
}

// Statement is a call of /v1/report that came over another transport.
type Statement struct {
	Namespace  string
	Attributes map[string]string
	Cost       *int64 // nil: as the rule says; negative gives back
	Answered   bool
	DecisionID string
}

// Recorded is what /v1/report says of one.
type Recorded struct {
	Recorded bool
	Decision limit.Decision // how things stand; its Rate is nil where no rule with rates applies
}

var (
	// ErrNotReady is why nothing can be decided yet.
	ErrNotReady = errors.New("not ready")
	// ErrNamespace is that there are no rules for the namespace of a call.
	ErrNamespace = errors.New("no such namespace")
	// ErrBatch is that a batch has more calls than are decided at once.
	ErrBatch = fmt.Errorf("checks: has more than %d checks (split the batch)", maxBatch)
)

// Check decides about a question as /v1/check does.
func (s *Surface) Check(ctx context.Context, q *Question) Reply {
	set, err := s.rules(s.api.metrics.undecided)
	if err != nil {
		return Reply{Err: err}
	}
	x := exchanges.Get().(*exchange)
	defer x.release()
	a := s.begin(x, s.api.viewOf(set), q, s.Now())
	if a.wait != nil {
		a.decision = inTime(ctx, a.wait)
	}
	return s.reply(x, &a)
}

// CheckBatch decides about several as /v1/check/batch does. Its error is ErrBatch or
// ErrNotReady: nothing was decided then. Those that wait for rights do so together.
func (s *Surface) CheckBatch(ctx context.Context, n int, question func(i int) *Question) ([]Reply, error) {
	if n > maxBatch {
		s.Refused()
		return nil, ErrBatch
	}
	set, err := s.rules(s.api.metrics.undecided)
	if err != nil {
		return nil, err
	}
	x := exchanges.Get().(*exchange)
	defer x.release()
	v := s.api.viewOf(set)
	replies, later := make([]Reply, n), []int(nil)
	var waiting []asked
	for i := range replies {
		a := s.begin(x, v, question(i), s.Now())
		if a.wait != nil {
			later, waiting = append(later, i), append(waiting, a)
			continue
		}
		replies[i] = s.reply(x, &a)
	}
	for k, i := range later {
		a := &waiting[k]
		a.decision = inTime(ctx, a.wait)
		replies[i] = s.reply(x, a)
	}
	return replies, nil
}

// Report does what /v1/report does.
func (s *Surface) Report(of *Statement) (Recorded, error) {
	failed := s.api.metrics.misreported
	set, err := s.rules(failed)
	if err != nil {
		return Recorded{}, err
	}
	x := exchanges.Get().(*exchange)
	defer x.release()
	c := x.dec.ask(call{report: true, namespace: of.Namespace, answered: of.Answered, decision: of.DecisionID}, of.Attributes)
	if of.Cost != nil {
		cost := uint64(*of.Cost)
		if c.giveBack = *of.Cost < 0; c.giveBack {
			cost = -cost
		}
		c.costs(cost)
	}
	c.knowDecision()
	x.dec.answered(c)
	ns, bad := s.api.meant(set, c)
	if bad != nil {
		failed.Inc()
		return Recorded{}, bad
	}
	d, recorded := s.api.record(x, ns, c)
	return Recorded{recorded, d}, nil
}

// rules are those in force. Where there are none that counts as failed.
func (s *Surface) rules(failed prometheus.Counter) (*limit.Set, error) {
	if set := s.api.limiter.Rules(); set != nil {
		return set, nil
	}
	failed.Inc()
	err := s.api.limiter.Ready()
	if err == nil {
		err = errors.New("no rules are loaded yet")
	}
	return nil, fmt.Errorf("%w: %w", ErrNotReady, err)
}

// ask takes a call that was read by another transport.
func (d *decoder) ask(kind call, attributes map[string]string) *call {
	d.forget()
	d.calls = append(d.calls, kind)
	c := &d.calls[0]
	if len(attributes) > maxAttributes {
		d.attribute(c, maxAttributes, "", "") // which is one too many
		return c
	}
	for n, name := range slices.Sorted(maps.Keys(attributes)) { // of several mistakes the same is told each time
		d.attribute(c, n, name, attributes[name])
	}
	c.last = len(d.attributes)
	return c
}

// meant is the namespace of a call that was read.
func (a *API) meant(set *limit.Set, c *call) (*limit.Namespace, error) {
	if c.mistake != nil {
		return nil, c.mistake
	}
	ns, bad := a.namespaceOf(set, c.namespace)
	if bad != nil {
		return nil, bad
	}
	return ns, nil
}

// asked is a question that was put to the limiter.
type asked struct {
	view     *view
	req      *limit.Request // nil where there is an err
	decision limit.Decision
	wait     func(context.Context) limit.Decision
	now      time.Time
	err      error
}

func (s *Surface) begin(x *exchange, v *view, q *Question, now time.Time) asked {
	c := x.dec.ask(call{namespace: q.Namespace, peek: q.Peek}, q.Attributes)
	if q.Cost != nil {
		c.costs(*q.Cost)
	}
	ns, err := s.api.meant(v.set, c)
	if err != nil {
		s.Refused()
		return asked{err: err}
	}
	a := asked{view: v, req: x.request(ns, c), now: now}
	a.decision, a.wait = s.api.begins(v, a.req, now)
	return a
}

// reply says what was decided, and lets go of the request.
func (s *Surface) reply(x *exchange, a *asked) Reply {
	if a.err != nil {
		return Reply{Err: a.err}
	}
	s.api.count(&x.answer, a.view, a.req, a.decision, a.now)
	x.fields.write(a.view, &x.answer)
	s.duration.Observe(s.Now().Sub(a.now).Seconds())
	x.out = s.api.appendDecisionID(x.out[:0], &x.answer)
	out := Reply{Decision: a.decision, ID: string(x.out), Wait: waitOf(&a.decision), Bound: x.answer.bound, Fields: x.fields.pairs()}
	if !a.decision.Allowed {
		out.Status = statusOf(&a.decision)
	}
	x.answer.states = nil // they go back with the request
	a.req.Release()
	return out
}
