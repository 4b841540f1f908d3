package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spillgate/spillgate/configs"
)

// Certificate is that of a listener, or of a client, which is read again when its file changes, so that it may be
// replaced without a restart.
type Certificate struct {
	cert, key string // files
	log       *slog.Logger

	mu   sync.Mutex // guards what follows
	pair *tls.Certificate
	read [2]time.Time
}

// OpenCertificate reads a certificate and its key.
func OpenCertificate(cert, key string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key, log: log}
	if err := c.reread(c.times()); err != nil {
		return nil, err
	}
	return c, nil
}

// Get is tls.Config's GetCertificate. Where what is there is not good, what was there before is told.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.times(); now != c.read {
		if err := c.reread(now); err != nil {
			c.read = now
			c.log.Error("a certificate is not read anew, the one of before goes on", "err", err)
		} else {
			c.log.Info("a certificate is read anew", "file", c.cert)
		}
	}
	return c.pair, nil
}

// Client is tls.Config's GetClientCertificate.
func (c *Certificate) Client(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return c.Get(nil)
}

func (c *Certificate) reread(now [2]time.Time) error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", c.cert, c.key, err)
	}
	c.pair, c.read = &pair, now
	return nil
}

// times are when the files were last changed.
func (c *Certificate) times() (at [2]time.Time) {
	for i, file := range []string{c.cert, c.key} {
		if info, err := os.Stat(file); err == nil {
			at[i] = info.ModTime()
		}
	}
	return at
}

// ListenerTLS is how a listener of a protocol (its name in ALPN) is encrypted, by files that may be replaced; nil:
// it is not. Where clients have certificates, they are asked as ask says.
func ListenerTLS(s configs.ListenTLS, protocol string, ask tls.ClientAuthType, log *slog.Logger) (*tls.Config, error) {
	if !s.Set() {
		return nil, nil
	}
	cert, err := OpenCertificate(s.Cert, s.Key, log)
	if err != nil {
		return nil, err
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: cert.Get, NextProtos: []string{protocol}}
	if s.ClientCA == "" {
		return base, nil
	}
	signers, err := OpenAuthority(s.ClientCA, log)
	if err != nil {
		return nil, fmt.Errorf("client_ca: %w", err)
	}
	base.ClientAuth = ask
	base.SessionTicketsDisabled = true // who is resumed was verified by those of then
	asks := base.Clone()
	asks.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs = signers.Pool()
		return now, nil
	}
	return asks, nil
}

// CertPool reads the certificates of a file.
func CertPool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return pool, nil
}

// Authority is the certificates that sign others', which are read again when their file changes.
type Authority struct {
	file string
	log  *slog.Logger

	mu   sync.Mutex // guards what follows
	pool *x509.CertPool
	read time.Time
}

// OpenAuthority reads the certificates of a file.
func OpenAuthority(file string, log *slog.Logger) (*Authority, error) {
	a := &Authority{file: file, log: log}
	if info, err := os.Stat(file); err == nil {
		a.read = info.ModTime()
	}
	var err error
	a.pool, err = CertPool(file)
	return a, err
}

// Pool is those that are good now; where what is there is not, those of before are.
func (a *Authority) Pool() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	info, err := os.Stat(a.file)
	if err != nil || info.ModTime().Equal(a.read) {
		return a.pool
	}
	a.read = info.ModTime()
	if pool, err := CertPool(a.file); err != nil {
		a.log.Error("who signs certificates is not read anew, those of before go on", "err", err)
	} else {
		a.pool = pool
		a.log.Info("who signs certificates is read anew", "file", a.file)
	}
	return a.pool
}
