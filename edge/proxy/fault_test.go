package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/proc"
)

// speaks is the address of an upstream that accepts one connection after the other,
// reads what comes first, and does something.
func speaks(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	return accepts(t, func(c net.Conn) {
		c.Read(make([]byte, 4096))
		do(c)
	})
}

// accepts is the address of an upstream that does something with each connection.
func accepts(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() { // closing the listener ends it
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // its do ends it, and the test's end at the latest
				defer c.Close()
				do(c)
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

// speaksHTTP2 is the address of an upstream that answers each request with a status.
func speaksHTTP2(t *testing.T, status string) string {
	return accepts(t, func(c net.Conn) {
		var block bytes.Buffer
		fields := hpack.NewEncoder(&block)
		fields.WriteField(hpack.HeaderField{Name: ":status", Value: status})
		fields.WriteField(hpack.HeaderField{Name: "x-up", Value: "1"})
		frames, _, ok := firstAsked(c)
		if !ok {
			return
		}
		frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		io.Copy(io.Discard, c)
	})
}

// firstAsked is the first request that comes over a connection of HTTP/2.
func firstAsked(c net.Conn) (frames *http2.Framer, stream uint32, ok bool) {
	io.CopyN(io.Discard, c, int64(len(http2.ClientPreface)))
	frames = http2.NewFramer(c, c)
	frames.WriteSettings()
	for {
		f, err := frames.ReadFrame()
		if err != nil {
			return nil, 0, false
		}
		if f, ok := f.(*http2.HeadersFrame); ok {
			return frames, f.StreamID, true
		}
	}
}

// ends is the address of an upstream of HTTP/2 that ends each request.
func ends(t *testing.T, end func(frames *http2.Framer, stream uint32)) string {
	return "h2c" + accepts(t, func(c net.Conn) {
		if frames, stream, ok := firstAsked(c); ok {
			end(frames, stream)
		}
	})[len("http"):]
}

// A fault of the upstream's is told by its status and by Proxy-Status, is counted as
// one, and is no denial; the request has been counted.
func TestFaultsOfTheUpstream(t *testing.T) {
	says := func(text string) func(net.Conn) { return func(c net.Conn) { io.WriteString(c, text) } }
	tls := httptest.NewTLSServer(nil)
	defer tls.Close()
	for _, c := range []struct {
		name, upstream string
		status         int
		kind, result   string
	}{
		{"nobody listens", "http://" + proc.FreeAddr(t), 502, "connection_refused", "unreachable"},
		{"no such name", "http://upstream.invalid", 502, "dns_error", "unreachable"},
		{"it hangs", speaks(t, func(c net.Conn) { io.Copy(io.Discard, c) }), 504, "http_response_timeout", "timeout"},
		{"it closes", speaks(t, says("")), 502, "http_response_incomplete", "unreachable"},
		{"it closes amid its header", speaks(t, says("HTTP/1.1 200 OK\r\nX-A: b\r\n")), 502, "http_response_incomplete", "unreachable"},
		{"it speaks something else", speaks(t, says("SSH-2.0-x\r\n\r\n")), 502, "http_protocol_error", "unreachable"},
		{"a status that is none", speaks(t, says("HTTP/1.1 099 OK\r\nContent-Length: 2\r\nX-Up: 1\r\n\r\nok")), 502, "http_protocol_error", "unreachable"},
		{"a status of HTTP/2 that is none", "h2c" + speaksHTTP2(t, "1000")[len("http"):], 502, "http_protocol_error", "unreachable"},
		{"it closes a connection of HTTP/2", ends(t, func(*http2.Framer, uint32) {}), 502, "http_response_incomplete", "unreachable"},
		{"it is calmed", ends(t, func(f *http2.Framer, stream uint32) {
			f.WriteGoAway(stream, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings"))
		}), 502, "http_response_incomplete", "unreachable"},
		{"it resets a stream", ends(t, func(f *http2.Framer, stream uint32) { f.WriteRSTStream(stream, http2.ErrCodeInternal) }), 502, "http_response_incomplete", "unreachable"},
		{"its certificate is its own", tls.URL, 502, "tls_certificate_error", "unreachable"},
		{"it speaks no TLS", "https" + speaks(t, says("nothing\n"))[len("http"):], 502, "tls_protocol_error", "unreachable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{}
			if c.result == "timeout" {
				cfg.Timeout = 300 * time.Millisecond
			}
			s := (&site{t: t}).before(c.upstream, options{cfg: cfg}, hourly(9))
			got := s.get("/")
			if got.status != c.status || got.header.Get("Proxy-Status") != "spillgate; error="+c.kind {
				t.Errorf("%d, Proxy-Status %q; want %d, %s", got.status, got.header["Proxy-Status"], c.status, c.kind)
			}
			var problem struct {
				Status       int
				Detail, Type string
			}
			if err := json.Unmarshal([]byte(got.body), &problem); err != nil || problem.Status != c.status || problem.Detail == "" || problem.Type != "about:blank" {
				t.Errorf("the problem is %s, %v", got.body, err)
			}
			if got.header.Get("Cache-Control") != "no-store" || got.header["Ratelimit"] == nil || got.header["Retry-After"] != nil || got.header["X-Up"] != nil {
				t.Errorf("the fields are %v, want those of the rule, and no-store", got.header)
			}
			s.result(c.result, 1)
			if n := s.charged(); n != 1 {
				t.Errorf("%v were charged, want 1", n)
			}
		})
	}
}

// A connection that TCP has given up, as what was sent is not acknowledged, is said to be lost.
func TestLostConnection(t *testing.T) {
	f := faultOf(&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}, nil, false)
	if f.status != http.StatusBadGateway || f.kind != "connection_terminated" || f.result != resultUnreachable {
		t.Errorf("%+v, want a 502 of a lost connection", f)
	}
}

// An upstream that takes nothing more of a body does not hold it for ever.
func TestUpstreamThatTakesNothing(t *testing.T) {
	stop := make(chan struct{})
	upstream := speaks(t, func(net.Conn) { <-stop })
	t.Cleanup(func() { close(stop) })
	s := (&site{t: t}).before(upstream, options{cfg: Config{Timeout: 300 * time.Millisecond, MaxBody: -1}}, hourly(9))
	c := s.dial()
	c.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n")
	go io.Copy(c, zeros{}) // until the proxy closes the connection
	if resp := c.response(); resp.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("%d, want 504", resp.StatusCode)
	}
	s.result("timeout", 1)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// An answer that breaks off breaks off at the client, too: nobody takes it for whole.
func TestAnswersThatBreakOff(t *testing.T) {
	over(t, func(t *testing.T, client *http.Client) {
		for name, answer := range map[string]string{
			"of a length": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
			"in chunks":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		} {
			s := (&site{t: t}).before(speaks(t, func(c net.Conn) { io.WriteString(c, answer) }), options{}, hourly(9))
			resp, err := client.Get(s.url)
			if err != nil {
				continue // over HTTP/2 the stream may be reset before its header is read
			}
			if text, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("%s: %q without an error, want one", name, text)
			}
			resp.Body.Close()
			s.result("broken", 1)
		}
	})
}

