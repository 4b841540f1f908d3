package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/edge/client"
)

// RemoteConfig is how requests are limited by an edge elsewhere. The zero value is usable.
type RemoteConfig struct {
	// Namespace is whose rules are meant. Default: the edge's only one, or its default.
	Namespace string

	// TrustedProxies are the networks whose X-Forwarded-For is believed. Default: none.
	TrustedProxies Proxies

	// Headers are those of a request that rules read, such as X-User-Id. The edge is told of
	// no others: they hold what should not leave the program. Default: none.
	Headers []string

	// Logger gets why requests are not decided, once a minute. Default: nowhere.
	Logger *slog.Logger

	// Metrics counts requests about which nothing was decided, as errors; the edge counts
	// the others. Default: counted and not exported.
	Metrics *Metrics
}

// Validate reports every mistake, each by its field.
func (c *RemoteConfig) Validate() error {
	proxies := Config{TrustedProxies: c.TrustedProxies}
	errs := []error{proxies.Validate()}
	for i, name := range c.Headers {
		if name == "" || strings.ContainsAny(name, " \t\r\n:") {
			errs = append(errs, fmt.Errorf("Headers[%d]: %q is not the name of a header (such as X-User-Id)", i, name))
		}
	}
	if len(c.Headers) > mostHeaders {
		errs = append(errs, fmt.Errorf("Headers: %d are too many (%d at the most)", len(c.Headers), mostHeaders))
	}
	return errors.Join(errs...)
}

// mostHeaders are so many that with what all requests have an edge takes them.
const mostHeaders = maxAttributes - 4

// Remote limits requests by an edge that is asked over a network. It is safe for concurrent
// use.
//
// It is middleware as an API is over a limiter of the same process, but for what a check over
// a network does not give: slots of concurrency limits come back with their leases, rules
// with count_when count nothing, the place in a queue of a request that ends before its turn
// stays taken, and a cost that comes from a header counts as its rule's default.
type Remote struct {
	limiter client.Limiter
	cfg     RemoteConfig
	headers []remoteHeader
	warned  [outcomes]atomic.Int64 // when each was last logged, Unix seconds
}

// outcome is why nothing was decided about a request.
type outcome uint8

const (
	outcomeFault   outcome = iota // the edge failed, or was not reached
	outcomeSetup                  // it does not serve whom this program's settings name
	outcomeRefused                // no edge can be told of the request
	outcomeGone                   // the caller went
	outcomes
)

var outcomeNames = [outcomes]string{undecidedFault, undecidedSetup, "refused", "gone"}

type remoteHeader struct{ canonical, lower, attribute string }

