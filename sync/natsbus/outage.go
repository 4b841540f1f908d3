package natsbus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// maxCauses bounds the warnings of one outage.
const maxCauses = 8

// outage is what is known of why there is no connection.
type outage struct {
	err  error    // as last heard; nil: nothing yet
	told []string // causes that a warning was given of
}

// watch hears of attempts that failed when the server was reached: in its
// reconnect loop the client tells its callbacks of those alone that reached
// none. It ends with the bus.
func (b *Bus) watch() {
	tries := b.nc.StatusChanged(nats.RECONNECTING)
	defer b.nc.RemoveStatusListener(tries)
	for {
		select {
		case <-b.closed.Done():
			return
		case <-tries:
			if err := b.nc.LastError(); err != nil {
				b.hear(err)
			}
		}
	}
}

// hear is told why an attempt failed or a connection was lost. Servers fail in
// turns, and one server in several ways: with TLS 1.3 a client may write before
// it has read why it is refused. Each cause of an outage is worth one warning.
func (b *Bus) hear(err error) {
	b.mu.Lock()
	if b.connected() { // again: what was heard is old
		b.mu.Unlock()
		return
	}
	if shown := b.shown.Load(); shown != nil && hungUp(err) {
		err = fmt.Errorf("%w (the server asks for a client certificate: %s)", err, *shown)
	}
	b.outage.err = err
	level := slog.LevelDebug
	// Attempts differ in their ports and times, and one error is spelt in two ways.
	cause := numbers.ReplaceAllString(strings.ToLower(err.Error()), "0")
	if !b.ended && len(b.outage.told) < maxCauses && !slices.Contains(b.outage.told, cause) {
		b.outage.told = append(b.outage.told, cause)
		level = slog.LevelWarn
	}
	b.mu.Unlock()
	b.log.Log(context.Background(), level, "NATS is out of reach; looking on", "error", err)
}

var numbers = regexp.MustCompile("[0-9]+")

// hungUp reports whether err is of a server that may have gone because of what it was
// shown: it said so, or closed the connection.
func hungUp(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op != "dial" || errors.Is(err, io.EOF)
}

// certificates is how a server that asks for a certificate is answered: from the
// files of cfg, read again each time. The bus keeps the answer, to tell with what
// fails next: the server's own word comes after the handshake and is easily lost.
func (b *Bus) certificates(cfg Config) nats.Option {
	answer := func(asked *tls.CertificateRequestInfo) (*tls.Certificate, string, error) {
		if cfg.CertFile == "" {
			return &tls.Certificate{}, "tls.cert is not set", nil
		}
		c, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, "", fmt.Errorf("tls.cert %s, tls.key %s: %w", cfg.CertFile, cfg.KeyFile, err)
		}
		if err := asked.SupportsCertificate(&c); err != nil {
			return &tls.Certificate{}, fmt.Sprintf("not shown tls.cert %s, %v", cfg.CertFile, err), nil
		}
		return &c, "shown tls.cert " + cfg.CertFile, nil
	}
	return func(o *nats.Options) error {
		switch {
		case o.TLSConfig != nil:
		case o.Secure || !slices.ContainsFunc(o.Servers, func(url string) bool { return strings.HasPrefix(strings.ToLower(url), "ws:") }):
			o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		default:
			return nil // to have one is to insist on TLS, over websockets
		}
		o.TLSConfig.VerifyConnection = func(tls.ConnectionState) error {
			b.shown.Store(nil) // it did not ask yet
			return nil
		}
		o.TLSConfig.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c, shown, err := answer(asked)
			if err == nil {
				b.shown.Store(&shown)
			}
			return c, err
		}
		return nil
	}
}
