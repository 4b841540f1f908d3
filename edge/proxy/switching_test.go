package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
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

// An https upstream that speaks HTTP/2 alone, as servers of gRPC may, is asked over that, whatever
// comes first, and again once it is asked anew: nothing is sent before that is known. One that knows no
// ALPN is asked over HTTP/1.
func TestUpstreamOfHTTP2Alone(t *testing.T) {
	kinds := map[string]struct {
		speaks []string
		serves func(negotiated string) bool
		want   string
	}{
		"answers over HTTP/2": {[]string{"h2"}, func(string) bool { return true }, "HTTP/2.0"},
		"leaves others":       {[]string{"h2"}, func(negotiated string) bool { return negotiated != "" }, "HTTP/2.0"},
		"refuses others":      {[]string{"h2", "x"}, func(string) bool { return true }, "HTTP/2.0"}, // see below
		"knows no ALPN":       {nil, func(string) bool { return true }, "HTTP/1.1"},
	}
	for name, kind := range kinds {
		of := httptest.NewTLSServer(nil)
		of.Close()
		roots := x509.NewCertPool()
		roots.AddCert(of.Certificate())
		speaks := &tls.Config{Certificates: of.TLS.Certificates, NextProtos: kind.speaks}
		if len(kind.speaks) > 1 { // crypto/tls refuses nobody who speaks HTTP/1, where it speaks HTTP/2
			speaks.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				less := speaks.Clone()
				if !slices.Contains(hello.SupportedProtos, "h2") {
					less.NextProtos = kind.speaks[1:]
				}
				return less, nil
			}
		}
		ln, err := tls.Listen("tcp", "127.0.0.1:0", speaks)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			_, _ = io.WriteString(w, r.Proto+string(text))
		})
		if kind.speaks == nil {
			server := &http.Server{Handler: handler}
			go func() { _ = server.Serve(ln) }()
			t.Cleanup(func() { server.Close() })
		} else {
			go func() { // ln's end ends it
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					go func() { // the client's end ends it
						defer c.Close()
						over := c.(*tls.Conn)
						if err := over.Handshake(); err == nil && kind.serves(over.ConnectionState().NegotiatedProtocol) {
							(&http2.Server{}).ServeConn(c, &http2.ServeConnOpts{Handler: handler})
						}
					}()
				}
			}()
		}
		for _, posts := range []bool{false, true} {
			s := (&site{t: t}).before("https://"+ln.Addr().String(), options{cfg: Config{Capacity: CapacityConfig{Name: "api", Header: "X-Used", TTL: time.Hour}}}, hourly(900))
			s.trust(roots)
			for i := range 6 {
				got, want := reply{}, kind.want
				if posts {
					got, want = s.send("POST", "/", "text"), want+"text"
				} else {
					got = s.get("/")
				}
				if got.status != http.StatusOK || got.body != want {
					t.Errorf("an upstream that %s: %+v, want 200 over %s", name, got, want)
				}
				if i == 3 {
					s.proxy.only.CompareAndSwap(s.proxy.only.Load(), min(1, s.proxy.only.Load())) // long ago
				}
			}
			if kind.speaks != nil {
				if got := s.call("/", ""); got.body != kind.want {
					t.Errorf("an upstream that %s, a call: %+v", name, got)
				}
			}
			if used := s.metric("spillgate_proxy_capacity_used_ratio"); used == 1 {
				t.Errorf("an upstream that %s is taken to be full", name)
			}
		}
	}
}
