package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/spillgate/spillgate/test/proc"
)

// stalling is the address of what stands before an upstream. Of what its first connection is sent
// from stall on nothing comes, which nobody tells, until wake.
func stalling(t *testing.T, upstream string, stall, wake <-chan struct{}) (url string) {
	up := mustURL(t, upstream)
	var conns atomic.Int64
	return up.Scheme + accepts(t, func(c net.Conn) {
		first := conns.Add(1) == 1
		to, err := net.Dial("tcp", up.Host)
		if err != nil {
			return
		}
		defer to.Close()
		go func() { // the connections' ends are its
			for b := make([]byte, 4096); ; {
				n, err := c.Read(b)
				if err != nil {
					to.Close()
					return
				}
				if first {
					select {
					case <-stall:
						<-wake
					default:
					}
				}
				_, _ = to.Write(b[:n])
			}
		}()
		_, _ = io.Copy(c, to)
	})[len("http"):]
}

// A connection of HTTP/2 that has died, of which nobody tells, has no more requests than come
// until it is found out: others go on a new one.
func TestDeadConnectionOfHTTP2IsLeft(t *testing.T) {
	stall, wake := make(chan struct{}), make(chan struct{})
	defer close(wake)
	s := (&site{t: t}).before(stalling(t, h2cUpstream(t, func(http.ResponseWriter, *http.Request) {}), stall, wake), options{cfg: Config{Timeout: 200 * time.Millisecond}}, hourly(1000))
	if got := s.get("/"); got.status != http.StatusOK {
		t.Fatalf("first %+v", got)
	}
	close(stall)
	for n, status := 0, 0; status != http.StatusOK; n++ {
		if status = s.get("/").status; n > 1 {
			t.Fatalf("request %d since a connection died: %d, want 200", n, status)
		}
	}
}

// One that is silent as the upstream is at work has no new requests meanwhile, and those that it
// has are answered.
func TestSilentConnectionIsNotCut(t *testing.T) {
	t.Run("h2c", func(t *testing.T) {
		isNotCut(t, h2cUpstream(t, func(http.ResponseWriter, *http.Request) {}), nil, func(s *site) reply { return s.get("/") })
	})
	t.Run("https", func(t *testing.T) {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		roots := x509.NewCertPool()
		roots.AddCert(server.Certificate())
		isNotCut(t, server.URL, roots, func(s *site) reply { return s.call("/", "") })
	})
}

// trust has the proxy's ways to its upstream go by roots.
func (s *site) trust(roots *x509.CertPool) {
	for _, way := range []http.RoundTripper{s.proxy.transport, s.proxy.calls, s.proxy.narrow} {
		l, ok := way.(*line)
		if !ok {
			continue
		}
		start := l.start
		l.start = func() *http.Transport {
			transport := start()
			transport.TLSClientConfig = &tls.Config{RootCAs: roots}
			return transport
		}
		l.on.Store(&route{Transport: l.start()})
	}
	fresh := s.proxy.fresh
	s.proxy.fresh = func() *http.Transport {
		t := fresh()
		t.TLSClientConfig = &tls.Config{RootCAs: roots}
		return t
	}
}

func isNotCut(t *testing.T, upstream string, roots *x509.CertPool, ask func(*site) reply) {
	stall, wake := make(chan struct{}), make(chan struct{})
	s := (&site{t: t}).before(stalling(t, upstream, stall, wake), options{}, hourly(1000))
	for _, way := range []http.RoundTripper{s.proxy.transport, s.proxy.calls, s.proxy.narrow} {
		if l, ok := way.(*line); ok {
			l.quiet = 20 * time.Millisecond
		}
	}
	s.trust(roots)
	if got := ask(s); got.status != http.StatusOK {
		t.Fatalf("first %+v", got)
	}
	close(stall)
	var asked sync.WaitGroup
	var answered atomic.Int64
	proc.Until(t, patience, func() error {
		asked.Go(func() {
			if got := ask(s); got.status != http.StatusOK {
				t.Errorf("%+v, want 200 in the end", got)
			}
			answered.Add(1)
		})
		if answered.Load() == 0 {
			return fmt.Errorf("no request goes past a silent connection")
		}
		return nil
	})
	close(wake)
	asked.Wait()
}

// An upstream may take its time, and its streams be silent for as long as they like: nothing is
// asked of it meanwhile (a ping is a fault to servers of gRPC, and a busy one answers none).
func TestNoPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Upstream: mustURL(t, "h2c://upstream")}.withDefaults()
		mine, its := net.Pipe()
		transport := newTransport(&cfg, answerWindow)
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			return &upstreamConn{Conn: mine, timeout: cfg.Timeout}, nil
		}
		release, served := make(chan struct{}), make(chan struct{})
		go func() { // the connection's end is its
			defer close(served)
			_, _ = io.CopyN(io.Discard, its, int64(len(http2.ClientPreface)))
			frames := http2.NewFramer(its, its)
			for {
				f, err := frames.ReadFrame()
				if err != nil {
					return
				}
				switch f := f.(type) {
				case *http2.PingFrame:
					t.Errorf("a ping came")
				case *http2.HeadersFrame:
					go func() { // release is its end
						_ = frames.WriteSettings()
						time.Sleep(cfg.Timeout / 2)
						var block bytes.Buffer
						_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
						_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: block.Bytes(), EndHeaders: true})
						<-release
						_ = frames.WriteData(f.StreamID, true, []byte("late"))
					}()
				}
			}
		}()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://upstream/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatalf("an upstream that works for half of its time: %v", err)
		}
		time.Sleep(time.Hour)
		close(release)
		if text, err := io.ReadAll(res.Body); string(text) != "late" || err != nil {
			t.Errorf("after a long silence %q, %v; want late", text, err)
		}
		its.Close()
		<-served
	})
}
