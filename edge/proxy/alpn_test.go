package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/spillgate/spillgate/test/proc"
)

// speaker is an https upstream that says over what, and what it was told.
type speaker struct {
	net.Listener
	certificates []tls.Certificate
	roots        *x509.CertPool
	kind         atomic.Pointer[kind]
	conns        atomic.Int64
	drops        atomic.Int64 // the connection, counted from 1, that it drops
}

// kind is what an upstream says that it speaks.
type kind struct {
	name    string
	says    []string
	leaves  bool                 // who did not say that he speaks the same
	refuses bool                 // him likewise, in the handshake
	ends    func(net.Conn) error // him likewise, by this
}

func newSpeaker(t *testing.T) *speaker {
	of := httptest.NewTLSServer(nil)
	of.Close()
	s := &speaker{certificates: of.TLS.Certificates, roots: x509.NewCertPool()}
	s.roots.AddCert(of.Certificate())
	var err error
	if s.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	go func() { // that ends it
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			go s.serve(c, s.conns.Add(1)) // the client's end ends it
		}
	}()
	return s
}

func (s *speaker) serve(c net.Conn, nth int64) {
	defer c.Close()
	k := s.kind.Load()
	cfg := &tls.Config{Certificates: s.certificates, NextProtos: k.says}
	if k.ends != nil {
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !slices.Contains(hello.SupportedProtos, k.says[0]) {
				return nil, k.ends(hello.Conn)
			}
			return nil, nil
		}
	}
	if k.refuses { // crypto/tls refuses nobody who speaks HTTP/1, where it speaks HTTP/2
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			other := cfg.Clone()
			if !slices.Contains(hello.SupportedProtos, k.says[0]) {
				other.NextProtos = []string{"other"}
			}
			return other, nil
		}
	}
	over := tls.Server(c, cfg)
	if nth == s.drops.Load() || over.Handshake() != nil || k.leaves && protocolOf(over) == "" {
		return
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Proto+string(text))
	})
	if len(k.says) > 0 && k.says[0] == "h2" {
		(&http2.Server{}).ServeConn(over, &http2.ServeConnOpts{Handler: handler})
		return
	}
	for from := bufio.NewReader(over); ; {
		r, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		handler(w, r)
		fmt.Fprintf(over, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", w.Body.Len(), w.Body)
	}
}

// routers are those that close what they know of nobody for, each in its way.
var routers = []kind{
	{"closes others", []string{"h2"}, false, false, func(c net.Conn) error { return c.Close() }},
	{"resets others", []string{"h2"}, false, false, func(c net.Conn) error { _ = c.(*net.TCPConn).SetLinger(0); return c.Close() }},
	{"tells others of an internal error", []string{"h2"}, false, false, func(net.Conn) error { return errors.New("nobody") }},
}

// before is a proxy before it.
func (s *speaker) before(t *testing.T, o options) *site {
	site := (&site{t: t}).before("https://"+s.Addr().String(), o, hourly(900))
	site.trust(s.roots)
	return site
}

// An https upstream that speaks HTTP/2 alone, as servers of gRPC may, is asked over that, whatever
// comes first, and again once it is asked anew: nothing is sent before that is known. One that knows no
// ALPN is asked over HTTP/1.
func TestUpstreamOfHTTP2Alone(t *testing.T) {
	up := newSpeaker(t)
	for _, k := range append(routers, []kind{
		{"answers over HTTP/2", []string{"h2"}, false, false, nil}, {"leaves others", []string{"h2"}, true, false, nil},
		{"refuses others", []string{"h2"}, false, true, nil}, {"knows no ALPN", nil, false, false, nil}, {"speaks HTTP/1 alone", []string{"http/1.1"}, false, false, nil},
	}...) {
		up.kind.Store(&k)
		over := "HTTP/1.1"
		if slices.Contains(k.says, "h2") {
			over = "HTTP/2.0"
		}
		for _, posts := range []bool{false, true} {
			s := up.before(t, options{cfg: Config{Capacity: CapacityConfig{Name: "api", Header: "X-Used", TTL: time.Hour}}})
			for i := range 6 {
				got, want := reply{}, over
				if posts {
					got, want = s.send("POST", "/", "text"), want+"text"
				} else {
					got = s.get("/")
				}
				if got.status != http.StatusOK || got.body != want {
					t.Errorf("an upstream that %s: %+v, want 200 over %s", k.name, got, want)
				}
				if i == 3 {
					s.proxy.spoken.next.Store(1) // long ago
				}
			}
			if got := s.get("/", "Connection", "Upgrade", "Upgrade", "x"); got.status != http.StatusOK {
				t.Errorf("an upstream that %s, a switch that is not possible: %+v, want it ignored", k.name, got)
			}
			s.result("unreachable", 0)
			if got := s.call("/", ""); got.body != over {
				t.Errorf("an upstream that %s, a call: %+v", k.name, got)
			}
			if used := s.metric("spillgate_proxy_capacity_used_ratio"); used == 1 {
				t.Errorf("an upstream that %s is taken to be full", k.name)
			}
		}
	}
}

