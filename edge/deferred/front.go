package deferred

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// StatusPath is where clients ask what became of a request: its id follows.
const StatusPath = "/.well-known/spillgate/deferred/"

// DefaultBody is the largest body that is kept.
const DefaultBody = 512 << 10

// Terms are those under which a request that was denied may wait.
type Terms struct {
	Tenant string        // whose queue it stands in
	For    time.Duration // how long; 0: as long as the queue has it
}

// Policy says whether a request that was denied, and what its client would have been told,
// may wait instead. What HTTP does not call idempotent and has no Idempotency-Key of its
// own does not, whatever it says.
type Policy func(r *http.Request, denied http.Header) (Terms, bool)

// Front stands before an upstream: it has what the limits deny wait, where the policy lets
// it, and does it later. Its Send is for Queue.Work.
type Front struct {
	queue   *Queue
	limited http.Handler
	policy  Policy
	body    int64
}

// NewFront is a front of the upstream, behind the limits that a middleware holds it to. It
// denies with 429 and Retry-After. Bodies above so many bytes do not wait; 0: DefaultBody.
func NewFront(q *Queue, limits func(http.Handler) http.Handler, upstream http.Handler, policy Policy, body int64) *Front {
	def(&body, DefaultBody)
	return &Front{queue: q, limited: limits(inner(upstream)), policy: policy, body: body}
}

// passage is how far a request came.
type passage struct {
	attempt *Attempt // of one that waited; nil: its client waits for the answer
	reached bool     // the upstream
	err     error    // why it did not, though there was room
}

type passageKey struct{}

// inner is the upstream behind the limits: what comes here has room.
func inner(upstream http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, is := r.Context().Value(passageKey{}).(*passage); is {
			if p.attempt != nil {
				if p.err = p.attempt.Begin(); p.err != nil {
					return
				}
			}
			p.reached = true
		}
		upstream.ServeHTTP(w, r)
	})
}

func (f *Front) pass(w http.ResponseWriter, r *http.Request, p *passage) {
	f.limited.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passageKey{}, p)))
}

// ServeHTTP serves a client.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id, is := strings.CutPrefix(r.URL.Path, StatusPath); is {
		f.serveStatus(w, r, id)
		return
	}
	held := &denial{ResponseWriter: w, passage: &passage{}}
	f.pass(held, r, held.passage)
	if held.denied && !f.deferred(w, r) {
		held.release()
	}
}

// denial holds back a 429 of the limits, which may not be the last word.
type denial struct {
	http.ResponseWriter
	*passage
	denied bool
	body   bytes.Buffer
}

// Unwrap is for http.ResponseController.
func (d *denial) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func (d *denial) WriteHeader(code int) {
	if d.denied = code == http.StatusTooManyRequests && !d.reached; !d.denied {
		d.ResponseWriter.WriteHeader(code)
	}
}

func (d *denial) Write(b []byte) (int, error) {
	if d.denied {
		return d.body.Write(b)
	}
	return d.ResponseWriter.Write(b)
}

// release lets the client have the denial.
func (d *denial) release() {
	d.ResponseWriter.WriteHeader(http.StatusTooManyRequests)
	_, _ = d.ResponseWriter.Write(d.body.Bytes())
}

// idempotent says that HTTP has a method done twice do what it does once (RFC 9110,
// section 9.2.2).
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// deferred has a denied request wait, and says so; false: it may not.
func (f *Front) deferred(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodConnect || r.Header.Get("Upgrade") != "" || !idempotent(r.Method) && r.Header.Get(IdempotencyKey) == "" {
		return false
	}
	terms, may := f.policy(r, w.Header())
	if !may || r.ContentLength > f.body {
		return false
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, f.body+1))
	if err != nil || int64(len(body)) > f.body {
		return false
	}
	wait := &Request{ID: NewID(), Tenant: terms.Tenant, Client: r.RemoteAddr, HTTP: r, Body: body}
	if terms.For > 0 {
		wait.Expires = f.queue.cfg.Now().Add(terms.For)
	}
	if err := f.queue.Put(r.Context(), wait); err != nil {
		if !errors.Is(err, ErrFull) && !errors.Is(err, ErrTooLarge) {
			f.queue.log.Warn("a denied request does not wait", "err", err)
		}
		return false
	}
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Location", StatusPath+wait.ID)
	writeJSON(w, http.StatusAccepted, map[string]any{
		"id": wait.ID, "state": Queued, "status_url": StatusPath + wait.ID, "expires": wait.Expires.UTC(),
	})
	return true
}

func (f *Front) serveStatus(w http.ResponseWriter, r *http.Request, id string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, fmt.Errorf("method %s: want GET", r.Method))
		return
	}
	s, err := f.queue.Status(r.Context(), id)
	if err != nil {
		fail(w, statusOf(err), err)
		return
	}
	if !s.over() {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, http.StatusOK, &s)
}

// statusOf is the HTTP status of an error of a Queue's.
func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrUnknown):
		return http.StatusNotFound
	case errors.Is(err, ErrFull):
		return http.StatusTooManyRequests
	case errors.Is(err, ErrUnavailable):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func fail(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/problem+json")
	writeBody(w, status, map[string]any{"title": http.StatusText(status), "status": status, "detail": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	writeBody(w, status, v)
}

func writeBody(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // to a client that may be gone
}

// Send does a request that waited, if the limits have room: it is a Send.
func (f *Front) Send(ctx context.Context, a *Attempt) Outcome {
	p, w := &passage{attempt: a}, &sink{header: http.Header{}}
	r := a.HTTP.Clone(ctx)
	r.RemoteAddr, r.Body, r.ContentLength = a.Client, io.NopCloser(bytes.NewReader(a.Body)), int64(len(a.Body))
	f.pass(w, r, p)
	out := Outcome{Status: w.status, Wait: retryAfter(w.header, f.queue.cfg.Now()), Err: p.err}
	if p.reached && out.Status == 0 {
		out.Status = http.StatusOK // as net/http has it
	}
	return out
}

// retryAfter is what a response says of when to come again; 0: nothing.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// sink is a response that nobody waits for.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header { return s.header }

func (s *sink) WriteHeader(code int) {
	if s.status == 0 && code >= 200 { // what is below is not the answer yet
		s.status = code
	}
}

func (s *sink) Write(b []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	return len(b), nil
}
