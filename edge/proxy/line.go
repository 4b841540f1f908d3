package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
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
//
// And each request whose client leaves is a stream that is reset, of which servers take only so many
// on a connection, as their work may go on (CVE-2023-44487; Netty 200 in 30 s, Go's net/http 1,000
// beyond what runs, Tomcat two fifths of all): then they end it, with all others' requests. So it has no
// more requests than may be reset, those that were included.
type line struct {
	start func() *http.Transport
	quiet time.Duration // for how long nothing comes
	on    atomic.Pointer[route]

	mu   sync.Mutex // held to leave a route
	busy []*route   // guarded by mu: left as they had as many requests as they may
}

// route is a transport of a line.
type route struct {
	*http.Transport
	last atomic.Pointer[upstreamConn] // that a request went on over HTTP/2
	full atomic.Bool                  // it is left for good: a body waits on one for the upstream to take more, or many streams were reset
	had  atomic.Int32                 // requests over HTTP/2, about
	open atomic.Int32                 // of them, those that are not over
	left atomic.Int32                 // and those whose streams were reset
}

func newLine(cfg *Config, window int) *line {
	return lineOf(cfg, func() *http.Transport { return newTransport(cfg, window) })
}

// newLine1 is one over HTTP/1 to an https upstream, unless that speaks HTTP/2 alone.
func newLine1(cfg *Config, spoken *spoken) *line {
	return lineOf(cfg, func() *http.Transport {
		t := newTransport(cfg, narrowWindow)
		t.Protocols.SetHTTP2(false)
		t.DialTLSContext = spoken.dial(t)
		return t
	})
}

func lineOf(cfg *Config, start func() *http.Transport) *line {
	l := &line{start: start, quiet: min(quietAfter, cfg.Timeout)}
	l.on.Store(&route{Transport: start()})
	return l
}

// RoundTrip implements http.RoundTripper. An exchange asks for the route.
func (l *line) RoundTrip(out *http.Request) (*http.Response, error) {
	return l.route(false).RoundTrip(out)
}

// route is the one for the next request. Over HTTP/2 that is one of it until it is over.
func (l *line) route(shared bool) *route {
	if now := l.on.Load(); now.takes(l.quiet, shared) {
		return now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.on.Load()
	if now.takes(l.quiet, shared) { // another left one meanwhile
		return now
	}
	l.busy = slices.DeleteFunc(append(l.busy, now), func(r *route) bool { return !r.good(l.quiet) })
	next := &route{Transport: l.start()}
	if i := slices.IndexFunc(l.busy, func(r *route) bool { return r.open.Load() <= mostStreams/2 }); i >= 0 {
		next = l.busy[i]
		l.busy = slices.Delete(l.busy, i, i+1)
	}
	if shared {
		next.open.Add(1)
		next.had.Add(1)
	}
	l.on.Store(next)
	return next
}

// good says that requests may go by it.
func (r *route) good(quiet time.Duration) bool {
	c := r.last.Load()
	return !r.full.Load() && (c == nil || !c.silent(quiet))
}

// takes says that one more goes by it, and counts it, over HTTP/2.
func (r *route) takes(quiet time.Duration, shared bool) bool {
	switch {
	case !r.good(quiet):
		return false
	case !shared:
		return true
	case r.open.Add(1)+r.left.Load() <= mostStreams:
		if r.had.Load() < mostStreams*10 { // more say no more
			r.had.Add(1)
		}
		return true
	}
	r.open.Add(-1)
	return false
}

// over is that a request over HTTP/2 is, and whether its stream was reset.
func (r *route) over(reset bool) {
	if reset {
		if left := r.left.Add(1); left >= mostStreams/2 || left > fewResets+r.had.Load()/5 {
			r.full.Store(true)
		}
	}
	if r.open.Add(-1) == 0 && r.full.Load() {
		r.CloseIdleConnections() // nobody comes any more; of others they close by themselves
	}
}

// stream is a request over HTTP/2, and the body of its answer. Where that is closed before its end, or
// comes to it before all of the request was sent, net/http resets it.
type stream struct {
	io.ReadCloser
	on *route

	mu     sync.Mutex // guards what follows
	sent   bool       // all of the request was
	ended  bool
	unsent bool // it counts as reset for that alone
}

// end is that it is over; whole says that all of the answer came.
func (s *stream) end(reset, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended, s.unsent = true, whole && !s.sent
		s.on.over(reset || s.unsent)
	}
}

// wrote is that all of the request was sent: net/http may say so when the answer has come.
func (s *stream) wrote() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent = true; s.unsent {
		s.unsent = false
		s.on.left.Add(-1)
	}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil {
		s.end(err != io.EOF, err == io.EOF)
	}
	return n, err
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.end(true, false)
	return s.ReadCloser.Close()
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
