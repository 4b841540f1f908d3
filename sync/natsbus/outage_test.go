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
	"strings"
	"syscall"
	"testing"

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
			b.down(nil, x509.UnknownAuthorityError{})
			b.down(nil, io.EOF)
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
		b.down(nil, errors.New(fmt.Sprint("a server that says ", i)))
	}
	warned("an outage that never repeats itself", maxCauses-4)
}
