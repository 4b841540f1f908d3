package deferred

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// StatusPath is where clients ask what became of a request: its id follows.
const StatusPath = "/.well-known/spillgate/deferred/"

// DefaultBody is the largest body that is kept.
const DefaultBody = 512 << 10

// Front stands before a site, which is an upstream behind its limits: it has what these
// deny wait, where the rule that denies says so (on_limit: {defer: ...}), and does it
// later. The site denies with 429 and Retry-After, and calls Denied and Admitted. What HTTP
// does not call idempotent waits with an Idempotency-Key of its own alone, whatever a rule
// says, and so does all else where the rule does not name its method.
type Front struct {
	site  http.Handler
	cfg   FrontConfig
	log   *slog.Logger
	held  *httpapi.Room         // of bodies in memory
	asks  atomic.Int64          // when JetStream, which is away, may be asked again, ns since 1970; 0: it is there
	full  filled                // tenants of which no more may wait
	reads atomic.Int64          // the places of reads that were given, to when, ns since 1970
	queue atomic.Pointer[Queue] // nil: not open yet, or no more
	reach reach                 // whether the upstream can be reached

	trouble atomic.Pointer[trouble] // nil: it was not asked yet
}

// FrontConfig says what of a request is kept.
type FrontConfig struct {
	// Body is the largest body that is kept; 0: DefaultBody. A request of a larger one is
	// denied as without a Front.
	Body int64
	// Held is what all bodies of requests that are about to wait may take of memory at
	// once, and one client's address a fourth of that; 0: DefaultHeld. Beyond it requests are
	// denied.
	Held int64
	// TrustedProxies may take all of it: they ask for many.
	TrustedProxies httpapi.Proxies
	// ClientTimeout is how long a body may take to come, whole; 0: a minute. Who is
	// slower is denied then.
	ClientTimeout time.Duration
	// Timeout is how long the upstream may take with one that waited, from when it is asked
	// to the beginning of its answer; 0: DefaultSendTimeout. It has failed then.
	Timeout time.Duration
	// Room says whether the upstream has any, as far as is known: nothing that waits is done
	// while it has none. Nil: it has.
	Room func() bool
	// Reads is how many a second may ask what became of a request; 0: DefaultReads. Others
	// are told to come again.
	Reads int
	// Origins are those whose pages may read what became of a request, as what the site answers.
	Origins httpapi.Origins
	// Metrics counts; nil: it is not exported.
	Metrics *Metrics
	// Logger hears of what does not wait though there was room; nil: nobody does.
	Logger *slog.Logger
}

// DefaultHeld bounds the bodies that are held in memory at once.
const DefaultHeld = 64 << 20

// DefaultSendTimeout is how long an upstream may take to begin its answer.
const DefaultSendTimeout = 2 * time.Minute

// DefaultReads bounds what clients have read of JetStream in a second, by an edge: it takes
// some 10,000 of them.
const DefaultReads = 1000

// NewFront is a front of a site. Nothing waits until Run has opened a queue.
func NewFront(site http.Handler, cfg FrontConfig) *Front {
	def(&cfg.Body, DefaultBody)
	def(&cfg.Held, DefaultHeld)
	def(&cfg.ClientTimeout, time.Minute)
	def(&cfg.Timeout, DefaultSendTimeout)
	def(&cfg.Reads, DefaultReads)
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Front{site: site, cfg: cfg, log: cfg.Logger, held: httpapi.NewRoom(cfg.Held, nil)}
}

// open is the queue.
func (f *Front) open() (*Queue, error) {
	if q := f.queue.Load(); q != nil {
		return q, nil
	}
	if err := f.Trouble(); err != nil {
		return nil, err
	}
	return nil, errUnasked // it is about to be open
}

// passage is how far a request came.
type passage struct {
	attempt *Attempt // of one that waited; nil: its client waits for the answer
	sink    *sink    // of its answer
	reached bool     // the upstream
	front   *Front   // nil: of one that waited
	client  http.ResponseWriter
	who     netip.Addr    // whom its memory is counted for
	body    []byte        // of one that may wait
	tenant  string        // whose queue it may wait in
	wait    time.Duration // for how long; 0: it may not. Of one that waited, when there may be room
	every   time.Duration // of one that waited: one of its tenant's passes in this time; 0: not known
	by      string        // of one that waited: the limit that denied it; see Outcome.By
	err     error         // why it did not, though there was room
}

