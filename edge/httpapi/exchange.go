package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// exchange is what one request is read into and answered from.
type exchange struct {
	in     []byte
	out    []byte
	dec    decoder
	fields fields
	answer answer

	room *Room // that the body takes a part of
	who  netip.Addr
	held int64
}

var exchanges = sync.Pool{New: func() any {
	return &exchange{in: make([]byte, 0, 1024), out: make([]byte, 0, 1024)}
}}

// largestKept is the largest buffer that goes back to the pool: one batch of a
// megabyte does not make every exchange that large for good.
const largestKept = 128 << 10

func (x *exchange) release() {
	if x.held > 0 {
		x.room.Give(x.who, x.held)
		x.held = 0
	}
	if cap(x.in) > largestKept || cap(x.out) > largestKept {
		return
	}
	x.dec.forget()
	x.answer = answer{}
	exchanges.Put(x)
}

// smallBody is what is read of a body without room for it: most have no more, and as many as
// there are connections are bounded by that.
const smallBody = 4 << 10

// readJSON reads the body, at most max bytes of it, as JSON text.
func (a *API) readJSON(x *exchange, r *http.Request, max int64) (string, *inputError) {
	if kind := r.Header.Get("Content-Type"); kind != "" && !isJSON(kind) {
		return "", &inputError{
			status: http.StatusUnsupportedMediaType, field: "Content-Type", detail: short(kind) + " is not JSON",
			hint: "send application/json; curl: -H 'Content-Type: application/json'",
		}
	}
	return a.read(x, r, max)
}

// read reads the body, at most max bytes of it. What it takes beyond smallBody it holds until
// the exchange is released, twice, as it is made a text.
func (a *API) read(x *exchange, r *http.Request, max int64) (string, *inputError) {
	if r.ContentLength > max {
		return "", tooLarge(max)
	}
	x.in = x.in[:0]
	for room := smallBody; ; {
		if len(x.in) == room {
			more := min(room, int(max)+1-room)
			if x.held == 0 {
				x.room, x.who = a.cfg.Room, Caller(r.RemoteAddr, a.cfg.TrustedProxies)
			}
			if !x.room.Take(a.cfg.Transport, x.who, int64(2*more)) {
				return "", &inputError{
					status: http.StatusServiceUnavailable, field: "body", hint: "ask again in a moment; send smaller batches",
					detail: "bodies that are under way take all memory that they may at this edge, of your address or of all",
				}
			}
			x.held += int64(2 * more)
			room += more
		}
		if len(x.in) == cap(x.in) {
			x.in = append(x.in, 0)[:len(x.in)]
		}
		n, err := r.Body.Read(x.in[len(x.in):min(cap(x.in), room)])
		x.in = x.in[:len(x.in)+n]
		switch {
		case int64(len(x.in)) > max:
			return "", tooLarge(max)
		case errors.Is(err, io.EOF):
			return string(x.in), nil
		case err != nil:
			return "", badRequest("body", "send as many bytes as Content-Length says, without long pauses", "could not be read to its end")
		}
	}
}

func tooLarge(max int64) *inputError {
	return &inputError{
		status: http.StatusRequestEntityTooLarge, field: "body", detail: "is larger than " + strconv.FormatInt(max>>10, 10) + " KiB",
		hint: "send only the attributes that the rules read; split batches",
	}
}

// isJSON says whether a media type is JSON: application/json, or another that
// ends in +json.
func isJSON(kind string) bool {
	kind, _, _ = strings.Cut(kind, ";")
	kind = strings.TrimSpace(kind)
	return strings.EqualFold(kind, "application/json") ||
		len(kind) > len("+json") && strings.EqualFold(kind[len(kind)-len("+json"):], "+json")
}

// ask asks the limiter, counts what it says, and leaves it in x.answer. The
// time that it gives back is when the decision stood, so that a batch reads the
// clock once a call.
func (a *API) ask(ctx context.Context, x *exchange, v *view, req *limit.Request, now time.Time) time.Time {
	d, wait := a.begins(v, req, now)
	if wait != nil {
		d = wait(ctx)
	}
	return a.tell(x, v, req, d, now)
}

// begins is the first half of ask: it waits for nothing.
func (a *API) begins(v *view, req *limit.Request, now time.Time) (limit.Decision, func(context.Context) limit.Decision) {
	ns := v.namespaces[req.Namespace()]
	req.Details, req.Dates = ns.details, ns.strict
	return a.limiter.CheckOrWait(now, req)
}

// tell is the other half: it counts a decision, and leaves it in x.answer.
func (a *API) tell(x *exchange, v *view, req *limit.Request, d limit.Decision, now time.Time) time.Time {
	a.count(&x.answer, v, req, d, now)
	x.fields.write(v, &x.answer)
	done := a.cfg.Now()
	a.duration.Observe(done.Sub(now).Seconds())
	return done
}

// answer is what is told of a decision.
func (a *API) answer(req *limit.Request, d limit.Decision, now time.Time) answer {
	told := answer{decision: d, states: req.States, bound: req.Bound, now: now, clock: a.limiter.Time(now)}
	if !d.Allowed && d.Rate != nil { // one without a rate denies for good
		told.retry = a.retrySeconds(waitOf(&d))
	}
	return told
}

// count counts a decision, and makes an answer of it.
func (a *API) count(to *answer, v *view, req *limit.Request, d limit.Decision, now time.Time) {
	ns := req.Namespace()
	*to = a.answer(req, d, now)
	if d.Allowed && req.Spent > 0 {
		to.proves, to.spent = a.ids.digest(req), req.Spent
	}
	v.seriesOf(ns, &d).count(a.metrics, &d, req)
	if t := v.namespaces[ns].tenants; t != nil {
		t.count(a.metrics, &d, req)
	}
	if !d.Allowed && d.Rule != nil && d.Rule.TellKeys && !req.Peek && !req.Replay {
		a.deniedKeys.add(a.limiter, d.Rule, req)
	}
}
