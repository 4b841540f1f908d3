package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/spillgate/spillgate/test/proc"
)

// frames is a client of HTTP/2 that writes what it likes.
type frames struct {
	net.Conn
	*http2.Framer
	t      testing.TB
	block  bytes.Buffer
	fields *hpack.Encoder
	away   bool // GOAWAY came
}

func (s *site) dialHTTP2() *frames {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	io.WriteString(conn, http2.ClientPreface)
	c := &frames{Conn: conn, Framer: http2.NewFramer(conn, conn), t: s.t}
	c.fields = hpack.NewEncoder(&c.block)
	c.AllowIllegalWrites = true
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.WriteSettings()
	c.WriteWindowUpdate(0, 1<<20)
	return c
}

// header writes fields, pairs of name and value. The server may have closed: reading tells.
func (c *frames) header(stream uint32, last bool, pairs ...string) {
	c.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		c.fields.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	block := c.block.Bytes()
	for first := true; first || len(block) > 0; first = false {
		part := block[:min(len(block), 16<<10)]
		block = block[len(part):]
		if first {
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: part, EndStream: last, EndHeaders: len(block) == 0})
		} else {
			c.WriteContinuation(stream, len(block) == 0, part)
		}
	}
}

// answer reads until the first stream has its whole answer, or has none: its status is ""
// then. The proxy hangs where that takes for ever.
func (c *frames) answer() (status string) {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if s := f.PseudoValue("status"); s >= "2" {
				status = s
			}
			if f.StreamEnded() {
				return status
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				return status
			}
		case *http2.RSTStreamFrame:
			return status
		case *http2.GoAwayFrame:
			c.away = true
			return status
		}
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			return status
		}
		if err != nil {
			c.t.Fatalf("the proxy's answer cannot be read, or it hangs: %v", err)
		}
	}
}

// end says no more, and waits until the proxy has said so, too: by GOAWAY, which it has a
// second's time for a client to read, or by closing the connection.
func (c *frames) end() {
	c.t.Helper()
	defer c.Close()
	c.Conn.(*net.TCPConn).CloseWrite()
	for !c.away {
		f, err := c.ReadFrame()
		_, c.away = f.(*http2.GoAwayFrame)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			c.t.Fatal("the proxy keeps a connection that its client has ended")
		}
		if err != nil && !errors.As(err, new(http2.StreamError)) {
			return
		}
	}
}

// asks counts what goes on to the upstream.
type asks struct {
	http.RoundTripper
	n atomic.Int64
}

func (a *asks) RoundTrip(r *http.Request) (*http.Response, error) {
	a.n.Add(1)
	return a.RoundTripper.RoundTrip(r)
}

// asked is the host that an upstream was asked for, and the number of the request, as its
// client gave it: one may come when its client has left.
type asked struct{ host, number string }

// hostSite is a site whose upstream tells the host that it was asked for, and what goes on to it.
func hostSite(t testing.TB) (*site, *asks, *atomic.Pointer[asked]) {
	t.Helper()
	var host atomic.Pointer[asked]
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		host.Store(&asked{r.Host, r.Header.Get("x-number")})
		io.Copy(w, r.Body)
	}, options{cfg: Config{ClientTimeout: 200 * time.Millisecond}}, hourly(1<<40))
	on := &asks{RoundTripper: s.proxy.transport}
	s.proxy.transport = on
	return s, on, &host
}

// sound is that no request was charged that did not go on, and none taken for a fault of
// the upstream's, or the proxy's own.
func (s *site) sound(on *asks) {
	s.t.Helper()
	proc.Until(s.t, patience, func() error {
		if charged, asked := s.charged(), float64(on.n.Load()); charged != asked {
			return errors.New("what was charged is not what went on to the upstream")
		}
		return nil
	})
	for _, result := range []string{"panic", "unreachable", "timeout", "broken"} {
		if n := s.metric("spillgate_proxy_requests_total", "result", result); n != 0 {
			s.t.Errorf("%v requests are told as %s", n, result)
		}
	}
}

