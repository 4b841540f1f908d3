package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// natsModule is built from the module cache, so that a test needs no network
// and runs the version that go.mod names.
const natsModule = "github.com/nats-io/nats-server/v2"

// NATSServer is a nats-server in a process of its own.
type NATSServer struct {
	*Process
	URL     string
	monitor string // URL of its monitoring; empty if it has none
}

// NATS starts a nats-server on a free port. args are added to its arguments.
func NATS(t testing.TB, args ...string) *NATSServer {
	t.Helper()
	return NATSAt(t, FreeAddr(t), args...)
}

// NATSAt is NATS on an address that the test chose, as of a server that its
// clients look for before it is there.
func NATSAt(t testing.TB, addr string, args ...string) *NATSServer {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatalf("nats-server address: %v", err)
	}
	p := Start(t, Command{
		Name:  "nats-server",
		Path:  natsBinary(t),
		Args:  append([]string{"-a", host, "-p", port}, args...),
		Dir:   t.TempDir(),
		Ready: func(ctx context.Context) error { return greets(ctx, addr) },
	})
	return &NATSServer{Process: p, URL: "nats://" + addr}
}

// greets returns nil if a NATS server on addr sends its INFO line.
func greets(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("dial %s: %w", addr, err)
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return fmt.Errorf("greeting of %s: %w", addr, err)
	}
	if !strings.HasPrefix(line, "INFO ") {
		return fmt.Errorf("greeting of %s: %.40q", addr, line)
	}
	return nil
}

// natsBinary builds nats-server, once for each version and Go: it takes a
// minute, and every package that tests against it would pay that again.
func natsBinary(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", natsModule).Output()
	if err != nil {
		t.Fatalf("which version of nats-server does go.mod name? %v", describe(err))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("where to keep the built nats-server: %v (set HOME or XDG_CACHE_HOME)", err)
	}
	dir := filepath.Join(cache, "spillgate-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatalf("where to keep the built nats-server: %v", err)
	}
	defer lock(t, filepath.Join(dir, "lock"))()
	path := filepath.Join(dir, fmt.Sprintf("nats-server-%s-%s", strings.TrimSpace(string(out)), runtime.Version()))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	// Built beside and renamed, because a build may be killed half way.
	part, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		t.Fatalf("where to build nats-server: %v", err)
	}
	defer os.RemoveAll(part)
	built := filepath.Join(part, "nats-server")
	build := exec.Command("go", "build", "-o", built, natsModule)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nats-server: %v\n%s", err, out)
	}
	if err := os.Rename(built, path); err != nil {
		t.Fatalf("keep the built nats-server: %v", err)
	}
	return path
}

// lock waits for the file and returns what frees it. go test runs packages in
// processes of their own, and those that need a server build it only once.
func lock(t testing.TB, path string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatalf("lock for building nats-server: %v", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatalf("lock %s: %v", path, err)
	}
	return func() { f.Close() }
}

// describe adds what a command said to its exit status.
func describe(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return err
}