type passageKey struct{}

func passageOf(r *http.Request) *passage {
	p, _ := r.Context().Value(passageKey{}).(*passage)
	return p
}

// Admitted is what a site calls with each request that has room, right before the upstream
// is asked, which it must not be where that fails.
func Admitted(r *http.Request) error {
	p := passageOf(r)
	if p == nil {
		return nil
	}
	if p.attempt != nil {
		if p.err = p.attempt.Begin(); p.err != nil {
			return p.err
		}
		p.sink.begin()
	}
	p.reached = true
	return nil
}

// Denied is what a site calls with each request that a rule denies, before it says so:
// httpapi.Config.Denied. A tenant, of which so many requests wait, is a key of that rule's.
// The body of one that may wait is read here, as its connection may serve no further once
// the denial is on its way.
func Denied(r *http.Request, req *limit.Request, d *limit.Decision) {
	p := passageOf(r)
	if p != nil && p.attempt != nil {
		p.wait, p.every = pace(d)
		p.by = limitOf(req, d)
		return
	}
	if p == nil || p.front == nil || d.Rule == nil || d.Rule.Defers(r.Method) <= 0 || !mayWait(r, len(d.Rule.Defer.Methods) > 0) {
		return
	}
	p.tenant = d.Rule.Namespace + " " + d.Rule.Name + " " + d.Rule.KeyText(req)
	if why := p.front.takes(p, r); why != resultKept {
		p.front.cfg.Metrics.requests[why].Inc()
		return
	}
	p.wait = d.Rule.Defers(r.Method)
}

// Replayed says that a request of a site's has waited: it is asked about once more, and no
// client's. It is httpapi.Config.Replayed.
func Replayed(r *http.Request) bool {
	p := passageOf(r)
	return p != nil && p.attempt != nil
}

// pace is when there may be room for what was denied, and how far apart such requests pass
// then; 0: that is not known, as of slots, which come back when others end.
func pace(d *limit.Decision) (wait, every time.Duration) {
	rate := d.Rate
	switch {
	case rate == nil: // whatever it is, until the rules change
		return retryMost, 0
	case rate.Lease > 0:
		return 0, 0 // Retry-After tells
	case rate.Drain.Refill > 0:
		every = part(rate.Drain.Per, d.Cost, rate.Drain.Refill)
	case rate.Limit > 0:
		every = part(rate.Window, d.Cost, rate.Limit)
	}
	return max(d.RetryAfter, retryLeast), every
}

// limitOf names the limit that denied a request, and denies all that cost as much: of a dearer
// one it says nothing about others, and so it is where a limit goes by more than its room.
func limitOf(req *limit.Request, d *limit.Decision) string {
	if d.Rule == nil || d.Rate == nil || !d.Rule.Plain() {
		return ""
	}
	return brief(fmt.Sprintf("%s %s %s %d/%d %s", d.Rule.Namespace, d.Rule.Name, d.Rate.Policy, d.Cost, d.Limit, d.Rule.KeyText(req)))
}

// part is so much of a time, but no more than retryMost.
func part(of time.Duration, cost, limit uint64) time.Duration {
	return time.Duration(min(float64(of)*float64(cost)/float64(limit), float64(retryMost)))
}

// mayWait says that a request may be done later: it has a key of its client's, by whom it may
// be done twice, or is of a method that HTTP lets be done twice, and that its rule names. Not
// without the rule's word: what waits may be done after a later request that found room, and a
// PUT then undoes what that wrote.
func mayWait(r *http.Request, named bool) bool {
	if r.Method == http.MethodConnect || httpapi.AsksToSwitch(r) || strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") { // which knows no 202
		return false
	}
	return clientKey(r) != "" || named && idempotent(r.Method)
}

