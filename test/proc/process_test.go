package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// echoAddr in the environment makes this test binary the server under test: it
// listens there and answers each line with "<pid> <line>".
const echoAddr = "SPILLGATE_TEST_ECHO_ADDR"

func TestMain(m *testing.M) {
	if addr := os.Getenv(echoAddr); addr != "" {
		fmt.Println("echo:", serveEcho(addr))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func serveEcho(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("listening as", os.Getpid())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		// Ends with its client; nobody waits for it but the end of the process.
		go func() {
			lines := bufio.NewScanner(c)
			for lines.Scan() {
				if lines.Text() == "exit" {
					os.Exit(7)
				}
				fmt.Fprintln(c, os.Getpid(), lines.Text())
			}
		}()
	}
}

// ask sends one line and returns the answer, or an error after 300 ms.
func ask(addr, line string) (string, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		return "", err
	}
	fmt.Fprintln(c, line)
	return bufio.NewReader(c).ReadString('\n')
}

func startEcho(t testing.TB) (*Process, string) {
	t.Helper()
	addr := FreeAddr(t)
	return Start(t, Command{
		Name:  "echo",
		Path:  os.Args[0],
		Env:   []string{echoAddr + "=" + addr},
		Ready: Dials(addr),
	}), addr
}

func TestProcessLives(t *testing.T) {
	p, addr := startEcho(t)
	first, err := ask(addr, "hello")
	if err != nil || !strings.HasSuffix(first, " hello\n") {
		t.Fatalf("ask = %q, %v, want an echo", first, err)
	}

	if bytes, err := p.Peak(); err != nil || bytes < 1<<20 || bytes > 1<<30 {
		t.Errorf("Peak = %d, %v, want what a Go program has", bytes, err)
	}

	p.Pause()
	if got, err := ask(addr, "frozen"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("ask of a paused process = %q, %v, want a timeout", got, err)
	}
	p.Continue()
	again, err := ask(addr, "hello")
	if err != nil || again != first {
		t.Fatalf("ask after Continue = %q, %v, want %q", again, err, first)
	}

	for name, end := range map[string]func(){"Kill": p.Kill, "Terminate": p.Terminate} {
		end()
		if bytes, err := p.Peak(); err == nil {
			t.Errorf("Peak after %s = %d, want an error", name, bytes)
		}
		if got, err := ask(addr, "dead"); err == nil {
			t.Fatalf("ask after %s = %q, want an error", name, got)
		}
		p.Restart()
		second, err := ask(addr, "hello")
		if err != nil || second == first {
			t.Fatalf("ask after Restart = %q, %v, want an echo by another pid than %q", second, err, first)
		}
	}
	if n := strings.Count(p.Log(), "listening as"); n != 3 {
		t.Errorf("log shows %d starts, want 3:\n%s", n, p.Log())
	}
}

func TestKillAPausedProcess(t *testing.T) {
	p, _ := startEcho(t)
	p.Pause()
	p.Kill()
	p.Kill()
}

// recorder is a testing.TB whose failures a test expects.
type recorder struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Failed() bool              { return len(r.failures) > 0 }
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Logf(f string, a ...any)   { r.failures = append(r.failures, fmt.Sprintf(f, a...)) }
func (r *recorder) Errorf(f string, a ...any) { r.failures = append(r.failures, fmt.Sprintf(f, a...)) }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); panic(r) }
func (r *recorder) endTest()                  { r.cleanups[0]() }
func (r *recorder) said(part string) bool {
	return strings.Contains(strings.Join(r.failures, "\n"), part)
}
func (r *recorder) fatal(f func()) (stopped bool) {
	defer func() { stopped = recover() == r }()
	f()
	return
}

func TestProcessThatEndsByItself(t *testing.T) {
	r := &recorder{TB: t}
	p, addr := startEcho(r)
	if got, err := ask(addr, "exit"); err == nil {
		t.Fatalf("ask exit = %q, want an error", got)
	}
	select {
	case <-p.run.done:
	case <-time.After(exitWithin):
		t.Fatal("echo is still there after it was told to exit")
	}
	r.endTest()
	if !r.said("echo ended by itself: exit status 7") {
		t.Errorf("failures = %q, want one that says that it ended", r.failures)
	}
	if !r.said("listening as") {
		t.Errorf("failures = %q, want the log among them", r.failures)
	}
}

func TestProcessThatIsNeverReady(t *testing.T) {
	r := &recorder{TB: t}
	start := time.Now()
	stopped := r.fatal(func() {
		Start(r, Command{
			Name:  "echo",
			Path:  os.Args[0],
			Env:   []string{echoAddr + "=256.0.0.1:1"},
			Ready: func(context.Context) error { return errors.New("not ready") },
		})
	})
	if !stopped || !r.said("ended before it was ready: exit status 1") {
		t.Errorf("Start: stopped = %v, failures = %q, want the test ended", stopped, r.failures)
	}
	if d := time.Since(start); d > readyWithin/2 {
		t.Errorf("it took %v to see that the process had ended", d)
	}
}

func TestTailIsBounded(t *testing.T) {
	var b tail
	for i := range 10000 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	if _, err := b.Write(make([]byte, 3*tailSize)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(&b, "the end")
	got := b.String()
	if len(got) != tailSize || !strings.HasSuffix(got, "the end") {
		t.Errorf("tail holds %d bytes ending in %q, want %d ending in %q", len(got), got[len(got)-7:], tailSize, "the end")
	}
	if cap(b.buf) > 3*tailSize {
		t.Errorf("tail keeps %d bytes, want at most %d", cap(b.buf), 3*tailSize)
	}
}

func TestExitCode(t *testing.T) {
	p, addr := startEcho(t)
	if got, err := ask(addr, "exit"); err == nil {
		t.Fatalf("ask exit = %q, want an error", got)
	}
	if code := p.ExitCode(); code != 7 {
		t.Errorf("ExitCode after exit(7) = %d", code)
	}
	p.Restart()
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != -1 {
		t.Errorf("ExitCode after a signal that it does not handle = %d, want -1", code)
	}
}
