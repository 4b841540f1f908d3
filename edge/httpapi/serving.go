package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge/limit"
)

// Surface is one beside this one whose calls are no HTTP requests but attributes
// (edge/rls): what it denies is told by /v1/decisions, too.
type Surface struct {
	api      *API
	duration prometheus.Observer
}

// Surface is one of a transport, as the metrics name it.
func (a *API) Surface(transport string) *Surface {
	return &Surface{api: a, duration: a.metrics.duration.WithLabelValues(transport)}
}

// Refused counts a call that was refused, or could not be decided.
func (s *Surface) Refused() { s.api.metrics.undecided.Inc() }

// Panicked counts and logs what was recovered from.
func (s *Surface) Panicked(at string, p any) { s.api.panicked(at, p) }

// Body is the body of a request over HTTP to a surface of its own format.
type Body struct {
	Text string
	x    *exchange
}

// Body reads one of so many bytes at the most, and counts it as refused where it is not to be
// had: status and err say why then. It is to be released once it was decided about.
func (s *Surface) Body(r *http.Request, most int64) (b Body, status int, err error) {
	x := exchanges.Get().(*exchange)
	text, bad := s.api.read(x, r, most)
	if bad != nil {
		x.release()
		s.Refused()
		return Body{}, bad.status, bad
	}
	return Body{text, x}, 0, nil
}

// Release lets go of what the body takes.
func (b *Body) Release() { b.x.release() }

// Now is the clock.
func (s *Surface) Now() time.Time { return s.api.cfg.Now() }

// Serving is the rules in force. It is taken anew for each call, which a reload then
// does not change under way.
type Serving struct {
	*Surface
	view *view
}

// Serving is what is in force; its error says why nothing is yet.
func (s *Surface) Serving() (Serving, error) {
	set := s.api.limiter.Rules()
	if set == nil {
		s.Refused()
		err := s.api.limiter.Ready()
		if err == nil {
			err = errors.New("no rules are loaded yet")
		}
		return Serving{}, err
	}
	return Serving{Surface: s, view: s.api.viewOf(set)}, nil
}

// Namespace finds the rules of a namespace; nil where there are none.
func (s Serving) Namespace(name string) *limit.Namespace { return s.view.set.Namespace(name) }

// DescriptorLimits is the set's.
func (s Serving) DescriptorLimits() *limit.Namespace { return s.view.set.DescriptorLimits() }

// Judge decides about a request made from one of the set's namespaces, counts what was
// decided, and leaves it in j. It waits for rights where a rule says so (strict_wait), and for
// nothing else. The time is that of the next one of the call. Who may Revoke it asks for a
// receipt.
func (s Serving) Judge(ctx context.Context, req *limit.Request, now time.Time, j *Judgement) time.Time {
	req.Receipt = req.Receipt || s.view.namespaces[req.Namespace()].charges
	d, wait := s.api.begins(s.view, req, now)
	if wait != nil {
		d = inTime(ctx, wait)
	}
	j.serving = s
	s.api.count(&j.answer, s.view, req, d, now)
	if wait != nil {
		return s.Now()
	}
	return now
}

// Ahead is what Judge would decide now. It is told to nobody, and counted nowhere.
func (s Serving) Ahead(req *limit.Request, now time.Time) limit.Decision {
	peek := req.Peek
	req.Peek, req.Ahead = true, true
	d := s.api.limiter.Check(now, req)
	req.Peek, req.Ahead = peek, false
	return d
}

// Revoke gives back what a request was charged that was judged, and has its judgement say how
// things stand then. It is a peek from then on.
func (s Serving) Revoke(req *limit.Request, now time.Time, j *Judgement) {
	s.api.limiter.Refund(now, req.Charges, 0)
	j.answer = s.api.answer(req, s.api.peek(now, req), now)
}

// Judged counts how long it took to decide about all of a call that was read at a time.
func (s Serving) Judged(began time.Time) { s.duration.Observe(s.Now().Sub(began).Seconds()) }

