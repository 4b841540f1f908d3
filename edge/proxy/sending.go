package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
)

// A request that was admitted goes to the upstream once, and once more where it met the end of
// a kept connection: servers close these when they please, as they restart above all, and
// nothing tells whether they had begun with it. So that is done, on a connection of its own, if
// it is certain that they had not, or if it may be repeated by its method (GET), or by its
// Idempotency-Key, and has no body (RFC 9110, section 9.2.2; nginx does the same). net/http
// would send those again on the next kept connection, as long as there are any: one token would
// be as many requests, and one that the upstream dies of would come to all its workers. Of HTTP/2
// it is the upstream that says so, of a stream (GOAWAY, REFUSED_STREAM; net/http takes
// PROTOCOL_ERROR for that, too): there net/http sends it once more, and then it goes on a
// connection of its own, for the last time, with as much of its body as is kept (again.go). What
// net/http gave no stream to, as its connection has no more, was not sent.

var (
	errAgain   = errors.New("the connection to the upstream ended before it answered")
	errEnded   = errors.New("the upstream ended the request's stream before it answered")
	errRefused = errors.New("the upstream refused the request's stream")
	errAlone   = errors.New("the upstream speaks HTTP/2 alone")
	errUntaken = fmt.Errorf("the upstream takes nothing more of the request: %w", os.ErrDeadlineExceeded)
)

// maxStreams is how often a request is sent over HTTP/2 before it has a connection of its own.
const maxStreams = 2

// RoundTrip implements http.RoundTripper, for one request.
func (x *exchange) RoundTrip(out *http.Request) (*http.Response, error) {
	p := x.proxy
	if x.shares && p.shared.Load() {
		size := sizeOf(out)
		if x.alone, x.many = p.takes.alone(size, out), size.fields > mostTaken.fields; x.alone.detail != "" {
			res, _, err := x.try(x.fresh(), 1, out)
			if err == nil {
				p.takes.raise(size)
			}
			return res, err
		}
	}
	var res *http.Response
	var ended bool
	err := errAlone
	if x.shares || out.Header["Upgrade"] == nil || p.spoken == nil || !p.spoken.isAlone() {
		res, ended, err = x.try(x.way, maxStreams, out)
		x.heard(err)
	}
	if errors.Is(err, errAlone) && !x.shares { // nothing was sent
		if out.Header["Upgrade"] != nil { // over HTTP/2 it cannot switch; and it may speak HTTP/1, and not say so
			res, _, err = x.try(x.fresh(), 1, out)
			x.heard(err)
			if err == nil || !x.goesWithout(out, err) {
				x.switches = err != nil && x.conn != nil
				return res, err
			}
			httpapi.DropUpgrade(out.Header)
		}
		x.way, x.leave = p.overHTTP2(x.who)
		x.shares = true
		res, ended, err = x.try(x.way, maxStreams, out)
	}
	if err != nil && endedFor(err) {
		p.takes.reset()
	}
	switch {
	case err == nil || out.Context().Err() != nil:
		return res, err
	case errors.Is(err, errRefused):
		if x.body != nil && x.body.again() != nil {
			return res, err
		}
	case !ended || !bare(out) || !repeatable(out) && !x.conn.up.untaken():
		return res, err
	}
	p.cfg.Metrics.again.Inc()
	res, _, err = x.try(x.fresh(), 1, out)
	return res, err
}

// heard notes of a try what the upstream speaks.
func (x *exchange) heard(err error) {
	if s := x.proxy.spoken; s != nil && err == nil && !x.shares {
		s.speaksHTTP1()
	}
}

// fresh is a connection of its own.
func (x *exchange) fresh() *http.Transport {
	t := x.proxy.fresh()
	if !x.shares {
		t.Protocols.SetHTTP2(false)
	}
	return t
}

// goesWithout says that a request to switch, which failed over HTTP/1, may go over HTTP/2 without that:
// it was not taken, or may be repeated.
func (x *exchange) goesWithout(out *http.Request, err error) bool {
	switch {
	case out.Context().Err() != nil:
		return false
	case x.conn == nil:
		return x.proxy.spoken.refuses(err)
	case !bare(out):
		return false
	}
	return answersInHTTP2(err) || repeatable(out) && !isTimeout(err)
}

// bare says that a request has no body.
func bare(out *http.Request) bool { return out.Body == nil || out.Body == http.NoBody }

// repeatable says that to do a request twice comes to the same as once, by what it says itself.
func repeatable(out *http.Request) bool {
	switch out.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return out.Header["Idempotency-Key"] != nil || out.Header["X-Idempotency-Key"] != nil
}

