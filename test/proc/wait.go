package proc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pollEvery is the pause between two looks at something awaited.
const pollEvery = 10 * time.Millisecond

// Until looks again and again until done returns nil, and ends the test with
// done's last error if that takes longer than within.
func Until(t testing.TB, within time.Duration, done func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := poll(ctx, done); err != nil {
		t.Fatalf("not within %v: %v", within, err)
	}
}

// poll calls done until it returns nil or ctx ends, and returns its last error.
func poll(ctx context.Context, done func() error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// Ports handed out lie below 32768, where Linux begins to take the local ports
// of outgoing connections: else a client could take the port of a server that
// a test has killed and means to start again.
const (
	firstPort = 20000
	lastPort  = 32000
	portParts = 8
)

// portPart is the part of the ports that is this process's own for as long as it
// lives: processes that test side by side would else be given what another was given
// and does not listen on yet. It is locked by a file, which the kernel unlocks when
// the process ends, however it ends.
var portPart = sync.OnceValues(func() (int, error) {
	last := errors.New("no parts")
	for part := range portParts {
		f, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("spillgate-ports-%d", part)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			last = err
			continue
		}
		if last = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); last == nil {
			lockOfPorts = f
			return part, nil
		}
		f.Close()
	}
	return 0, fmt.Errorf("all %d parts of the ports are taken: %w", portParts, last)
})

// lockOfPorts is what holds portPart: a file that nobody knows is closed.
var lockOfPorts *os.File

// given holds the ports that this process was given: servers are often told of
// addresses that others listen on only later.
var given sync.Map

// FreeAddr returns an address of 127.0.0.1 with a port that nobody listens on,
// and that it has not returned before.
func FreeAddr(t testing.TB) string {
	t.Helper()
	part, err := portPart()
	if err != nil {
		t.Fatalf("free port: %v", err)
	}
	const each = (lastPort - firstPort) / portParts
	var last error
	for range 100 {
		port := firstPort + part*each + rand.IntN(each)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		_, twice := given.LoadOrStore(port, true)
		if err := l.Close(); err != nil {
			t.Fatalf("free port: %v", err)
		}
		if twice {
			last = fmt.Errorf("port %d was given before", port)
			continue
		}
		return l.Addr().String()
	}
	t.Fatalf("no free port from %d on: %v", firstPort+part*each, last)
	return ""
}

// FreePort is the port of a FreeAddr.
func FreePort(t testing.TB) int {
	t.Helper()
	_, port, err := net.SplitHostPort(FreeAddr(t))
	if err != nil {
		t.Fatalf("free port: %v", err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatalf("free port: %v", err)
	}
	return n
}

// Dials is a Ready function: the server listens on addr.
func Dials(addr string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return fmt.Errorf("dial %s: %w", addr, err)
		}
		return c.Close()
	}
}
