package proxy

import (
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// What Connection names ends here though it also says close, over TLS, too; the rest of
// the answer, and the next one, lose nothing.
func TestFieldsNamedBesideClose(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func(*httptest.Server)
		proto string
	}{
		{"plain", (*httptest.Server).Start, "HTTP/1.1"},
		{"TLS", (*httptest.Server).StartTLS, "HTTP/1.1"},
		{"HTTP/2", func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }, "HTTP/2.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			proto := ""
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				proto = r.Proto
				w.Header().Set("X-End", "1")
				if r.URL.Path == "/close" {
					w.Header().Set("Connection", "X-Secret, close")
					w.WriteHeader(http.StatusEarlyHints)
				}
				w.Header().Set("X-Secret", "1")
			}))
			c.start(server)
			t.Cleanup(server.Close)
			s := (&site{t: t}).before(server.URL, options{}, hourly(9))
			if cert := server.Certificate(); cert != nil {
				roots := x509.NewCertPool()
				roots.AddCert(cert)
				s.trust(roots)
			}
			for _, step := range []struct{ path, secret string }{{"/", "1"}, {"/close", ""}, {"/", "1"}} {
				got := reply{}
				if c.proto == "HTTP/2.0" {
					step.secret = "1" // there Connection means nothing
					got = s.call(step.path, "")
				} else {
					got = s.get(step.path)
				}
				if got.status != 200 || got.header.Get("X-Secret") != step.secret || got.header.Get("X-End") != "1" || got.header["Ratelimit"] == nil || proto != c.proto {
					t.Errorf("%s over %s was answered %d %v, want X-Secret %q, and X-End", step.path, proto, got.status, got.header, step.secret)
				}
			}
		})
	}
}

// A header is heard however it is written and cut up, and nothing of what follows it.
func TestHeardNames(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		want         []string
	}{
		{"one of two", "HTTP/1.1 200 OK\r\nConnection: X-A, close\r\n\r\nConnection: X-B, close\r\n\r\n", []string{"X-A"}},
		{"two lines", "HTTP/1.1 200 OK\r\nconnection:CLOSE\r\nConnection: X-A\r\n\r\n", []string{"X-A"}},
		{"bare line ends", "HTTP/1.1 200 OK\nConnection: close,X-A\n\n", []string{"X-A"}},
		{"a line that goes on", "HTTP/1.1 200 OK\r\nConnection: close,\r\n X-A\r\n\r\n", []string{"X-A"}},
		{"after others", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1  100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: X-A, close\r\n\r\n", []string{"X-A"}},
		{"a switch is the last", "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\n\r\nHTTP/1.1 200 OK\r\nConnection: X-A, close\r\n\r\n", nil},
		{"not closed", "HTTP/1.1 200 OK\r\nConnection: X-A\r\n\r\n", nil}, // httputil sees to it
		{"too long", "HTTP/1.1 200 OK\r\nConnection: X-A, close\r\nX: " + strings.Repeat("x", 2*maxAnswerHeader) + "\r\n\r\n", nil},
	} {
		for _, cut := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
			conn := &headerConn{Conn: reads{Reader: cut(strings.NewReader(c.answer))}, up: new(upstreamConn)}
			conn.listen(false, func(error) {})
			if _, err := io.Copy(io.Discard, struct{ io.Reader }{conn}); err != nil {
				t.Fatal(err)
			}
			if got := conn.nominated(); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
			if cap(conn.header) > 2*maxAnswerHeader {
				t.Errorf("%s: %d bytes are kept", c.name, cap(conn.header))
			}
		}
	}
}

// reads is a connection of which only reading matters.
type reads struct {
	net.Conn
	io.Reader
}

func (r reads) Read(b []byte) (int, error) { return r.Reader.Read(b) }

// Who names no host is asked about by the name that the upstream is asked for.
func TestWhoNamesNoHost(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Host) }))
	t.Cleanup(server.Close)
	rule := hourly(2)
	rule.Match.Host = []string{"127.0.0.1"}
	s := (&site{t: t}).before(server.URL, options{}, rule)
	for i, request := range []string{"GET / HTTP/1.0\r\n", "GET / HTTP/1.1\r\nHost:\r\n", "GET / HTTP/1.0\r\n", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", "GET / HTTP/1.1\r\nHost: x\r\n"} {
		c := s.dial()
		c.write(request + "\r\n")
		if got, want := c.response().StatusCode, []int{200, 200, 429, 429, 200}[i]; got != want {
			t.Errorf("%q: %d, want %d", request, got, want)
		}
	}
	if name := strings.TrimPrefix(server.URL, "http://"); !slices.Equal(got, []string{name, name, "x"}) {
		t.Errorf("the upstream was asked for %q", got)
	}
}
