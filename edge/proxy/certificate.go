package proxy

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// certificateEvery is how often the files of a certificate are looked at, at the most.
const certificateEvery = 10 * time.Second

// Certificate is what a listener shows its clients. Its files are read anew where they
// have changed, so that one that was renewed needs no restart; one that cannot be read
// leaves the last in force.
type Certificate struct {
	cert, key string
	log       *slog.Logger
	now       func() time.Time
	kept      atomic.Pointer[kept]
}

// kept is a certificate as its files were at a time.
type kept struct {
	certificate *tls.Certificate
	changed     [2]time.Time // the files
	looked      time.Time    // at them
}

// LoadCertificate reads a certificate, with those that signed it, and its key from files
// in PEM. A nil log is nowhere.
func LoadCertificate(cert, key string, log *slog.Logger) (*Certificate, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Certificate{cert: cert, key: key, log: log, now: time.Now}
	k, err := c.read(kept{looked: time.Now()})
	if err != nil {
		return nil, err
	}
	c.kept.Store(k)
	return c, nil
}

// read is what the files hold, or was where they have not changed.
func (c *Certificate) read(was kept) (*kept, error) {
	is := was
	for i, file := range [...]string{c.cert, c.key} {
		info, err := os.Stat(file)
		if err != nil {
			return nil, fmt.Errorf("read the certificate: %w", err)
		}
		is.changed[i] = info.ModTime()
	}
	if was.certificate != nil && is.changed == was.changed {
		return &was, nil
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %s with the key %s: %w", c.cert, c.key, err)
	}
	is.certificate = &pair
	return &is, nil
}

// get is tls.Config.GetCertificate.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	was := c.kept.Load()
	now := c.now()
	if passed := now.Sub(was.looked); passed >= 0 && passed < certificateEvery {
		return was.certificate, nil
	}
	looking := *was
	looking.looked = now
	if !c.kept.CompareAndSwap(was, &looking) { // somebody else looks
		return was.certificate, nil
	}
	is, err := c.read(looking)
	if err != nil {
		c.log.Warn("the proxy's certificate cannot be read: the last stays in force", "err", err)
		return was.certificate, nil
	}
	c.kept.Store(is)
	return is.certificate, nil
}
