package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// What is offered in a handshake (ALPN, RFC 7301).
var (
	http1Alone = []string{"http/1.1"}
	bothHTTP   = []string{"h2", "http/1.1"}
)

const (
	// askAnew is for how long an upstream is taken to speak HTTP/2 alone.
	askAnew = time.Minute
	// askTurn is how long a connection waits for another that finds out what is spoken.
	askTurn = time.Second
)

// spoken is what an https upstream is known to speak, that is asked over HTTP/1. Those that speak
// HTTP/2, and are offered HTTP/1 alone, say so where they take that; who speaks HTTP/2 alone may
// refuse it (no_application_protocol), or say nothing, as do those that know no ALPN. So both are
// offered to whoever is not known to speak HTTP/2, and HTTP/1 alone is to those that took that:
// all is known before anything is sent.
type spoken struct {
	alone atomic.Bool   // it speaks HTTP/2 alone
	next  atomic.Int64  // when one is to ask it again, ns since 1970
	http2 atomic.Bool   // it took HTTP/2, when both were offered last
	http1 atomic.Bool   // it took HTTP/1 the last time
	last  atomic.Int64  // when it was seen to speak HTTP/1 last, about, ns since 1970
	turn  chan struct{} // of who asks while that is not so: the others would all ask the same
}

func newSpoken() *spoken { return &spoken{turn: make(chan struct{}, 1)} }

// isAlone says that it speaks HTTP/2 alone; but for one request now and then, which asks it
// again.
func (s *spoken) isAlone() bool {
	if !s.alone.Load() {
		return false
	}
	now := time.Now()
	next := s.next.Load()
	return now.UnixNano() < next || !s.next.CompareAndSwap(next, now.Add(askAnew).UnixNano())
}

// dial is a transport's, over HTTP/1; errAlone where the upstream speaks HTTP/2 alone.
func (s *spoken) dial(t *http.Transport) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !s.http1.Load() {
			waited, leave := s.await(ctx)
			defer leave()
			if waited && s.alone.Load() {
				return nil, errAlone
			}
		}
		c, up, err := s.connect(ctx, t, network, addr)
		switch {
		case errors.Is(err, errAlone):
			s.next.Store(time.Now().Add(askAnew).UnixNano())
			s.alone.Store(true)
			s.http1.Store(false)
			return nil, err
		case err != nil: // which says nothing of it
			return nil, err
		}
		s.speaksHTTP1()
		s.http1.Store(true)
		return &headerConn{Conn: c, up: up}, nil
	}
}

// speaksHTTP1 notes that a connection speaks HTTP/1.
func (s *spoken) speaksHTTP1() {
	if now := time.Now().UnixNano(); now-s.last.Load() > int64(time.Second) { // few write what all read
		s.last.Store(now)
	}
	if s.alone.Load() {
		s.alone.Store(false)
	}
}

// refuses says that HTTP/1 was refused by how a handshake ended: by whatever, but not where it was
// spoken lately. Then that is a fault, as of one of those behind a balancer which is dead.
func (s *spoken) refuses(err error) bool {
	return refusesProtocol(err) || endsHandshake(err) && time.Now().UnixNano()-s.last.Load() > int64(askAnew)
}

// await waits for the turn to ask, if another does, and that is not in vain.
func (s *spoken) await(ctx context.Context) (waited bool, leave func()) {
	leave = func() { <-s.turn }
	select {
	case s.turn <- struct{}{}:
		return false, leave
	default:
	}
	late := time.NewTimer(askTurn)
	defer late.Stop()
	select {
	case s.turn <- struct{}{}:
		if !s.http1.Load() {
			return true, leave
		}
		<-s.turn
	case <-late.C:
	case <-ctx.Done():
	}
	return true, func() {}
}

// connect is a connection on which HTTP/1 is spoken.
func (s *spoken) connect(ctx context.Context, t *http.Transport, network, addr string) (*tls.Conn, *upstreamConn, error) {
	asked := false
	if s.http2.Load() {
		c, up, err := offerHTTP1(ctx, t, network, addr)
		if c != nil || err != nil && !s.refuses(err) {
			return c, up, err
		}
		asked = err == nil
	}
	c, up, err := shakeHands(ctx, t, network, addr, bothHTTP)
	switch {
	case err != nil:
		return nil, nil, err
	case protocolOf(c) != "h2":
		s.http2.Store(false)
		return c, up, nil
	}
	c.Close()
	s.http2.Store(true)
	for again := false; !asked; again = true { // once more, where it ends by something that may have another reason
		c, up, err := offerHTTP1(ctx, t, network, addr)
		if c != nil || err != nil && !s.refuses(err) {
			return c, up, err
		}
		asked = err == nil || again
	}
	return nil, nil, errAlone
}

// offerHTTP1 is a connection of an upstream that took HTTP/1, which alone was offered; nil where it
// did not.
func offerHTTP1(ctx context.Context, t *http.Transport, network, addr string) (*tls.Conn, *upstreamConn, error) {
	c, up, err := shakeHands(ctx, t, network, addr, http1Alone)
	switch {
	case err == nil && protocolOf(c) == "http/1.1":
		return c, up, nil
	case err == nil:
		c.Close()
	case !refusesProtocol(err):
		return nil, nil, err
	}
	return nil, nil, nil
}

// dialTLS has connections that came to speak HTTP/1 listened to, inside of TLS.
func dialTLS(t *http.Transport) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		offered := t.TLSClientConfig.NextProtos
		if !t.Protocols.HTTP2() {
			offered = http1Alone
		}
		c, up, err := shakeHands(ctx, t, network, addr, offered)
		switch {
		case err != nil:
			return nil, err
		case protocolOf(c) == "h2":
			up.open.Store(true)
			return c, nil
		}
		return &headerConn{Conn: c, up: up}, nil
	}
}

// shakeHands is a connection that speaks TLS, and what it is beneath.
func shakeHands(ctx context.Context, t *http.Transport, network, addr string, offered []string) (*tls.Conn, *upstreamConn, error) {
	plain, err := t.DialContext(ctx, network, addr)
	if err != nil {
		return nil, nil, err
	}
	cfg := t.TLSClientConfig.Clone()
	cfg.NextProtos = offered
	if cfg.ServerName, _, err = net.SplitHostPort(addr); err != nil {
		plain.Close()
		return nil, nil, err
	}
	c := tls.Client(plain, cfg)
	ctx, cancel := context.WithTimeout(ctx, t.TLSHandshakeTimeout)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		plain.Close()
		return nil, nil, err
	}
	return c, plain.(*upstreamConn), nil
}

func protocolOf(c *tls.Conn) string { return c.ConnectionState().NegotiatedProtocol }

// refusesProtocol says that it was what was offered that ended a handshake. crypto/tls tells it
// by its words alone.
func refusesProtocol(err error) bool {
	return strings.Contains(err.Error(), "no application protocol") || strings.Contains(err.Error(), "handshake failure")
}

// answersInHTTP2 says that what was asked over HTTP/1 answered over HTTP/2: it has taken nothing of the
// request then, which is none to it (RFC 9113, section 3.4). It begins with a frame of less than 64 KiB.
func answersInHTTP2(err error) bool {
	return strings.Contains(err.Error(), `malformed HTTP response "\x00`)
}

// endsHandshake says that it was the other side that ended a handshake, by whatever: a router that
// goes by what is offered closes the connection where it knows of nobody for it.
func endsHandshake(err error) bool {
	var alert tls.AlertError
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	return refusesProtocol(err) || errors.As(err, &alert) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || op != nil && op.Op == "remote error"
}