// It may be another by the next connection.
func TestUpstreamThatSpeaksAnother(t *testing.T) {
	up := newSpeaker(t)
	kinds := []kind{{"speaks HTTP/1", []string{"http/1.1"}, false, false, nil}, {"knows no ALPN", nil, false, false, nil}, {"speaks HTTP/2 alone", []string{"h2"}, false, false, nil}, {"refuses HTTP/1", []string{"h2"}, false, true, nil}}
	for _, was := range kinds {
		for _, is := range kinds {
			up.kind.Store(&was)
			s := up.before(t, options{})
			s.send("POST", "/", "x")
			up.kind.Store(&is)
			s.proxy.transport.(*line).on.Store(&route{Transport: s.proxy.transport.(*line).start()})
			s.proxy.calls.(*line).on.Store(&route{Transport: s.proxy.calls.(*line).start()})
			for _, got := range []reply{s.send("POST", "/", "x"), s.get("/"), s.call("/", "")} {
				if got.status != http.StatusOK {
					t.Errorf("one that %s, and then %s: %+v", was.name, is.name, got)
				}
			}
		}
	}
}

// What becomes of a connection by which it is asked says nothing of it but to whose that was.
func TestLostHandshakeSaysNothing(t *testing.T) {
	for _, k := range []kind{{"speaks HTTP/2 alone", []string{"h2"}, false, false, nil}, {"refuses others", []string{"h2"}, false, true, nil}} {
		for nth := range int64(3) {
			up := newSpeaker(t)
			up.kind.Store(&k)
			up.drops.Store(nth + 1)
			s := up.before(t, options{})
			lost := 0
			for range 6 {
				if got := s.send("POST", "/", "x"); got.status != http.StatusOK {
					lost++
				}
			}
			if lost > 1 {
				t.Errorf("one that %s, and drops connection %d: %d of 6 fail", k.name, nth+1, lost)
			}
		}
	}
}

// What turns out to go over HTTP/2 has wide windows only where there is room for them.
func TestAskedOverHTTP2TakesRoom(t *testing.T) {
	up := newSpeaker(t)
	up.kind.Store(&kind{says: []string{"h2"}})
	s := up.before(t, options{})
	narrow := counted{RoundTripper: s.proxy.narrow, count: new(atomic.Int64)}
	s.proxy.narrow = narrow
	ask := func(want int64) {
		t.Helper()
		if got := s.send("POST", "/", "x"); got.status != http.StatusOK || narrow.count.Load() != want {
			t.Errorf("%+v; %d went by narrow windows, want %d", got, narrow.count.Load(), want)
		}
	}
	ask(0)
	proc.Until(t, patience, func() error {
		if taken := s.proxy.answers.Taken(); taken != 0 {
			return fmt.Errorf("%d are taken of a request that is over", taken)
		}
		return nil
	})
	for s.proxy.answers.Try(netip.Addr{}, answerWindow) {
	}
	s.proxy.spoken.next.Store(1)
	ask(1)
}

