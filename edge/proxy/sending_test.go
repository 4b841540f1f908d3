package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
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