// try sends the request, over HTTP/2 so often at the most. ended says that it was on a connection of
// HTTP/1 that others had used, and that this ended before an answer began.
func (x *exchange) try(transport http.RoundTripper, most int32, out *http.Request) (res *http.Response, ended bool, err error) {
	// Once the answer is there it is for its reader to end, as out's own context does.
	from := out.Context()
	parent := from
	if x.answer.body != nil { // net/http takes it for the client's leaving, where that is read no more
		parent = context.WithoutCancel(from)
	}
	ctx, cancel := context.WithCancelCause(parent)
	if parent != from {
		context.AfterFunc(from, func() {
			if !x.body.wasStopped() {
				cancel(context.Cause(from))
			}
		})
	}
	var streams atomic.Int32
	var kept, broke atomic.Bool
	x.conn = nil
	if x.body != nil {
		x.body.endBy(func() { cancel(errCrowded) })
	}
	// net/http counts the time for an answer over HTTP/2 from when all is sent; until then the
	// upstream may take nothing for as long, by its window or its streams.
	var answer atomic.Pointer[io.ReadCloser]
	taking := &due{most: x.proxy.cfg.Timeout, late: func() {
		cancel(errUntaken)
		if begun := answer.Load(); begun != nil { // then net/http does not look at ctx while it waits
			go (*begun).Close()
		}
	}}
	var on *route
	var counts atomic.Bool // it is one of the route's
	over := &stream{sent: x.body == nil}
	if to, ok := transport.(*line); ok {
		shared := x.shares && x.proxy.shared.Load()
		on = to.route(shared)
		over.on = on
		counts.Store(shared)
		transport = on
		if taking.most > fullAfter {
			taking.soon, taking.slows = fullAfter, func() { on.full.Store(true) }
		}
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			x.had.Store(true)
			c, ok := got.Conn.(*headerConn)
			switch {
			case !ok && streams.Load() >= most:
				cancel(errRefused)
			case !ok: // HTTP/2
				x.proxy.shared.Store(true)
				if on != nil {
					on.goes(got.Conn)
					if counts.CompareAndSwap(false, true) {
						on.open.Add(1)
						on.had.Add(1)
					}
				}
				if taking.start(); x.body != nil {
					x.body.taking.Store(taking)
					x.body.keepIn.Store(&x.proxy.kept)
				}
				settled(ctx, got.Conn)
			case x.conn != nil: // not all that net/http repeats for is told by the connection
				x.conn.up.end(false)
				c.up.end(false)
				broke.Store(true)
				cancel(errAgain)
			default:
				x.conn = c
				kept.Store(got.Reused)
				c.listen(x.body != nil, func(err error) {
					broke.Store(true)
					cancel(err)
				})
			}
		},
		WroteHeaders: func() { streams.Add(1) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil { // else net/http has let go of it, and the upstream may wait for the rest
				over.wrote()
				taking.stop()
			}
		},
	})
	out = out.WithContext(ctx)
	if x.body != nil && x.proxy.cfg.Upstream.Scheme != "http" {
		// net/http lets go of a body where its stream has ended, as with its connection, and waits then
		// for who reads it, before it says so, unless it has all of the answer: he may wait for a client
		// that is silent.
		ended := func(turn int64) {
			time.AfterFunc(abortTime, func() {
				switch {
				case x.body.taking.Load() != taking || x.body.turn.Load() != turn:
				case answer.Load() == nil:
					cancel(errEnded)
				default:
					x.body.stop()
				}
			})
		}
		out.Body = x.body.sends(ended)
		out.GetBody = func() (io.ReadCloser, error) {
			if err := x.body.again(); err != nil {
				return nil, err
			}
			return x.body.sends(ended), nil
		}
	}
	res, err = transport.RoundTrip(out)
	if counts.Load() {
		if err != nil {
			over.end(streams.Load() > 0, false)
		} else {
			over.ReadCloser, res.Body = res.Body, over
		}
	}
	if err == nil {
		begun := res.Body // which others may stand around
		if answer.Store(&begun); context.Cause(ctx) == errUntaken {
			_ = res.Body.Close() // what it says is that
			res, err = nil, errUntaken
		}
	}
	// Then it takes the rest when it likes, as streams do, if it is seen where the client leaves.
	if err != nil || x.answer.body == nil {
		taking.end()
	}
	if errors.Is(err, context.Canceled) { // HTTP/2 does not say why
		switch err = from.Err(); {
		case err != nil:
		case context.Cause(ctx) != nil:
			err = context.Cause(ctx)
		default: // another's end, whose connection it was: net/http may hear of that late
			err = errAgain
			broke.Store(true)
		}
	}
	return res, kept.Load() && broke.Load(), err
}
