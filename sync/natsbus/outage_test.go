package natsbus

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/spillgate/spillgate/test/proc"
)

// outOfReach returns an error unless b says that it has no server because of why.
func outOfReach(b *Bus, why string) error {
	err := b.Status().Err
	if err == nil || !strings.Contains(err.Error(), why) {
		return fmt.Errorf("status: %w, want it with %q", err, why)
	}
	return nil
}

// TestReasonFollowsTheOutage: what keeps the bus away from its server is told
// as it is now, also where the server is reached and refuses.
func TestReasonFollowsTheOutage(t *testing.T) {
	authority := proc.NewAuthority(t)
	s := proc.NATS(t, authority.NATSArgs(t)...)
	cert, key := authority.Client(t, "edge")
	cfg := Config{URLs: []string{s.URL}, CAFile: authority.CA, CertFile: cert, KeyFile: key}
	b := connect(t, cfg)
	works(t, b, serveEcho(t, b))
	saved, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	proc.Until(t, heals, func() error { return outOfReach(b, "connection refused") })
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	proc.Until(t, heals, func() error { return outOfReach(b, "tls.cert "+cert) })
	if err := os.WriteFile(cert, saved, 0o600); err != nil {
		t.Fatal(err)
	}
	proc.Until(t, heals, func() error { return b.Status().Err })
}

// TestEachCauseIsWarnedOfOnce: attempts differ in their ports alone, and fail in
// turns; the log has one warning of each cause, and few of many.
func TestEachCauseIsWarnedOfOnce(t *testing.T) {
	var log bytes.Buffer
	b := &Bus{log: slog.New(slog.NewTextHandler(&log, nil))}
	broken := func(op string, port int, err error) error {
		return &net.OpError{Op: op, Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: os.NewSyscallError(op, err)}
	}
	outage := func() {
		for port := range 100 {
			b.down(nil, broken("dial", port, syscall.ECONNREFUSED))
			b.down(nil, fmt.Errorf("%w: closed: %w", nats.ErrTLS, broken("write", port, syscall.EPIPE)))
			b.down(nil, x509.CertificateInvalidError{Reason: x509.Expired, Detail: time.Unix(int64(port), 0).String(), Cert: &x509.Certificate{}})
			b.down(nil, errors.New("nats: Authorization Violation"))
			b.asyncError(nil, nil, errors.New("nats: authorization violation"))
		}
	}
	warned := func(what string, want int) {
		t.Helper()
		if n := strings.Count(log.String(), "level=WARN"); n != want {
			t.Errorf("%s: %d warnings, want %d:\n%s", what, n, want, log.String())
		}
		log.Reset()
	}
	outage()
	warned("an outage of four causes", 4)
	b.up(new(nats.Conn))
	outage()
	warned("the next", 4)
	for i := range 100 {
		b.down(nil, errors.New(strings.Repeat("no, ", i)))
	}
	warned("an outage that never repeats itself", maxCauses-4)
}

// TestWhoHangsUpIsSaidToAsk: that a server asked for a certificate is told with what
// may have come of it, and of no other failure.
func TestWhoHangsUpIsSaidToAsk(t *testing.T) {
	for _, c := range []struct {
		err  error
		asks bool
	}{
		{io.EOF, true},
		{fmt.Errorf("%w: closed: %w", nats.ErrTLS, &net.OpError{Op: "write", Err: syscall.EPIPE}), true},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, true},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, false},
		{nats.ErrSecureConnWanted, false},
		{fmt.Errorf("%w: %w", nats.ErrTLS, x509.UnknownAuthorityError{}), false},
	} {
		b := &Bus{log: slog.New(slog.DiscardHandler)}
		shown := "tls.cert is not set"
		b.shown.Store(&shown)
		b.down(nil, c.err)
		if err := b.outage.err; strings.Contains(err.Error(), shown) != c.asks || !errors.Is(err, c.err) {
			t.Errorf("%v is told as %v; want it said that the server asks: %v", c.err, err, c.asks)
		}
	}
}

// TestRefusedAfterAnOutage: a server that comes back and turns us away does so with
// each attempt, and is warned of once.
func TestRefusedAfterAnOutage(t *testing.T) {
	addr := proc.FreeAddr(t)
	s := proc.NATSAt(t, addr)
	var log lines
	b := connect(t, Config{URLs: []string{s.URL}, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	works(t, b, serveEcho(t, b))
	s.Kill()
	proc.NATSAt(t, addr, "--user", "u", "--pass", "p")
	const refused = "uthorization "
	proc.Until(t, heals, func() error {
		if n := log.with(refused); n < 6 {
			return fmt.Errorf("turned away %d times, want 6", n)
		}
		return nil
	})
	if n := log.with("level=WARN", refused); n != 1 {
		t.Errorf("warned of it %d times, want once", n)
	}
}

// lines is a log that may be read while it is written.
type lines struct {
	mu  sync.Mutex
	all strings.Builder // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// with returns how many lines hold all of parts.
func (l *lines) with(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.all.String()) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			n++
		}
	}
	return n
}
