package deferred

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/proxy"
	"github.com/spillgate/spillgate/test/proc"
)

// listen serves a front over real connections as the proxy does, and is its URL.
func listen(t *testing.T, f *Front) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { // cancel ends it, and it is waited for when the test ends
		defer close(ended)
		_ = f.site.(*proxy.Proxy).Serve(ctx, ln, f)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return "http://" + ln.Addr().String()
}

// A body may come as late, and as slowly, as the time for it allows; one that does not end
// is denied, over HTTP/1 and HTTP/2.
func TestBodiesThatComeLate(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	f := front(q, site(t, time.Hour, &upstream{}), 0)
	get(f, call("GET", "/", "")) // of another client
	f.cfg.ClientTimeout = time.Second
	at := listen(t, f)
	for name, h2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetHTTP1(!h2)
			transport.Protocols.SetUnencryptedHTTP2(h2)
			defer transport.CloseIdleConnections()
			c := &http.Client{Transport: transport, Timeout: 20 * time.Second}
			if resp, err := c.Get(at); err != nil {
				t.Fatal(err)
			} else {
				resp.Body.Close()
			}
			for _, tt := range []struct {
				name string
				ends bool
				want int
			}{{"late", true, http.StatusAccepted}, {"never", false, http.StatusTooManyRequests}} {
				r, w := io.Pipe()
				gone := make(chan struct{}) // there is an answer
				written := make(chan struct{})
				go func() { // the client's transport reads it, or closes it; waited for below
					defer close(written)
					_, _ = w.Write([]byte("bo"))
					for tt.ends && f.held.Taken() == 0 { // it comes when it is waited for
						select {
						case <-gone:
							return
						case <-time.After(time.Millisecond):
						}
					}
					if tt.ends {
						_, _ = w.Write([]byte("dy"))
						w.Close()
					}
				}()
				req, err := http.NewRequest("PUT", at+"/x", r)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				resp, err := c.Do(req)
				close(gone)
				if took := time.Since(began); !tt.ends && took < f.cfg.ClientTimeout {
					t.Errorf("%s: given up after %v of %v", tt.name, took, f.cfg.ClientTimeout)
				}
				w.Close()
				<-written
				if err != nil {
					t.Fatalf("%s: %v", tt.name, err)
				}
				resp.Body.Close()
				if resp.StatusCode != tt.want {
					t.Errorf("%s: %d, want %d", tt.name, resp.StatusCode, tt.want)
				}
			}
		})
	}
}

// What bodies take of memory at once is bounded, and given back.
func TestBodiesHeldAreBounded(t *testing.T) {
	f := NewFront(nil, FrontConfig{Held: 200 << 10})
	read := func(size int) (*passage, bool) {
		p := &passage{front: f, client: httptest.NewRecorder()}
		r := call("PUT", "/", "")
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(make([]byte, size))), -1
		return p, f.read(p, r) == resultKept
	}
	p, ok := read(100 << 10)
	if n := f.held.Taken(); !ok || len(p.body) != 100<<10 || n != int64(cap(p.body)) {
		t.Fatalf("read %d bytes, %v; %d are held, want 102400", len(p.body), ok, n)
	}
	if _, ok := read(100 << 10); ok || f.held.Taken() > 200<<10 {
		t.Errorf("another was read: %v, %d bytes are held, of %d", ok, f.held.Taken(), 200<<10)
	}
}

// One client's slow bodies leave room for others'.
func TestOneClientLeavesRoomForBodies(t *testing.T) {
	f := NewFront(nil, FrontConfig{Held: 8 * readBytes, TrustedProxies: httpapi.Loopback})
	grows := func(peer string) int {
		n := 0
		for p := (&passage{who: httpapi.Caller(peer, f.cfg.TrustedProxies)}); f.grow(p, -1); p.body = nil {
			n++
		}
		return n
	}
	for _, c := range []struct {
		peer string
		want int
	}{{"192.0.2.1:1", 2}, {"192.0.2.1:2", 0}, {"192.0.2.2:1", 2}, {"127.0.0.1:1", 4}} {
		if got := grows(c.peer); got != c.want {
			t.Errorf("%s holds %d bodies more, want %d", c.peer, got, c.want)
		}
	}
}

// While JetStream is away denials are told at once, and when it is back requests wait.
func TestDenialsDoNotWaitForJetStream(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Timeout: 5 * time.Second})
	f := front(q, site(t, time.Hour, &upstream{}), 0)
	get(f, call("GET", "/", ""))
	j.server.Shutdown()
	get(f, call("PUT", "/", "x")) // may notice it
	began := time.Now()
	for range 100 {
		if w := get(f, call("PUT", "/", "x")); w.Code != http.StatusTooManyRequests {
			t.Fatalf("%d %s, want 429", w.Code, w.Body)
		}
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("100 denials took %v, want none to wait for JetStream", took)
	}
	if n := f.held.Taken(); n != 0 {
		t.Errorf("%d bytes are held, of nobody", n)
	}
	j.start()
	proc.Until(t, 20*time.Second, func() error {
		if w := get(f, call("PUT", "/", "x")); w.Code != http.StatusAccepted {
			return fmt.Errorf("%d %s, want 202 now that JetStream is back", w.Code, w.Body)
		}
		return nil
	})
}
