package proxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// late is a connection whose end is seen only as the next request was written.
type late struct {
	*net.TCPConn
	wrote chan struct{}
}

func (c late) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if err != nil {
		<-c.wrote // the first
		<-c.wrote
	}
	return n, err
}

func (c late) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.wrote <- struct{}{}
	return n, err
}

// What goes out on a kept connection just as the upstream closes it has reached nobody: it is
// sent once more, on another connection, and not a third time where that one is closed, too.
func TestSentAgainWhereNothingCame(t *testing.T) {
	for _, c := range []struct {
		name         string
		method, body string
		answers      int // of the connections that are made for the second request, and later
		status       int
		again        float64
	}{
		{"GET", "GET", "", 1, 200, 1},
		{"POST", "POST", "", 1, 200, 1},
		{"a body", "POST", "x", 1, 502, 0}, // which is not kept
		{"closed again", "GET", "", 0, 502, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var conns, seen atomic.Int64
			closed := make(chan struct{})
			upstream := accepts(t, func(conn net.Conn) {
				n := int(conns.Add(1))
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				seen.Add(1)
				if n == 1 || n <= 1+c.answers {
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
				conn.Close()
				if n == 1 {
					close(closed)
				}
			})
			s := (&site{t: t}).before(upstream, options{}, hourly(9))
			s.proxy.transport.(*line).on.Load().DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				up := &upstreamConn{Conn: late{conn.(*net.TCPConn), make(chan struct{}, 9)}, timeout: patience}
				return &headerConn{Conn: up, up: up}, nil
			}
			first := s.dial()
			first.write("GET /first HTTP/1.1\r\nHost: h\r\n\r\n")
			if resp := first.response(); resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status)
			}
			<-closed
			got := s.send(c.method, "/", c.body)
			if got.status != c.status {
				t.Errorf("%d %v, want %d", got.status, got.header["Proxy-Status"], c.status)
			}
			if n := s.metric("spillgate_proxy_sent_again_total"); n != c.again || seen.Load() != 1+int64(c.again) {
				t.Errorf("%v sent again, and the upstream saw %d in all; want %v and %v", n, seen.Load(), c.again, 1+c.again)
			}
		})
	}
}

// What TCP knows: of a connection that was closed before a request came, nothing did.
func TestUntaken(t *testing.T) {
	request := bytes.Repeat([]byte("x"), 300)
	take := func(c *net.TCPConn) { _, _ = io.ReadFull(c, make([]byte, len(request))) }
	for _, c := range []struct {
		name         string
		before, then func(*net.TCPConn)
		want         bool
	}{
		{"closed before", func(c *net.TCPConn) { c.Close() }, nil, true},
		{"read, and closed", nil, func(c *net.TCPConn) { take(c); c.Close() }, false},
		{"read, and reset", nil, func(c *net.TCPConn) { take(c); _ = c.SetLinger(0); c.Close() }, false},
		{"reset unread", nil, func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)); c.Close() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			mine, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer mine.Close()
			its, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer its.Close()
			up := &upstreamConn{Conn: mine, timeout: patience}
			conn := &headerConn{Conn: up, up: up}
			told := 0
			conn.listen(false, func(error) { told++ })
			if c.before != nil {
				c.before(its.(*net.TCPConn))
			}
			if _, err := conn.Write(request); err != nil {
				t.Fatal(err)
			}
			if c.then != nil {
				c.then(its.(*net.TCPConn))
			}
			if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Fatalf("%d were read, %v", n, err)
			}
			if got := up.untaken(); got != c.want || told != 1 {
				t.Errorf("untaken: %v, told %d times; want %v, and once", got, told, c.want)
			}
		})
	}
}

// What is written amid a body of a connection that the upstream closed goes nowhere, and no request
// goes on it next. Of one without a body, and of what the upstream only does not take, it is a failure.
func TestLostConnections(t *testing.T) {
	mine, its := net.Pipe()
	defer mine.Close()
	defer its.Close()
	conn := &headerConn{Conn: mine, up: &upstreamConn{Conn: mine, timeout: patience}}
	told := 0
	listen := func(body bool) { conn.listen(body, func(error) { told++ }) }
	for _, tt := range []struct {
		body bool
		err  error
		want bool
	}{
		{false, syscall.EPIPE, false}, {true, os.ErrDeadlineExceeded, false}, {true, syscall.ETIMEDOUT, false}, {true, syscall.EPIPE, true},
	} {
		if listen(tt.body); conn.loses(tt.err) != tt.want || conn.isLost() != tt.want || told != 0 {
			t.Errorf("body: %v, %v: lost %v, told %d times; want %v", tt.body, tt.err, conn.isLost(), told, tt.want)
		}
	}
	if n, err := conn.Write([]byte("more")); n != 4 || err != nil {
		t.Errorf("amid the body: %d, %v; want that it goes nowhere", n, err)
	}
	if listen(false); told != 1 {
		t.Errorf("the next request is told %d times that the connection has ended, want once", told)
	}
}

// A connection ends whose packets nobody acknowledges, and not before an upstream that takes
// nothing more of a body has had its time.
func TestDeadConnectionsAreLeftToTCP(t *testing.T) {
	upstream := accepts(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	for timeout, want := range map[time.Duration]int{time.Second: 30_000, time.Minute: 60_000} {
		for _, scheme := range []string{"http", "h2c"} {
			u := mustURL(t, scheme+upstream[len("http"):])
			cfg := Config{Upstream: u, Timeout: timeout}.withDefaults()
			conn, err := newTransport(&cfg, answerWindow).DialContext(t.Context(), "tcp", u.Host)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if header, ok := conn.(*headerConn); ok {
				conn = header.Conn
			}
			raw, err := conn.(*upstreamConn).Conn.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			err = raw.Control(func(fd uintptr) {
				got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
				idle, err2 := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
				if got != want || idle != 15 || err != nil || err2 != nil {
					t.Errorf("%s, timeout %v: lost after %d ms, asked after %d s, %v, %v; want %d ms, 15 s", scheme, timeout, got, idle, err, err2, want)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
