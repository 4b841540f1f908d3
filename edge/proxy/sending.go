package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// A request that was admitted goes to the upstream once, and once more where it met the end of
// a kept connection: servers close these when they please, as they restart above all, and
// nothing tells whether they had begun with it. So that is done, on a connection of its own, if
// it is certain that they had not, or if it may be repeated by its method (GET), or by its
// Idempotency-Key, and has no body (RFC 9110, section 9.2.2; nginx does the same). net/http
// would send those again on the next kept connection, as long as there are any: one token would
// be as many requests, and one that the upstream dies of would come to all its workers. Of HTTP/2
// it is the upstream that says so, of a stream (GOAWAY, REFUSED_STREAM; net/http takes
// PROTOCOL_ERROR for that, too): there net/http may send it once more, and no oftener.

var (
	errAgain   = errors.New("the connection to the upstream ended before it answered")
	errRefused = errors.New("the upstream refused the request's stream twice")
)

// maxStreams is how often a request is sent over HTTP/2.
const maxStreams = 2

// RoundTrip implements http.RoundTripper, for one request.
func (x *exchange) RoundTrip(out *http.Request) (*http.Response, error) {
	p := x.proxy
	res, ended, err := x.try(x.way, out)
	if err == nil || !ended || out.Body != nil && out.Body != http.NoBody || !repeatable(out) && !x.conn.up.untaken() || out.Context().Err() != nil {
		return res, err
	}
	p.cfg.Metrics.again.Inc()
	res, _, err = x.try(p.fresh, out)
	return res, err
}

// repeatable says that to do a request twice comes to the same as once, by what it says itself.
func repeatable(out *http.Request) bool {
	switch out.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return out.Header["Idempotency-Key"] != nil || out.Header["X-Idempotency-Key"] != nil
}

// try sends the request. ended says that it was on a connection of HTTP/1 that others had used,
// and that this ended before an answer began.
func (x *exchange) try(transport http.RoundTripper, out *http.Request) (res *http.Response, ended bool, err error) {
	// Once the answer is there it is for its reader to end, as out's own context does.
	ctx, cancel := context.WithCancelCause(out.Context())
	var streams atomic.Int32
	var kept, broke atomic.Bool
	x.conn = nil
	if x.body != nil {
		x.body.endBy(func() { cancel(errCrowded) })
	}
	var on *route
	if to, ok := transport.(*line); ok {
		on = to.route()
		transport = on
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			c, ok := got.Conn.(*headerConn)
			switch {
			case !ok && streams.Load() >= maxStreams:
				cancel(errRefused)
			case !ok: // HTTP/2
				if on != nil {
					on.goes(got.Conn)
				}
			case x.conn != nil: // not all that net/http repeats for is told by the connection
				x.conn.up.end(false)
				c.up.end(false)
				broke.Store(true)
				cancel(errAgain)
			default:
				x.conn = c
				kept.Store(got.Reused)
				c.listen(func(err error) {
					broke.Store(true)
					cancel(err)
				})
			}
		},
		WroteHeaders: func() { streams.Add(1) },
	})
	res, err = transport.RoundTrip(out.WithContext(ctx))
	if errors.Is(err, context.Canceled) && out.Context().Err() == nil { // HTTP/2 does not say why
		err = context.Cause(ctx)
	}
	return res, kept.Load() && broke.Load(), err
}
