package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// What was admitted, and the upstream breaks off, it sees once, however many connections to it
// are kept, and whatever may be repeated by its method or its key.
func TestSentOnce(t *testing.T) {
	const idle = 20
	var seen atomic.Int64
	for _, c := range []struct {
		method, body string
		header       []string
	}{
		{"GET", "", nil},
		{"HEAD", "", nil},
		{"DELETE", "", nil},
		{"POST", "", []string{"Idempotency-Key", "k"}},
		{"PUT", "x", []string{"Idempotency-Key", "k"}},
	} {
		for how, end := range map[string]func(*net.TCPConn){
			"closes": func(*net.TCPConn) {},
			"resets": func(c *net.TCPConn) { _ = c.SetLinger(0) },
		} {
			t.Run(c.method+" "+how, func(t *testing.T) {
				var all sync.WaitGroup
				all.Add(idle)
				s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
					switch r.URL.Path {
					case "/idle":
						all.Done()
						all.Wait()
					case "/off":
						seen.Add(1)
						conn, _, err := w.(http.Hijacker).Hijack()
						if err != nil {
							t.Error(err)
							return
						}
						end(conn.(*net.TCPConn))
						conn.Close()
					}
				}, options{}, hourly(idle+1))
				var asked sync.WaitGroup
				for range idle {
					asked.Go(func() { s.get("/idle") })
				}
				asked.Wait()
				seen.Store(0)
				if got := s.send(c.method, "/off", c.body, c.header...); got.status != http.StatusBadGateway || got.header.Get("Proxy-Status") != "spillgate; error=http_response_incomplete" || seen.Load() != 1 {
					t.Errorf("%d %v, the upstream saw it %d times; want 502, as it broke off, and once", got.status, got.header["Proxy-Status"], seen.Load())
				}
				if n := s.metric("spillgate_proxy_sent_again_total"); n != 0 {
					t.Errorf("%v were sent again, want none", n)
				}
			})
		}
	}
}

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
	if runtime.GOOS != "linux" {
		t.Skip("TCP is not asked here what has come")
	}
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
			s.proxy.transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
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
	if runtime.GOOS != "linux" {
		t.Skip("TCP is not asked here what has come")
	}
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
			conn.listen(func(error) { told++ })
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

// A stream of HTTP/2 that the upstream refuses is sent once more, and no oftener.
func TestRefusedStreams(t *testing.T) {
	var streams atomic.Int64
	upstream := accepts(t, func(c net.Conn) {
		_, _ = io.CopyN(io.Discard, c, int64(len(http2.ClientPreface)))
		frames := http2.NewFramer(c, c)
		_ = frames.WriteSettings()
		for {
			f, err := frames.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := f.(*http2.HeadersFrame); ok {
				streams.Add(1)
				_ = frames.WriteRSTStream(h.StreamID, http2.ErrCodeRefusedStream)
			}
		}
	})
	s := (&site{t: t}).before("h2c"+strings.TrimPrefix(upstream, "http"), options{}, hourly(9))
	if got := s.get("/"); got.status != http.StatusBadGateway || streams.Load() != maxStreams {
		t.Errorf("%d after %d streams, want 502 after %d: %s", got.status, streams.Load(), maxStreams, fmt.Sprint(got.header["Proxy-Status"]))
	}
}
