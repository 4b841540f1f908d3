package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// canned answers each request alike, so that what is measured is the proxy alone.
type canned struct{}

func (canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: 5, Request: r,
		Header: http.Header{"Content-Type": {"text/plain"}, "Content-Length": {"5"}}, Body: io.NopCloser(strings.NewReader("hello")),
	}, nil
}

// sink is a response writer that keeps nothing.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) Flush()                      {}

// contestants are a bare ReverseProxy, as one would write it, and the proxy with a rule
// whose limit is never reached.
func contestants(b *testing.B, upstream string) (bare, limited http.Handler, both func(http.RoundTripper)) {
	at, err := url.Parse(upstream)
	if err != nil {
		b.Fatal(err)
	}
	node := limitertest.Node(b, limit.Document{Namespace: "site", Rules: []limit.RuleSpec{each("most", limit.RateSpec{Limit: 1 << 40, Per: time.Minute})}})
	api, err := httpapi.New(node, httpapi.Config{})
	if err != nil {
		b.Fatal(err)
	}
	p, err := New(api, node, Config{Upstream: at})
	if err != nil {
		b.Fatal(err)
	}
	rp := &httputil.ReverseProxy{BufferPool: &buffers, FlushInterval: -1, Transport: p.transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(at)
		r.SetXForwarded()
		r.Out.Host = r.In.Host
	}}
	return rp, p, func(t http.RoundTripper) { rp.Transport, p.transport = t, t }
}

// BenchmarkHandler is what a request costs in the handler, with an upstream that
// answers from memory.
func BenchmarkHandler(b *testing.B) {
	bare, limited, both := contestants(b, "http://upstream.example")
	both(canned{})
	for name, h := range map[string]http.Handler{"bare": bare, "limited": limited} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/api/x?a=b", nil)
			r.Header = http.Header{"Accept": {"*/*"}, "User-Agent": {"bench"}, "X-User-Id": {"u1"}}
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(&sink{header: http.Header{}}, r)
			}
		})
	}
}

// BenchmarkLoopback is a request over loopback, there and back, of parallel clients.
func BenchmarkLoopback(b *testing.B) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	defer upstream.Close()
	bare, limited, _ := contestants(b, upstream.URL)
	for name, h := range map[string]http.Handler{"bare": bare, "limited": limited} {
		b.Run(name, func(b *testing.B) {
			server := httptest.NewServer(h)
			defer server.Close()
			transport := &http.Transport{MaxIdleConnsPerHost: 64}
			defer transport.CloseIdleConnections()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					resp, err := transport.RoundTrip(httptest.NewRequest("GET", server.URL, nil))
					if err != nil {
						b.Error(err)
						return
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		})
	}
}
