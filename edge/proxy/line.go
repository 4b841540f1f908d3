package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// line is the way to the upstream. A connection of HTTP/2 has many requests, and of one that died
// without a word each would wait for its whole timeout. So where nothing came on it for a while
// since a request went, the next ones go by another transport, on a connection of its own. So they do
// where the upstream takes nothing more of a body for a while: what is not taken fills a window
// that all bodies share (RFC 9113, section 5.2). What
// went before lasts: an upstream may be at work, and streams may be silent, which pings do not
// tell from a death: a busy event loop answers none, and servers of gRPC close connections on
// which they come (too_many_pings). Dead ones are for TCP to find (leaveDead).
type line struct {
	start func() *http.Transport
	quiet time.Duration // for how long nothing comes
	on    atomic.Pointer[route]
}

// route is a transport of a line.
type route struct {
	*http.Transport
	last atomic.Pointer[upstreamConn] // that a request went on over HTTP/2
	full atomic.Bool                  // a body waits on one for the upstream to take more, or many have left it
	left atomic.Int32                 // requests over HTTP/2 that ended before an answer began
}

// leaves is that a request ended before its answer: each is a stream that is reset, and of those
// servers take only so many on a connection, as their work may go on (Go's net/http: 1,000 beyond
// what runs; CVE-2023-44487).
func (r *route) leaves() {
	if r.left.Add(1) >= mostLeft {
		r.full.Store(true)
	}
}

func newLine(cfg *Config, window int) *line {
	l := &line{start: func() *http.Transport { return newTransport(cfg, window) }, quiet: min(quietAfter, cfg.Timeout)}
	l.on.Store(&route{Transport: l.start()})
	return l
}

// RoundTrip implements http.RoundTripper. An exchange asks for the route.
func (l *line) RoundTrip(out *http.Request) (*http.Response, error) { return l.route().RoundTrip(out) }

// route is the one for the next request.
func (l *line) route() *route {
	now := l.on.Load()
	if c := now.last.Load(); !now.full.Load() && (c == nil || !c.silent(l.quiet)) {
		return now
	}
	l.on.CompareAndSwap(now, &route{Transport: l.start()}) // else another did; what is idle closes by itself
	return l.on.Load()
}

// goes is that a request goes on a connection of HTTP/2 next.
func (r *route) goes(c net.Conn) {
	if up := upstreamOf(c); up != nil {
		up.asked.CompareAndSwap(0, time.Now().UnixNano())
		r.last.Store(up)
	}
}

// upstreamOf is what a connection of HTTP/2 is beneath.
func upstreamOf(c net.Conn) *upstreamConn {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	up, _ := c.(*upstreamConn)
	return up
}

// settled waits until a connection's settings are read, which say how many streams it has: net/http
// takes it to have 100 until then, and those beyond would be refused.
func settled(ctx context.Context, c net.Conn) {
	up := upstreamOf(c)
	if up == nil {
		return
	}
	select {
	case <-up.settled: // as it is of all but new ones
		return
	default:
	}
	if up.used.CompareAndSwap(false, true) {
		return // one stream it has
	}
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-up.settled:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// silent says that nothing came for so long since a request went.
func (c *upstreamConn) silent(most time.Duration) bool {
	since := c.asked.Load()
	return since > 0 && time.Now().UnixNano()-since > int64(most)
}

// Read implements net.Conn. As long as something comes the upstream may take nothing more.
func (c *upstreamConn) Read(b []byte) (int, error) {
	if c.heard.Load() { // and what came is read
		c.once.Do(func() { close(c.settled) })
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		if c.writing.Load() {
			_ = c.SetWriteDeadline(time.Now().Add(c.timeout)) // who cannot, could not before
		}
		c.asked.Store(0)
		c.heard.Store(c.open.Load())
	}
	return n, err
}
