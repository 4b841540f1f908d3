package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Over TLS to an upstream that speaks HTTP/2, too, websockets go over HTTP/1, as all does but calls of gRPC; also
// where it says that it speaks HTTP/2 alone, and does not, as net/http's own may.
func TestWebsocketsOverTLS(t *testing.T) {
	for want, says := range map[string][]string{"HTTP/1.1": {"h2", "http/1.1"}, "HTTP/2.0": {"h2"}} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/ws" {
				socket(w, r)
				return
			}
			_, _ = io.WriteString(w, r.Proto)
		}))
		server.EnableHTTP2 = true
		server.TLS = &tls.Config{NextProtos: says}
		server.StartTLS()
		t.Cleanup(server.Close)
		s := (&site{t: t}).before(server.URL, options{}, hourly(9))
		roots := x509.NewCertPool()
		roots.AddCert(server.Certificate())
		s.trust(roots)
		for range 2 {
			c := s.dial()
			c.write(upgrade + "\r\n")
			if resp := c.response(); resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%v, switching: %d", says, resp.StatusCode)
			}
			c.write("one\n")
			if got, err := c.r.ReadString('\n'); got != "one\n" || err != nil {
				t.Errorf("%v: %q came back, %v", says, got, err)
			}
			c.Close()
			if got, call := s.get("/"), s.call("/", ""); got.body != want || call.body != "HTTP/2.0" {
				t.Errorf("%v: any other request: %d over %s; a call of gRPC: %d over %s", says, got.status, got.body, call.status, call.body)
			}
		}
	}
}

// What clients ask for that the upstream cannot take is no fault of its, and closes no margins.
func TestWhatClientsCauseIsNoFault(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Used", "0.1")
		if r.Header["Upgrade"] != nil {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.MaxHeaderBytes = 8 << 10
	server.Start()
	t.Cleanup(server.Close)
	o := options{cfg: Config{Capacity: CapacityConfig{Name: "api", Header: "X-Used", TTL: time.Minute}}}
	s := (&site{t: t}).before("h2c://"+server.Listener.Addr().String(), o, hourly(9))
	if got := s.get("/"); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	if got := s.get("/", "Connection", "Upgrade", "Upgrade", "x"); got.status != http.StatusOK {
		t.Errorf("a switch that is not possible: %d, want it ignored", got.status)
	}
	if got := s.get("/", "Cookie", strings.Repeat("x", 12_000)); got.status != http.StatusRequestHeaderFieldsTooLarge || got.header.Get("Proxy-Status") != "spillgate; error=http_request_error" {
		t.Errorf("a header that is too large: %d %q, want 431", got.status, got.header["Proxy-Status"])
	}
	if used := s.metric("spillgate_proxy_capacity_used_ratio"); used != 0.1 {
		t.Errorf("%v of the capacity is used, want 0.1", used)
	}
	s.result("unreachable", 0)
}

// A client of HTTP/1.0 takes the first answer for the only one, and may not switch.
func TestClientsOfHTTP10(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			socket(w, r)
			return
		}
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "all")
	}, options{}, hourly(9))
	c := s.dial()
	c.write("GET / HTTP/1.0\r\nHost: h\r\n\r\n")
	if text, err := io.ReadAll(c.r); !strings.HasPrefix(string(text), "HTTP/1.0 200") || !strings.HasSuffix(string(text), "all") || err != nil {
		t.Errorf("%q, %v; want one answer", text, err)
	}
	c = s.dial()
	c.write(strings.Replace(upgrade, "HTTP/1.1", "HTTP/1.0", 1) + "\r\n")
	if resp := c.response(); resp.StatusCode != http.StatusOK {
		t.Errorf("a switch: %d, want it ignored", resp.StatusCode)
	}
}

// A client may ask for one of several protocols: the upstream switches to the one that it speaks. One
// that switches to another says nothing of how full it is: its client had it do so.
func TestSwitchesToOneOfSeveral(t *testing.T) {
	answers := ""
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Used", "0.1")
		if asked := r.Header.Get("Upgrade"); asked != "" && answers != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", answers)
			w.WriteHeader(http.StatusSwitchingProtocols)
		} else if asked != "" {
			socket(w, r)
		}
	}, options{cfg: Config{Capacity: CapacityConfig{Name: "api", Header: "X-Used", TTL: time.Minute}}}, hourly(99))
	for _, list := range []string{"websocket, foo", "foo, websocket", "foo ,websocket,bar", "foo\r\nUpgrade: websocket"} {
		c := s.dial()
		c.write(strings.Replace(upgrade, "Upgrade: websocket", "Upgrade: "+list, 1) + "\r\n")
		if resp := c.response(); resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "websocket" {
			t.Errorf("%s: %d %q, want websocket", list, resp.StatusCode, resp.Header["Upgrade"])
		}
		c.Close()
	}
	s.get("/")
	answers = "other"
	if got := s.get("/", "Connection", "Upgrade", "Upgrade", "x"); got.status != http.StatusBadGateway {
		t.Errorf("a switch to another protocol: %d, want 502", got.status)
	}
	if used := s.metric("spillgate_proxy_capacity_used_ratio"); used != 0.1 {
		t.Errorf("%v of the capacity is used, want 0.1", used)
	}
}
