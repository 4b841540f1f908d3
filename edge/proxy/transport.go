package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxIdle is how many connections to the upstream are kept; idleTime is how long.
	// That is shorter than upstreams keep them (Node: 5 s), as what is sent on one that
	// they close just then may be lost: not all of it is sent again.
	maxIdle  = 512
	idleTime = 4 * time.Second
	// maxAnswerHeader is the largest header of an answer.
	maxAnswerHeader = 256 << 10
	// keepAlive is how long a connection may be silent before its TCP asks whether it is there,
	// and deadAfter for how long nothing of what
	// was sent need be acknowledged, if proxy.timeout is no longer: then it ends, with what is on it.
	keepAlive = 15 * time.Second
	deadAfter = 30 * time.Second
	// quietAfter is how long nothing may come on a connection of HTTP/2 since a request went,
	// before others go on another.
	quietAfter = 5 * time.Second
	// fullAfter is how long nothing may be taken of a body on it, likewise.
	fullAfter = 2 * time.Second
	// mostStreams is how many requests a connection of it has at a time, with those that were reset.
	mostStreams = 100
	// fewResets is how many of its streams may be reset beside a fifth of all before it is left.
	fewResets = 2
	// settleTime is how long its settings may take before requests go on it: a round trip, as a rule.
	settleTime = time.Second
)

// newTransport has a window over HTTP/2 for each answer. Of a connection, on which all clients'
// come, it has no bound, or those that are not taken would keep all others back.
func newTransport(cfg *Config, window int) *http.Transport {
	dialer := net.Dialer{
		Timeout:         cfg.Timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive / 3, Count: 3},
		Control: func(_, _ string, socket syscall.RawConn) error {
			leaveDead(socket, max(deadAfter, cfg.Timeout)) // no sooner than an upstream that takes nothing is left
			return nil
		},
	}
	t := &http.Transport{
		// No Proxy: the environment's would send the upstream's traffic elsewhere.
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			up := &upstreamConn{Conn: c, timeout: cfg.Timeout, settled: make(chan struct{})}
			if cfg.Upstream.Scheme == "http" {
				return &headerConn{Conn: up, up: up}, nil
			}
			up.open.Store(cfg.Upstream.Scheme == "h2c") // else with TLS's handshake
			return up, nil
		},
		TLSHandshakeTimeout:    cfg.Timeout,
		ResponseHeaderTimeout:  cfg.Timeout,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DisableCompression:     true, // what the client accepts is for it to say
		Protocols:              new(http.Protocols),
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: window},
	}
	switch cfg.Upstream.Scheme {
	case "h2c":
		t.Protocols.SetUnencryptedHTTP2(true)
	case "https":
		t.TLSClientConfig = &tls.Config{ClientSessionCache: cfg.sessions}
		t.DialTLSContext = dialTLS(t)
		t.Protocols.SetHTTP2(true)
		fallthrough
	default:
		t.Protocols.SetHTTP1(true)
	}
	return t
}

// newFresh keeps no connections.
func newFresh(cfg *Config) *http.Transport {
	t := newTransport(cfg, narrowWindow)
	t.DisableKeepAlives = true
	return t
}

// upstreamConn does not wait for ever for an upstream that takes nothing more, and knows
// whether it can have taken anything of a request.
type upstreamConn struct {
	net.Conn
	timeout time.Duration
	asked   atomic.Int64 // since when nothing came, though a request went over HTTP/2, ns since 1970; 0: it did
	writing atomic.Bool  // the upstream is waited for to take something

	open    atomic.Bool   // what comes is HTTP/2
	heard   atomic.Bool   // some of that came
	settled chan struct{} // closed by once where it was read
	once    sync.Once
	used    atomic.Bool // by a request

	mu   sync.Mutex // guards what follows; held for no I/O
	shut bool       // nothing more is written
	sent int        // bytes written since begin, those on their way included
	kept int        // of them, what its TCP had not acknowledged as it closed the connection
}

// begin is that a request is sent next.
func (c *upstreamConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.kept = 0, 0
}

// end has nothing more be written; closed says that the upstream closed the connection. How
// it did is what tells: a close (FIN) says what had come before it, a reset does not.
func (c *upstreamConn) end(closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = true
	if closed {
		c.kept = unacknowledged(c.Conn)
	}
}

// untaken says that nothing of the request can have been handled: it was not written, or
// the upstream had closed the connection before the first byte of it came.
func (c *upstreamConn) untaken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shut && c.kept >= c.sent
}

// Write implements net.Conn.
func (c *upstreamConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	if c.shut {
		c.mu.Unlock()
		return 0, net.ErrClosed
	}
	c.sent += len(b)
	c.mu.Unlock()
	n, err := 0, c.SetWriteDeadline(time.Now().Add(c.timeout))
	if err == nil {
		c.writing.Store(true)
		n, err = c.Conn.Write(b)
		c.writing.Store(false)
	}
	if err != nil {
		c.mu.Lock()
		c.shut, c.sent = true, c.sent-len(b)+n
		c.mu.Unlock()
	}
	return n, err
}

// CloseWrite tells the upstream that the client has said all, where protocols switched.
func (c *upstreamConn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