// A client that leaves before the upstream answers is neither a fault nor a denial; rules
// may count it as 499.
func TestClientThatLeaves(t *testing.T) {
	asked, done := make(chan struct{}, 9), make(chan struct{}, 9)
	rule := limit.RuleSpec{Name: "gone", CountWhen: `attr("response.status") == "499"`, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}}
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
		done <- struct{}{}
	}, options{}, rule)
	c := s.dial()
	c.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-asked
	c.Close()
	<-done
	s.result("left", 1)
	if got := s.get("/"); got.status != http.StatusTooManyRequests {
		t.Errorf("after one that left: %d, want 429: the rule counts those", got.status)
	}
}

// A bug is no denial, and no fault of the upstream's.
func TestPanicIsA500(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{}, hourly(9))
	s.proxy.transport = nil
	s.proxy.cfg.Upstream = nil
	if got := s.send("POST", "/", "x"); got.status != http.StatusInternalServerError {
		t.Errorf("%+v, want 500", got)
	}
	s.result("panic", 1)
}

// What a client sends that cannot be sent on is its own fault: nobody is asked about it,
// and the upstream is not taken for broken.
func TestUnwritableRequests(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{}, hourly(9))
	c := s.dial()
	c.write("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: (\r\n\r\n0\r\n\r\n")
	if resp := c.response(); resp.StatusCode != http.StatusBadRequest || s.charged() != 0 || s.served.Load() != 0 {
		t.Errorf("%d, %v were charged; want 400, and none", resp.StatusCode, s.charged())
	}
	s.result("refused", 1)
	// Over HTTP/2 net/http takes any method.
	r := httptest.NewRequest("GET", "/", nil)
	r.Method, r.ProtoMajor = "G T", 2
	w := httptest.NewRecorder()
	if s.proxy.ServeHTTP(w, r); w.Code != http.StatusBadRequest || s.charged() != 0 || s.served.Load() != 0 {
		t.Errorf("a method with a blank: %d, want 400", w.Code)
	}
}

// What is no request net/http answers itself, as the README's table says: nobody is asked
// about it, nothing counts it, and the connection is closed.
func TestWhatIsNoRequest(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{}, hourly(9))
	for text, status := range map[string]int{
		"GET / HTTP/1.1\r\n\r\n":                                                      400,
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n":                                400,
		"GET / HTTP/1.1\r\nHost: ä\r\n\r\n":                                           400,
		"nonsense, longer than the preface of HTTP/2\r\n\r\n":                         400,
		"GET / HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n":                           417,
		"GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n": 431,
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n":           501,
		"GET / HTTP/3.0\r\nHost: h\r\n\r\n":                                           505,
	} {
		c := s.dial()
		c.write(text)
		resp := c.response()
		if got := resp.Header.Get("Content-Type"); resp.StatusCode != status || got != "" && got != "text/plain; charset=utf-8" || resp.Header["Proxy-Status"] != nil || !resp.Close {
			t.Errorf("%.60q: %d %v, closed: %v; want %d of net/http's", text, resp.StatusCode, resp.Header, resp.Close, status)
		}
	}
	if s.served.Load() != 0 || s.charged() != 0 || s.metric("spillgate_proxy_requests_total") != 0 {
		t.Errorf("%d were served, %v charged, %v counted; want none", s.served.Load(), s.charged(), s.metric("spillgate_proxy_requests_total"))
	}
}