// takes has a request that may wait read, if there is somebody to keep it.
func (f *Front) takes(p *passage, r *http.Request) result {
	switch {
	case r.ContentLength > f.cfg.Body:
		return resultLarge
	case f.queue.Load() == nil || f.asks.Load() > time.Now().UnixNano():
		return resultAway
	case f.full.is(p.tenant, time.Now()):
		return resultFull
	}
	return f.read(p, r)
}

func (f *Front) pass(w http.ResponseWriter, r *http.Request, p *passage) {
	f.site.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passageKey{}, p)))
}

// ServeHTTP serves a client.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id, is := strings.CutPrefix(r.URL.Path, StatusPath); is {
		f.serveStatus(w, r, id)
		return
	}
	held := &denial{ResponseWriter: w, passage: &passage{front: f, client: w, who: httpapi.Caller(r.RemoteAddr, f.cfg.TrustedProxies)}}
	defer func() { f.held.Give(held.who, int64(cap(held.body))) }()
	f.pass(held, r, held.passage)
	if held.denied && !f.deferred(w, r, held.passage) {
		held.release()
	}
}

// denial holds back a 429 of the limits, which may not be the last word.
type denial struct {
	http.ResponseWriter
	*passage
	denied bool
	says   bytes.Buffer
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
		return d.says.Write(b)
	}
	return d.ResponseWriter.Write(b)
}

// release lets the client have the denial.
func (d *denial) release() {
	d.ResponseWriter.WriteHeader(http.StatusTooManyRequests)
	_, _ = d.ResponseWriter.Write(d.says.Bytes())
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
func (f *Front) deferred(w http.ResponseWriter, r *http.Request, p *passage) bool {
	if p.wait <= 0 {
		return false
	}
	queue, err := f.open()
	wait := &Request{ID: NewID(), Tenant: p.tenant, Client: r.RemoteAddr, HTTP: r, Body: p.body}
	var first *Status // of the same request, where it waits already
	if err == nil && !f.mayAsk(queue) {
		err = ErrUnavailable // which was told
	} else if err == nil {
		wait.Expires = queue.cfg.Now().Add(p.wait)
		if first, err = f.keep(r.Context(), queue, wait); !errors.Is(err, ErrUnavailable) {
			f.asks.Store(0)
		} else if r.Context().Err() == nil && f.asks.Swap(time.Now().Add(pullWait).UnixNano()) == 0 {
			f.log.Warn("denied requests do not wait until JetStream answers", "err", err)
		}
	}
	why := resultOf(err)
	if why == resultFull {
		f.full.was(p.tenant, time.Now())
	}
	if why == resultKept && first != nil {
		why = resultAgain
	}
	if f.cfg.Metrics.requests[why].Inc(); why == resultMalformed {
		f.log.Warn("a denied request does not wait", "err", err)
	}
	if err != nil {
		return false
	}
	state := Queued
	if first != nil {
		state, wait.Expires = first.State, first.Expires
	}
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Location", StatusPath+wait.ID)
	writeJSON(w, http.StatusAccepted, map[string]any{
		"id": wait.ID, "state": state, "status_url": StatusPath + wait.ID, "expires": wait.Expires.UTC(),
	})
	return true
}

// resultOf is what an error of a Queue's Put means.
func resultOf(err error) result {
	switch {
	case err == nil:
		return resultKept
	case errors.Is(err, ErrFull):
		return resultFull
	case errors.Is(err, ErrTooLarge):
		return resultLarge
	case errors.Is(err, ErrUnavailable):
		return resultAway
	}
	return resultMalformed
}

// mayAsk says that JetStream is there, as far as is known. While it is away denials are
// told at once: one a second asks for it, and none where there is no connection.
func (f *Front) mayAsk(queue *Queue) bool {
	if !queue.js.Conn().IsConnected() {
		return false
	}
	switch now, at := time.Now(), f.asks.Load(); {
	case at == 0:
		return true
	case at > now.UnixNano():
		return false
	default:
		return f.asks.CompareAndSwap(at, now.Add(pullWait).UnixNano())
	}
}
