package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// What was admitted, and the upstream breaks off, it sees once, or twice where it may be
// repeated by its method or its key; however many connections to it are kept.
func TestSentOnce(t *testing.T) {
	const idle = 20
	var seen atomic.Int64
	for _, c := range []struct {
		method, body string
		header       []string
		again        int64
	}{
		{"GET", "", nil, 1},
		{"HEAD", "", nil, 1},
		{"DELETE", "", nil, 0},
		{"POST", "", nil, 0},
		{"POST", "", []string{"Idempotency-Key", "k"}, 1},
		{"PUT", "x", []string{"Idempotency-Key", "k"}, 0}, // its body is not kept
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
				if got := s.send(c.method, "/off", c.body, c.header...); got.status != http.StatusBadGateway || got.header.Get("Proxy-Status") != "spillgate; error=http_response_incomplete" || seen.Load() != 1+c.again {
					t.Errorf("%d %v, the upstream saw it %d times; want 502, as it broke off, and %d", got.status, got.header["Proxy-Status"], seen.Load(), 1+c.again)
				}
				if n := s.metric("spillgate_proxy_sent_again_total"); int64(n) != c.again {
					t.Errorf("%v were sent again, want %d", n, c.again)
				}
			})
		}
	}
}

// What meets the end of a kept connection, as an upstream restarts, is answered by the next one
// where it may be repeated.
func TestSentAgainAtARestart(t *testing.T) {
	for _, c := range []struct {
		name, method string
		header       []string
		status       int
	}{
		{"GET", "GET", nil, 200}, {"DELETE", "DELETE", nil, 502}, {"POST", "POST", nil, 502},
		{"a key", "POST", []string{"Idempotency-Key", "k"}, 200}, {"the other key", "PATCH", []string{"X-Idempotency-Key", "k"}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			var conns atomic.Int64
			upstream := accepts(t, func(conn net.Conn) {
				defer conn.Close()
				in, old := bufio.NewReader(conn), conns.Add(1) == 1
				for n := 0; ; n++ {
					r, err := http.ReadRequest(in)
					if err != nil || old && n == 1 { // read, and not answered
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			})
			s := (&site{t: t}).before(upstream, options{}, hourly(9))
			first := s.dial()
			first.write("GET /first HTTP/1.1\r\nHost: h\r\n\r\n")
			if resp := first.response(); resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status)
			}
			if got := s.send(c.method, "/", "", c.header...); got.status != c.status {
				t.Errorf("%d %v, want %d", got.status, got.header["Proxy-Status"], c.status)
			}
		})
	}
}

// What an upstream dies of on a kept connection was sent, though nobody is there when it is sent once
// more: it is not told as one that reached nobody.
func TestSentBeforeNobodyIsThere(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var served sync.WaitGroup
	served.Go(func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, answer := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""} {
			if _, err := http.ReadRequest(in); err != nil {
				t.Error(err)
				return
			}
			if answer == "" {
				ln.Close()
			}
			_, _ = io.WriteString(conn, answer)
		}
	})
	s := (&site{t: t}).before("http://"+ln.Addr().String(), options{}, hourly(9))
	if got := s.get("/"); got.status != http.StatusOK {
		t.Fatal(got.status)
	}
	if got := s.get("/die"); got.status != http.StatusBadGateway || got.header.Get("Proxy-Status") != "spillgate; error=http_response_incomplete" {
		t.Errorf("%d %v, want 502, as it broke off", got.status, got.header["Proxy-Status"])
	}
	served.Wait()
	if got := s.get("/"); got.status != http.StatusBadGateway || got.header.Get("Proxy-Status") != "spillgate; error=connection_refused" {
		t.Errorf("%d %v of what was never sent, want 502, as it was refused", got.status, got.header["Proxy-Status"])
	}
}

// repeating is net/http where it repeats a request of its own accord, for what no connection told.
type repeating struct{ conns []*headerConn }

func (s repeating) RoundTrip(out *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(out.Context())
	for _, c := range s.conns {
		trace.GotConn(httptrace.GotConnInfo{Conn: c, Reused: true})
	}
	<-out.Context().Done()
	return nil, out.Context().Err()
}

// What net/http itself would repeat on the next kept connection met the end of one.
func TestSentAgainForNetHTTP(t *testing.T) {
	conn := func() *headerConn {
		mine, its := net.Pipe()
		t.Cleanup(func() { mine.Close(); its.Close() })
		up := &upstreamConn{Conn: mine, timeout: patience}
		return &headerConn{Conn: up, up: up}
	}
	x := &exchange{proxy: &Proxy{cfg: Config{Timeout: patience}}}
	if res, ended, err := x.try(repeating{[]*headerConn{conn(), conn()}}, maxStreams, httptest.NewRequest("GET", "/", nil)); res != nil || !ended || err != errAgain {
		t.Errorf("%v, %v, %v; want it ended, and %v", res, ended, err, errAgain)
	}
}

// resets is an upstream of HTTP/2 that resets each stream, and counts them.
func resets(t *testing.T, code http2.ErrCode, streams *atomic.Int64) string {
	return "h2c" + accepts(t, func(c net.Conn) {
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
				_ = frames.WriteRSTStream(h.StreamID, code)
			}
		}
	})[len("http"):]
}

// A stream of HTTP/2 that the upstream refuses is sent once more, and on a connection of its own, and
// no oftener.
func TestRefusedStreams(t *testing.T) {
	var streams atomic.Int64
	s := (&site{t: t}).before(resets(t, http2.ErrCodeRefusedStream, &streams), options{}, hourly(9))
	if got := s.get("/"); got.status != http.StatusBadGateway || streams.Load() != maxStreams+1 {
		t.Errorf("%d after %d streams, want 502 after %d: %s", got.status, streams.Load(), maxStreams+1, fmt.Sprint(got.header["Proxy-Status"]))
	}
}

// strange is a transport that says that a request was canceled, which nobody did: net/http's does where
// another's is, just as its connection goes to the next.
type strange struct{}

func (strange) RoundTrip(*http.Request) (*http.Response, error) { return nil, context.Canceled }

// What nobody canceled is a connection that broke, and no panic, nor the client's leaving.
func TestNobodyCanceled(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{}, hourly(9))
	s.proxy.transport = strange{}
	for _, method := range []string{"GET", "POST"} {
		if got := s.send(method, "/", "x"); got.status != http.StatusBadGateway || got.header.Get("Proxy-Status") != "spillgate; error=http_response_incomplete" {
			t.Errorf("%s: %+v, want 502", method, got)
		}
	}
}
