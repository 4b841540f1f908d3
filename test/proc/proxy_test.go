package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// wired is a proxy to an echo server, and one connection through it.
func wired(t *testing.T) (*Proxy, net.Conn, *bufio.Reader) {
	t.Helper()
	_, addr := startEcho(t)
	p := NewProxy(t, addr)
	c := dialProxy(t, p)
	return p, c, bufio.NewReader(c)
}

func dialProxy(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatalf("dial the proxy: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// hears sends a line and wants its echo.
func hears(t *testing.T, c net.Conn, from *bufio.Reader, line string) time.Duration {
	t.Helper()
	begun := time.Now()
	if _, err := fmt.Fprintln(c, line); err != nil {
		t.Fatalf("send %.20q: %v", line, err)
	}
	return heard(t, c, from, line, begun)
}

func heard(t *testing.T, c net.Conn, from *bufio.Reader, line string, since time.Time) time.Duration {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(exitWithin)); err != nil {
		t.Fatal(err)
	}
	if got, err := from.ReadString('\n'); err != nil || !strings.HasSuffix(got, " "+line+"\n") {
		t.Fatalf("echo of %.20q = %.40q, %v", line, got, err)
	}
	return time.Since(since)
}

// silent wants nothing to come for a while.
func silent(t *testing.T, c net.Conn, from *bufio.Reader) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if b, err := from.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %q, %v from a frozen wire, want a timeout", b, err)
	}
}

// ended wants the connection to end.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(exitWithin)); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) || n != 0 {
		t.Fatalf("read %d bytes and %v, want the end of the connection", n, err)
	}
}

func TestProxyFreezes(t *testing.T) {
	p, c, from := wired(t)
	hears(t, c, from, "before")
	p.Freeze()
	begun := time.Now()
	fmt.Fprintln(c, "held")
	silent(t, c, from)
	late := dialProxy(t, p) // as to a host that is there
	fmt.Fprintln(late, "late")
	silent(t, late, bufio.NewReader(late))
	p.Mend()
	heard(t, c, from, "held", begun)
	heard(t, late, bufio.NewReader(late), "late", begun)
}

// TestFrozenProxyPushesBack has a sender notice that nothing is read.
func TestFrozenProxyPushesBack(t *testing.T) {
	p, c, _ := wired(t)
	p.Freeze()
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	const most = 64 << 20 // the kernel's buffers on both sides are a few MB
	sent := 0
	for block := bytes.Repeat([]byte("x"), 64<<10); sent < most; sent += len(block) {
		if _, err := c.Write(block); err != nil {
			return
		}
	}
	t.Errorf("a frozen proxy took %d MB", sent>>20)
}

func TestProxyCuts(t *testing.T) {
	p, c, from := wired(t)
	hears(t, c, from, "before")
	p.Cut()
	ended(t, c)
	ended(t, dialProxy(t, p))
	p.Mend()
	c = dialProxy(t, p)
	hears(t, c, bufio.NewReader(c), "after")

	p.Freeze()
	p.Cut() // a frozen wire can be cut
	ended(t, c)
}

func TestProxyWithoutItsServer(t *testing.T) {
	server, addr := startEcho(t)
	p := NewProxy(t, addr)
	c := dialProxy(t, p)
	hears(t, c, bufio.NewReader(c), "before")
	server.Kill()
	ended(t, c)
	ended(t, dialProxy(t, p))
	server.Restart()
	c = dialProxy(t, p)
	hears(t, c, bufio.NewReader(c), "after")
}

func TestProxyDelays(t *testing.T) {
	p, c, from := wired(t)
	const delay = 150 * time.Millisecond
	p.Delay(delay)
	if d := hears(t, c, from, "slow"); d < 2*delay {
		t.Errorf("an echo over a wire of %v each way took %v", delay, d)
	}
	// What follows at once is not delayed in its turn.
	begun := time.Now()
	const lines = 20
	for i := range lines {
		fmt.Fprintln(c, i)
	}
	for i := range lines {
		if d := heard(t, c, from, fmt.Sprint(i), begun); d < 2*delay || d > lines*delay {
			t.Errorf("echo %d of %d took %v, want about %v", i, lines, d, 2*delay)
		}
	}
	p.Delay(0)
	hears(t, c, from, "fast")
}

func TestProxyLimitsTheRate(t *testing.T) {
	p, c, from := wired(t)
	hears(t, c, from, "before")
	p.Rate(100_000)
	if d := hears(t, c, from, strings.Repeat("x", 30_000)); d < 300*time.Millisecond {
		t.Errorf("30 kB at 100 kB/s took %v", d)
	}
	p.Rate(0)
	hears(t, c, from, "after")
}

// A wire that leads elsewhere ends what stood, and brings new connections there.
func TestProxyLeads(t *testing.T) {
	p, c, from := wired(t)
	hears(t, c, from, "to the first")
	second, addr := startEcho(t)
	p.Lead(addr)
	ended(t, c)
	again := dialProxy(t, p)
	answers := bufio.NewReader(again)
	hears(t, again, answers, "to the second")
	second.Kill()
	ended(t, again)
}
