package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// A request that was admitted goes to the upstream once. net/http would send it again each
// time that a kept connection ends before an answer begins, on the next kept one, as long
// as there are any: all that can be repeated by its method (GET), or its Idempotency-Key,
// and has no body. One token would be as many requests, and one that the upstream dies of
// would come to all its workers. So that is kept from it here; and where it is certain that
// nothing was handled the request is sent once more, on a connection of its own. Of HTTP/2
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
	res, kept, err := x.try(p.transport, out)
	if err == nil || !kept || out.Body != nil && out.Body != http.NoBody || !x.conn.up.untaken() || out.Context().Err() != nil {
		return res, err
	}
	p.cfg.Metrics.again.Inc()
	res, _, err = x.try(p.fresh, out)
	return res, err
}

// try sends the request. kept says that it was on a connection of HTTP/1 that others had used.
func (x *exchange) try(transport http.RoundTripper, out *http.Request) (res *http.Response, kept bool, err error) {
	// Once the answer is there it is for its reader to end, as out's own context does.
	ctx, cancel := context.WithCancelCause(out.Context())
	var streams atomic.Int32
	x.conn = nil
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			c, ok := got.Conn.(*headerConn)
			switch {
			case !ok && streams.Load() >= maxStreams:
				cancel(errRefused)
			case !ok: // HTTP/2
			case x.conn != nil: // not all that net/http repeats for is told by the connection
				x.conn.up.end(false)
				c.up.end(false)
				cancel(errAgain)
			default:
				x.conn, kept = c, got.Reused
				c.listen(cancel)
			}
		},
		WroteHeaders: func() { streams.Add(1) },
	})
	res, err = transport.RoundTrip(out.WithContext(ctx))
	if errors.Is(err, context.Canceled) && out.Context().Err() == nil { // HTTP/2 does not say why
		err = context.Cause(ctx)
	}
	return res, kept, err
}