// counted counts what goes by a transport.
type counted struct {
	http.RoundTripper
	count *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(out *http.Request) (*http.Response, error) {
	c.count.Add(1)
	return c.RoundTripper.RoundTrip(out)
}

// Who asks to switch before an upstream that is known to speak HTTP/2 alone, and takes HTTP/1 without a
// word, waits for one handshake.
func TestSwitchesTakeOneHandshake(t *testing.T) {
	up := newSpeaker(t)
	up.kind.Store(&kind{says: []string{"h2"}})
	s := up.before(t, options{})
	s.get("/")
	before := up.conns.Load()
	for range 3 {
		s.get("/", "Connection", "Upgrade", "Upgrade", "x")
	}
	if got := up.conns.Load() - before; got != 3 {
		t.Errorf("three requests to switch made %d connections", got)
	}
	before = up.conns.Load()
	for range 3 { // as Java's client sends, and who asks for nothing
		s.get("/", "Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA")
		s.get("/", "Upgrade", "x")
	}
	if got := up.conns.Load() - before; got > 0 {
		t.Errorf("six requests that may not switch made %d connections", got)
	}
}

// A request to switch goes over HTTP/2 with all that it has, or not at all: what was sent over HTTP/1
// is not done twice, and not without its body. Neither is a fault of the upstream's.
func TestSwitchesAreDoneOnceAndWhole(t *testing.T) {
	var mu sync.Mutex
	done := map[string]int{} // by what came
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		done[fmt.Sprint(r.URL, len(text), err)]++
	}))
	server.EnableHTTP2 = true
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP2(true)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	s := (&site{t: t}).before(server.URL, options{}, hourly(900))
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	s.trust(roots)
	s.get("/")
	for i := range 60 {
		for name, text := range map[string]string{"bare": "", "small": "text", "large": strings.Repeat("x", 70_000)} {
			path := fmt.Sprint("/", name, i, "/")
			got := s.send("POST", path, text, "Connection", "Upgrade", "Upgrade", "x")
			mu.Lock()
			whole, all := done[fmt.Sprint(path, len(text), nil)], 0
			for what, times := range done {
				if strings.HasPrefix(what, path) {
					all += times
				}
			}
			mu.Unlock()
			switch {
			case all > 1 || all != whole:
				t.Errorf("%s: came %d times, %d of them whole", path, all, whole)
			case got.status == http.StatusOK && whole != 1 || got.status != http.StatusOK && (got.header.Get("Proxy-Status") != "spillgate; error=http_upgrade_failed" || text == "" && all > 0):
				t.Errorf("%s: %d, and came %d times", path, got.status, all)
			}
		}
	}
	s.result("unreachable", 0)
}

// Of an upstream that speaks HTTP/1, some new connections end in the handshake: one of those behind a
// balancer is dead. It is taken for no upstream of HTTP/2 alone by that, to which all requests would go on
// one connection, and those to switch without that: such a request has met a fault.
func TestHandshakesThatEndAreFaultsOfWhoSpeaksHTTP1(t *testing.T) {
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	backend.EnableHTTP2, backend.TLS = true, &tls.Config{NextProtos: bothHTTP}
	backend.StartTLS()
	defer backend.Close()
	balancer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer balancer.Close()
	var phase atomic.Pointer[string] // which connections come to one who is alive, and which to the dead: a, d
	alive := "a"
	phase.Store(&alive)
	go func() { // the listener's end ends it
		var last *string
		for n := 0; ; n++ {
			c, err := balancer.Accept()
			if err != nil {
				return
			}
			now := phase.Load()
			if now != last {
				n, last = 0, now
			}
			dies := (*now)[n%len(*now)] == 'd'
			go func() {
				defer c.Close()
				if dies {
					_, _ = c.Read(make([]byte, 1))
					return
				}
				to, err := net.Dial("tcp", backend.Listener.Addr().String())
				if err != nil {
					return
				}
				defer to.Close()
				go func() { _, _ = io.Copy(c, to); c.Close() }()
				_, _ = io.Copy(to, c)
			}()
		}
	}()
	s := (&site{t: t}).before("https://"+balancer.Addr().String(), options{}, hourly(900))
	roots := x509.NewCertPool()
	roots.AddCert(backend.Certificate())
	s.trust(roots)
	faults := 0.
	ask := func(fields ...string) {
		t.Helper()
		s.proxy.transport.(*line).on.Load().CloseIdleConnections()
		switch got := s.get("/", fields...); {
		case got.status == http.StatusBadGateway && *phase.Load() != alive:
			faults++
		case got.status != http.StatusOK || got.body != "HTTP/1.1":
			t.Errorf("%s, %v: %d %s, want it over HTTP/1.1, or 502", *phase.Load(), fields, got.status, got.body)
		}
	}
	for _, of := range []string{alive, "aad", "dadd", "d", alive} {
		phase.Store(&of)
		for range 12 {
			ask()
		}
		for range 6 {
			ask("Connection", "Upgrade", "Upgrade", "websocket")
		}
	}
	if s.result("unreachable", faults); faults < 18 {
		t.Errorf("%v faults, want one of each request while all are dead", faults)
	}
}
