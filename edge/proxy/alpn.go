package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// over1Alone is what is offered where HTTP/1 is to be spoken, and over2Alone where HTTP/2 is
// (ALPN, RFC 7301).
var over1Alone, over2Alone = []string{"http/1.1"}, []string{"h2"}

// dialTLS has connections that came to speak HTTP/1 listened to, inside of TLS. An upstream that
// does not take HTTP/1 where that alone is offered is offered HTTP/2: it is errAlone where it
// takes that. Servers that speak HTTP/2 alone may refuse the other (no_application_protocol), or
// say nothing and answer whatever they do; those that know no ALPN say nothing either time. Some that
// say nothing do speak both: a connection for one request is for who knows that, or has to try.
func dialTLS(t *http.Transport) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var silent atomic.Int64 // until when the upstream is taken to know no ALPN, ns since 1970
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		offered, asks := t.TLSClientConfig.NextProtos, !t.Protocols.HTTP2() && !t.DisableKeepAlives
		if asks {
			offered = over1Alone
		}
		c, up, err := shakeHands(ctx, t, network, addr, offered)
		if asks {
			switch now := time.Now(); {
			case err == nil && (c.ConnectionState().NegotiatedProtocol != "" || silent.Load() > now.UnixNano()):
			case err == nil || refusesProtocol(err):
				other, _, otherErr := shakeHands(ctx, t, network, addr, over2Alone)
				alone := otherErr == nil && other.ConnectionState().NegotiatedProtocol == over2Alone[0]
				if otherErr == nil {
					other.Close()
				}
				if alone {
					if err == nil {
						c.Close()
					}
					return nil, errAlone
				}
				silent.Store(now.Add(askAnew).UnixNano())
			}
		}
		switch {
		case err != nil:
			return nil, err
		case c.ConnectionState().NegotiatedProtocol == over2Alone[0]:
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

// refusesProtocol says that it was what was offered that ended a handshake. crypto/tls tells it
// by its words alone.
func refusesProtocol(err error) bool {
	return strings.Contains(err.Error(), "no application protocol") || strings.Contains(err.Error(), "handshake failure")
}