// The upstream is asked for the host that the rules saw, or not at all: what net/http
// would write otherwise is refused, and counts nothing.
func TestHostsThatAreWrittenOtherwise(t *testing.T) {
	s, on, host := hostSite(t)
	for _, c := range []struct{ authority, status string }{
		{"shop.example", "200"}, {"Shop.example:80", "200"}, {"[2001:db8::1]:80", "200"}, {"xn--4ca", "200"},
		{"ä", "400"}, {"a b", "400"}, {"a/b", "400"}, {"a\xff", "400"}, {"[fe80::1%25en0]", "400"}, {"[fe80::1%en0]:80", "400"}, {"", "400"},
	} {
		before := on.n.Load()
		conn := s.dialHTTP2()
		conn.header(1, true, ":method", "GET", ":path", "/", ":scheme", "http", ":authority", c.authority)
		if got := conn.answer(); got != c.status || (on.n.Load() != before) != (got == "200") {
			t.Errorf("%q: %s, %d went on; want %s", c.authority, got, on.n.Load()-before, c.status)
		} else if got == "200" && host.Load().host != c.authority {
			t.Errorf("%q: the upstream was asked for %q", c.authority, host.Load().host)
		}
		conn.end()
	}
	c := s.dial()
	c.write("GET http://%C3%A4/ HTTP/1.1\r\nHost: h\r\n\r\n")
	if resp := c.response(); resp.StatusCode != http.StatusBadRequest || resp.Header.Get("Proxy-Status") == "" {
		t.Errorf("a host in escapes over HTTP/1: %d %v, want 400", resp.StatusCode, resp.Header)
	}
	s.sound(on)
	s.result("refused", 8)
}

// A query that HTTP/1 cannot carry is refused, and not written into a line of it, where
// what stands behind a space would be read as something else.
func TestQueriesThatCannotBeWritten(t *testing.T) {
	s, on, _ := hostSite(t)
	for _, c := range []struct{ path, status string }{
		{"/?a=%20b&c[]=d|e\"'<>\\^`{}~;", "200"}, {"/?ä", "200"}, {"/?", "200"}, {"/a b", "200"}, {"/a#b", "200"},
		{"/?a= ", "400"}, {"/? HTTP/1.1", "400"}, {"/?a#b", "400"}, {"/?#", "400"},
	} {
		before := on.n.Load()
		conn := s.dialHTTP2()
		conn.header(1, true, ":method", "GET", ":path", c.path, ":scheme", "http", ":authority", "h")
		if got := conn.answer(); got != c.status || (on.n.Load() != before) != (got == "200") {
			t.Errorf("%q: %s, %d went on; want %s", c.path, got, on.n.Load()-before, c.status)
		}
		conn.end()
	}
	s.sound(on)
	s.result("refused", 4)
}

// Whatever a client of HTTP/2 writes, the proxy answers or ends the stream, in time, asks
// the upstream for the host that it was asked for, and charges what it passed on, nothing
// else; and a client's mistakes are no faults of the upstream's.
func FuzzHTTP2(f *testing.F) {
	for _, seed := range []struct{ method, path, authority, name, value, trailer, body, more string }{
		{"GET", "/", "h", "x-a", "b", "", "", ""}, {"POST", "//a/%2e%2e?b=;", "h:80", "content-length", "3", "x-sum", "abc", ""},
		{"G T", "/", "h", "trailer", "a b", "a b", "x", ""}, {"CONNECT", "", "h:1", "te", "trailers", "", "", ""}, {"OPTIONS", "*", "a b", "connection", "x-forwarded-for", "", "", ""},
		{"GET", "http://u:p@else/", "ä", "x-forwarded-for", "192.0.2.9", "", "", ""}, {"PUT", "/", "h", "expect", "100-continue", "content-length", "x", "\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x00"},
		{"GET", "/", "h", "content-length", "9", "", "x", "\x00\x00\x00\x01\x05\x00\x00\x00\x03"}, {"GET", "/", "", "host", "else", "", "", ""}, {"POS", "//a?b= ", "h:80", "x-a", "3", "x-sum", "abc", ""}, {"HEAD", "/\x00", "h", "upgrade", "h2c", "host", "", "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"},
	} {
		f.Add(seed.method, seed.path, seed.authority, seed.name, seed.value, seed.trailer, []byte(seed.body), []byte(seed.more))
	}
	s, on, host := hostSite(f)
	inputs := 0
	f.Fuzz(func(t *testing.T, method, path, authority, name, value, trailer string, body, more []byte) {
		if len(path)+len(authority)+len(name)+len(value)+len(trailer) > 128<<10 || len(body) > 16<<10 {
			return
		}
		s.t = t
		defer func() { s.t = f }()
		inputs++
		c := s.dialHTTP2()
		pairs := []string{":method", method, ":path", path, ":scheme", "http", ":authority", authority, name, value, "x-number", fmt.Sprint(inputs)}
		if trailer != "" {
			pairs = append(pairs, "trailer", trailer)
		}
		c.header(1, len(body) == 0 && trailer == "", pairs...)
		if len(body) > 0 {
			c.WriteData(1, trailer == "", body)
		}
		if trailer != "" {
			c.header(1, true, strings.ToLower(trailer), value)
		}
		status := c.answer()
		asked := host.Load()
		c.Write(more)
		c.end()
		// Another's: it was refused.
		if asked != nil && asked.number == fmt.Sprint(inputs) && asked.host != authority && authority != "" {
			t.Errorf("the upstream was asked for %q, want %q", asked.host, authority)
		}
		if status >= "5" && status != "501" {
			t.Errorf("%s, want no fault", status)
		}
		s.sound(on)
	})
}