// NewRemote returns one over a limiter.
func NewRemote(limiter client.Limiter, cfg RemoteConfig) (*Remote, error) {
	if isNil(limiter) {
		return nil, errors.New("there is no limiter: the error of what should have made it (client.NewHTTP, grpcclient.New) says why")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("remote config: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	m := &Remote{limiter: limiter, cfg: cfg}
	for _, name := range cfg.Headers {
		name = textproto.CanonicalMIMEHeaderKey(name)
		m.headers = append(m.headers, remoteHeader{name, strings.ToLower(name), "header." + name})
	}
	return m, nil
}

// Middleware limits a handler of this process. Denied requests get what the edge says: its
// rule's status, headers, and problem+json; calls of gRPC a status of gRPC. Where nothing is decided they pass, and their
// answers have UndecidedField, or, where the limiter fails closed, get 503. Those that no edge can be told of never pass, as they would
// be counted by nobody: what is longer than an edge takes gets 414 or 431, and what is not
// UTF-8 400 (here it would be counted as it is, and JSON and protocol buffers have no such
// text).
func (m *Remote) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clientIP, believed := peerOf(r, m.cfg.TrustedProxies)
		if believed {
			clientIP = clientOf(r.Header[forwardedFor], clientIP, m.cfg.TrustedProxies)
		}
		attributes := requested(r.Method, targetOf(r), r.Host, clientIP)
		for _, h := range m.headers {
			if v := r.Header[h.canonical]; len(v) > 0 {
				attributes[h.attribute] = v[0]
			}
		}
		reply, err := m.ask(r.Context(), client.Check{Namespace: m.cfg.Namespace, Attributes: attributes})
		for name, value := range reply.Headers {
			w.Header().Set(name, value)
		}
		var refused *client.Mistake
		switch {
		case errors.As(err, &refused) && GRPC(r):
			WriteCallProblem(w, r, refused.HTTPStatus(), true, refused.Detail)
		case errors.As(err, &refused):
			writeProblem(w, &problem{status: refused.HTTPStatus(), detail: refused.Detail})
		case err != nil:
			TurnPassed(w)
		case !reply.Allowed:
			m.deny(w, r, &reply)
		case !waited(r.Context(), reply.Delay):
			TurnPassed(w)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Decide decides about a call, waits for its turn, and says how it stands. Its error is
// ErrGone where the call ends before its turn, or a *client.Mistake where no edge can be told
// of it: neither is to be served.
func (m *Remote) Decide(ctx context.Context, call *Call) (client.Reply, error) {
	clientIP, believed := senderAt(call.Peer, m.cfg.TrustedProxies)
	if believed {
		clientIP = clientOf(call.Metadata["x-forwarded-for"], clientIP, m.cfg.TrustedProxies)
	}
	attributes := requested(call.Method, call.Path, call.Host, clientIP)
	for _, h := range m.headers {
		if v := call.Metadata[h.lower]; len(v) > 0 {
			attributes[h.attribute] = v[0]
		}
	}
	reply, err := m.ask(ctx, client.Check{Namespace: m.cfg.Namespace, Attributes: attributes, Cost: call.Cost, Peek: call.Peek})
	if err != nil {
		return reply, err
	}
	if reply.Allowed && !call.Peek && !waited(ctx, reply.Delay) {
		return reply, ErrGone
	}
	return reply, nil
}

// requested are the attributes that all requests have.
func requested(method, path, host, clientIP string) map[string]string {
	return map[string]string{"method": method, "path": path, "host": hostOnly(host), "client_ip": clientIP}
}

// ask asks the edge, and counts and logs where nothing is decided. Its error says that the
// request is not to be served, whatever the limiter is to do where it fails: ErrGone, or a
// *client.Mistake in what it says.
func (m *Remote) ask(ctx context.Context, check client.Check) (client.Reply, error) {
	reply, err := m.limiter.Check(ctx, check)
	if err == nil {
		return reply, nil
	}
	var wrong *client.Mistake
	why, text := outcomeFault, "requests are not decided"
	switch {
	case errors.As(err, &wrong) && wrong.Setup:
		why, text = outcomeSetup, "requests are not decided: the settings are wrong"
	case wrong != nil:
		why, text = outcomeRefused, "requests are refused: no edge can be told of them"
	case ended(ctx, err):
		why = outcomeGone
	}
	m.cfg.Metrics.undecided.Inc()
	m.cfg.Metrics.unasked.WithLabelValues(outcomeNames[why]).Inc()
	if why == outcomeGone {
		return client.Reply{Undecided: true}, ErrGone // who hangs up early is not served uncounted
	}
	warned := &m.warned[why]
	last, at := warned.Load(), time.Now().Unix()
	if (last == 0 || at-last >= warnEvery) && warned.CompareAndSwap(last, at) {
		m.cfg.Logger.Error(text, "err", err, "pass", reply.Allowed && why != outcomeRefused)
	}
	if why == outcomeRefused {
		return client.Reply{Undecided: true, Status: wrong.HTTPStatus()}, wrong
	}
	if reply.Allowed {
		reply.Headers = map[string]string{UndecidedField: outcomeNames[why]}
	}
	return reply, nil
}

// nearlyOver is how far a caller's deadline and that of an edge that heard of it may be apart.
const nearlyOver = 10 * time.Millisecond

// ended says that a call failed as its caller is gone, or has no time left.
func ended(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	deadline, ok := ctx.Deadline()
	return ok && errors.Is(err, context.DeadlineExceeded) && time.Until(deadline) < nearlyOver
}

// waited waits for a turn in a queue; it is false where ctx ends first, or would.
func waited(ctx context.Context, delay time.Duration) bool {
	if delay == 0 {
		return true
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < delay {
		return false
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// deny answers a denied request. It does not say what the limit is: where the rule shows it
// its headers do.
func (m *Remote) deny(w http.ResponseWriter, r *http.Request, reply *client.Reply) {
	if GRPC(r) || unaryConnect(r) {
		m.denyCall(w, r, reply)
		return
	}
	switch {
	case reply.Undecided:
		writeProblem(w, &problem{
			status: http.StatusServiceUnavailable, kind: reducedCapacity, title: "Limiter not reached",
			detail: "nobody can say whether this request may pass", retryAfter: 1,
		})
	case reply.Basis.CutOff:
		retry, _ := strconv.ParseUint(reply.Headers["Retry-After"], 10, 31) // 0 is none
		cutOff(w, retry)
	case reply.Policy == "": // of a rule that denies whatever it matches
		writeProblem(w, &problem{status: denialOf(reply, http.StatusForbidden), detail: "this request is not served"})
	default:
		status, h := denialOf(reply, http.StatusTooManyRequests), w.Header()
		h["Content-Type"], h["Cache-Control"] = problemType, noStore
		w.WriteHeader(status)
		text := append([]byte(`{"type":`), '"')
		text = append(append(text, defaultProblemType...), `","title":"Quota exceeded","status":`...)
		text = append(strconv.AppendInt(text, int64(status), 10), `,"instance":`...)
		text = appendString(text, "/v1/decisions/"+reply.DecisionID)
		if retry, err := strconv.ParseUint(reply.Headers["Retry-After"], 10, 31); err == nil {
			text = strconv.AppendUint(append(text, `,"retry_after":`...), retry, 10)
		}
		_, _ = w.Write(append(text, '}', '\n')) // a caller that is gone cannot be told so
	}
}

// denyCall is deny for a call of gRPC, or of Connect.
func (m *Remote) denyCall(w http.ResponseWriter, r *http.Request, reply *client.Reply) {
	retry, _ := strconv.ParseUint(reply.Headers["Retry-After"], 10, 31) // 0 is none
	status, code, message := denialOf(reply, http.StatusTooManyRequests), callResourceExhausted, "the limit is used up"
	switch {
	case reply.Undecided:
		status, code, message, retry = http.StatusServiceUnavailable, callUnavailable, "nobody can say whether this call may pass", 1
	case reply.Basis.CutOff:
		status, code, message = http.StatusServiceUnavailable, callUnavailable, cutOffProblem(0).detail
	case reply.Policy == "":
		status, code, message, retry = denialOf(reply, http.StatusForbidden), callPermissionDenied, "this call is not served", 0
	}
	if GRPC(r) {
		noteStatus(w, status)
		endCall(w, r, code, message, retry)
		return
	}
	endConnect(w, status, code, message, retry)
}

// denialOf is the status of a denial: whatever an edge says, no request passes by it.
func denialOf(reply *client.Reply, otherwise int) int {
	if reply.Status >= http.StatusBadRequest && reply.Status < 600 {
		return reply.Status
	}
	return otherwise
}