// Await holds a call back until the last of its requests that queues admitted has its
// turn. Its error is ErrGone where ctx ends before: then what they were charged is given
// back.
func (s Serving) Await(ctx context.Context, reqs []*limit.Request, judged []Judgement) error {
	delay := time.Duration(0)
	for i := range judged {
		if d := &judged[i].answer.decision; d.Allowed && !reqs[i].Peek {
			delay = max(delay, d.Delay)
		}
	}
	if delay == 0 || s.api.turn(ctx, delay) {
		return nil
	}
	for _, req := range slices.Backward(reqs) { // a queue takes back its last place first
		s.api.limiter.Refund(s.Now(), req.Charges, 0)
	}
	return ErrGone
}

// Time is what time it is at an instant by the limiter's clock.
func (s Serving) Time(now time.Time) time.Time { return s.api.limiter.Time(now) }

// GiveBack gives the request's cost back, and says how things stand then.
func (s Serving) GiveBack(req *limit.Request, now time.Time) Judgement {
	s.api.metrics.reports.WithLabelValues(req.Namespace().Name, reportGiveBack).Inc()
	s.api.limiter.GiveBack(now, req)
	return Judgement{serving: s, answer: answer{decision: s.api.peek(now, req), now: now, clock: s.api.limiter.Time(now)}}
}

// Spent charges what a request has cost, whatever room there is, as /v1/report does, and says
// how things stand then; of a peek it says so alone.
func (s Serving) Spent(req *limit.Request, now time.Time) Judgement {
	var d limit.Decision
	if req.Peek {
		d = s.api.limiter.Check(now, req)
	} else {
		s.api.metrics.reports.WithLabelValues(req.Namespace().Name, reportCharge).Inc()
		d = s.api.limiter.Report(now, req)
	}
	return Judgement{serving: s, answer: answer{decision: d, now: now, clock: s.api.limiter.Time(now)}}
}

// Judgement is what was decided about a request. It serves until that is reset.
type Judgement struct {
	serving Serving
	answer  answer
}

// Decision is the limiter's. Its Rule is nil where none applies.
func (j *Judgement) Decision() *limit.Decision { return &j.answer.decision }

// RetryAfter is the wait that a denied client is told, in whole seconds, the jitter
// included; 0 where waiting does not help, or nothing was denied.
func (j *Judgement) RetryAfter() time.Duration { return time.Duration(j.answer.retry) * time.Second }

// Reset is the time within which no more than what remains may be used; 0 where no rate
// decided.
func (j *Judgement) Reset() time.Duration {
	d := &j.answer.decision
	if d.Rate == nil {
		return 0
	}
	return j.answer.effective(&limit.State{Rate: d.Rate, RetryAfter: waitOf(d)})
}

// Shown says whether clients are told of the rule.
func (j *Judgement) Shown() bool {
	rule := j.answer.decision.Rule
	return rule != nil && shows(rule)
}

// Field is a response's field.
type Field struct{ Name, Value string }

// Fields are those of the rule's profiles, and Retry-After of a denial.
func (j *Judgement) Fields() []Field {
	x := exchanges.Get().(*exchange)
	defer x.release()
	x.fields.write(j.serving.view, &j.answer)
	return x.fields.pairs()
}

// ID is that of the decision, by which a denial is told again (/v1/decisions/{id}).
func (j *Judgement) ID() string {
	if j.answer.id == nil {
		j.answer.id = j.serving.api.appendDecisionID(nil, &j.answer)
	}
	return string(j.answer.id)
}

// cutOffField tells, where the answer's status cannot, that a limit did not deny because it
// is used up.
const cutOffField = "X-Spillgate-Cut-Off"

// Denial is the body of the answer that a denied client gets (RFC 9457), and its fields
// beside those of Fields.
func (j *Judgement) Denial() (body []byte, beside []Field) {
	d := &j.answer.decision
	beside = []Field{{"Content-Type", problemType[0]}, {"Cache-Control", noStore[0]}}
	if d.Basis.CutOff {
		beside = append(beside, Field{cutOffField, "true"})
		return append(cutOffProblem(j.answer.retry).append(nil), '\n'), beside
	}
	j.ID() // the body tells it
	return j.serving.api.appendDenial(nil, &j.answer, d.Rule.Status), beside
}
