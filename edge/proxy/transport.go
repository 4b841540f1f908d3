package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

const (
	// maxIdle is how many connections to the upstream are kept; idleTime is how long.
	// That is shorter than upstreams keep them (Node: 5 s), as what is sent on one that
	// they close just then is lost, and not every request may be sent again.
	maxIdle  = 512
	idleTime = 4 * time.Second
	// maxAnswerHeader is the largest header of an answer.
	maxAnswerHeader = 256 << 10
	keepAlive       = 15 * time.Second
)

func newTransport(cfg *Config) *http.Transport {
	dialer := net.Dialer{Timeout: cfg.Timeout, KeepAlive: keepAlive}
	t := &http.Transport{
		// No Proxy: the environment's would send the upstream's traffic elsewhere.
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			if c = (&upstreamConn{c, cfg.Timeout}); cfg.Upstream.Scheme == "http" {
				c = &headerConn{Conn: c}
			}
			return c, nil
		},
		TLSHandshakeTimeout:    cfg.Timeout,
		ResponseHeaderTimeout:  cfg.Timeout,
		ExpectContinueTimeout:  time.Second,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DisableCompression:     true, // what the client accepts is for it to say
		Protocols:              new(http.Protocols),
	}
	switch cfg.Upstream.Scheme {
	case "h2c":
		t.Protocols.SetUnencryptedHTTP2(true)
	case "https":
		t.TLSClientConfig = new(tls.Config)
		t.DialTLSContext = dialTLS(t)
		t.Protocols.SetHTTP2(true)
		fallthrough
	default:
		t.Protocols.SetHTTP1(true)
	}
	return t
}

// upstreamConn does not wait for ever for an upstream that takes nothing more.
type upstreamConn struct {
	net.Conn
	timeout time.Duration
}

// Write implements net.Conn.
func (c *upstreamConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// CloseWrite tells the upstream that the client has said all, where protocols switched.
func (c *upstreamConn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
