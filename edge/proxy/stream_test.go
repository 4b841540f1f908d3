package proxy

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/proc"
)

// over are clients of both protocols that the proxy's listener speaks.
func over(t *testing.T, test func(t *testing.T, c *http.Client)) {
	for name, set := range map[string]func(*http.Protocols){
		"HTTP/1": func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/2": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		t.Run(name, func(t *testing.T) {
			transport := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
			set(transport.Protocols)
			t.Cleanup(transport.CloseIdleConnections)
			test(t, &http.Client{Transport: transport, Timeout: patience})
		})
	}
}

// Events reach the client one by one, and the header before the first; pauses of the
// upstream's are no pauses of the client's.
func TestEventsAreNotKeptBack(t *testing.T) {
	for kind, length := range map[string]string{"text/event-stream": "", "application/octet-stream": "4"} {
		over(t, func(t *testing.T, c *http.Client) {
			next := make(chan string)
			s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				for text := range next {
					io.WriteString(w, text)
					w.(http.Flusher).Flush()
				}
			}, options{cfg: Config{ClientTimeout: 50 * time.Millisecond}}, hourly(5))
			done := make(chan struct{})
			go func() { // the upstream's writer; the test waits for it
				defer close(done)
				next <- "a\n"
			}()
			resp, err := c.Get(s.url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			<-done
			lines := bufio.NewReader(resp.Body)
			if line, err := lines.ReadString('\n'); err != nil || line != "a\n" {
				t.Fatalf("%s: first came %q, %v", kind, line, err)
			}
			time.Sleep(150 * time.Millisecond) // a pause longer than a client may make
			next <- "b\n"
			if line, err := lines.ReadString('\n'); err != nil || line != "b\n" {
				t.Fatalf("%s: then %q, %v", kind, line, err)
			}
			close(next)
			if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
				t.Errorf("%s: at the end %q, %v", kind, rest, err)
			}
		})
	}
}

// A header goes out before there is a body.
func TestHeaderOfASilentStream(t *testing.T) {
	over(t, func(t *testing.T, c *http.Client) {
		left := make(chan struct{})
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(left)
		}, options{}, hourly(5))
		ctx, leave := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "GET", s.url, nil)
		resp, err := c.Do(req)
		if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("before any event: %v, %v", resp, err)
		}
		leave() // and the upstream hears of it
		select {
		case <-left:
		case <-time.After(patience):
			t.Fatal("the upstream was not told that the client left")
		}
		resp.Body.Close()
		s.result("left", 1)
	})
}

// echo answers each line of a body before the next.
func echo(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).EnableFullDuplex()
	w.(http.Flusher).Flush()
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		fmt.Fprintln(w, lines.Text())
		w.(http.Flusher).Flush()
	}
}

// Both ways at once: each line is answered before the next is sent, and between them a
// client may be silent for longer than while it is waited for.
func TestBothWaysAtOnce(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.Protocols.SetHTTP1(true)
	server.Start()
	defer server.Close()
	for _, scheme := range []string{"http", "h2c"} {
		over(t, func(t *testing.T, c *http.Client) {
			s := (&site{t: t}).before(scheme+"://"+server.Listener.Addr().String(), options{cfg: Config{ClientTimeout: 50 * time.Millisecond}}, hourly(5))
			body, lines := io.Pipe()
			defer lines.Close()
			req, _ := http.NewRequest("POST", s.url, body)
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			echoed := bufio.NewReader(resp.Body)
			for _, line := range []string{"one\n", "two\n", "three\n"} {
				time.Sleep(100 * time.Millisecond) // a pause
				io.WriteString(lines, line)
				if got, err := echoed.ReadString('\n'); got != line || err != nil {
					t.Fatalf("%q came back as %q, %v", line, got, err)
				}
			}
			lines.Close()
			if rest, err := io.ReadAll(echoed); err != nil || len(rest) > 0 {
				t.Fatalf("at the end %q, %v", rest, err)
			}
			s.result("answered", 1)
		})
	}
}

func TestTrailersGoBothWays(t *testing.T) {
	over(t, func(t *testing.T, c *http.Client) {
		var got http.Header
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			got = r.Trailer
			w.Header().Set("Trailer", "X-Announced")
			io.WriteString(w, "body")
			w.Header().Set("X-Announced", "a")
			w.Header().Set(http.TrailerPrefix+"X-Not-Announced", "b")
		}, options{}, hourly(5))
		req, _ := http.NewRequest("POST", s.url, io.NopCloser(strings.NewReader("x")))
		req.Trailer = http.Header{"X-Sum": {"1"}}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		if resp.Trailer.Get("X-Announced") != "a" || resp.Trailer.Get("X-Not-Announced") != "b" {
			t.Errorf("the client got the trailers %v", resp.Trailer)
		}
		if !slices.Equal(got["X-Sum"], []string{"1"}) {
			t.Errorf("the upstream got the trailers %v", got)
		}
	})
}

// An upstream of HTTP/2 alone, as gRPC is.
func TestUpstreamOfHTTP2(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.Header.Get("Te"))
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	over(t, func(t *testing.T, c *http.Client) {
		s := (&site{t: t}).before("h2c://"+server.Listener.Addr().String(), options{}, hourly(5))
		req, _ := http.NewRequest("POST", s.url, strings.NewReader("x"))
		req.Header.Set("Te", "trailers")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); string(text) != "HTTP/2.0 trailers" {
			t.Errorf("the upstream answered %s %q", resp.Status, text)
		}
	})
}

// socket is an upstream that switches to a protocol in which each line is echoed.
func socket(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" {
		fmt.Fprintf(w, "Upgrade %q, Connection %q, HTTP2-Settings %q", r.Header["Upgrade"], r.Header["Connection"], r.Header["Http2-Settings"])
		return
	}
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: "+cmp.Or(r.Header.Get("X-Switch-To"), "websocket")+"\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n")
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		io.WriteString(conn, line)
	}
}

const upgrade = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"

// A websocket is passed through, holds its slot while it is open, and may be silent for
// longer than a client's body.
func TestWebsocketHoldsItsSlot(t *testing.T) {
	slots := each("slots", limit.RateSpec{Algorithm: "concurrency", Limit: 1, Lease: time.Minute})
	s := newSite(t, socket, options{cfg: Config{ClientTimeout: 50 * time.Millisecond, Timeout: 50 * time.Millisecond}}, slots)
	c := s.dial()
	c.write(upgrade + "\r\n")
	resp := c.response()
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "websocket" || resp.Header.Get("Sec-WebSocket-Accept") != "x" {
		t.Fatalf("switching: %d %v", resp.StatusCode, resp.Header)
	}
	s.reaches(1, "spillgate_proxy_switched_connections")
	time.Sleep(150 * time.Millisecond) // silence
	for _, line := range []string{"one\n", "two\n"} {
		c.write(line)
		if got, err := c.r.ReadString('\n'); got != line || err != nil {
			t.Fatalf("%q came back as %q, %v", line, got, err)
		}
	}
	if got := s.get("/"); got.status != http.StatusTooManyRequests {
		t.Errorf("beside an open websocket: %d, want 429: its slot is taken", got.status)
	}
	c.Close()
	s.result("switched", 1)
	if got := s.get("/"); got.status != http.StatusOK {
		t.Errorf("after it: %d, want 200", got.status)
	}
	if n := s.metric("spillgate_proxy_switched_connections"); n != 0 {
		t.Errorf("%v switched connections, want none", n)
	}
}

// A client that takes nothing of a websocket holds neither its slot nor the upstream for longer
// than of an answer.
func TestWebsocketThatIsNotTakenEnds(t *testing.T) {
	slots := each("slots", limit.RateSpec{Algorithm: "concurrency", Limit: 1, Lease: time.Minute})
	ended := make(chan struct{})
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws" {
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer close(ended)
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		for much := make([]byte, 1<<20); err == nil; {
			_, err = conn.Write(much)
		}
	}, options{cfg: Config{ClientTimeout: 50 * time.Millisecond}}, slots)
	c := s.dial()
	c.write(upgrade + "\r\n")
	c.response()
	s.result("switched", 1)
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the upstream may write on")
	}
	if got := s.get("/"); got.status != http.StatusOK {
		t.Errorf("after it: %d, want 200: its slot is free", got.status)
	}
}

// A client that would speak HTTP/2 over the connection is not heard: what it then asked,
// no rule would be asked about.
func TestNobodySwitchesToHTTP(t *testing.T) {
	s := newSite(t, socket, options{}, hourly(100))
	for _, to := range []string{"h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.2"} {
		c := s.dial()
		c.write("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\nUpgrade: " + to + "\r\n\r\n")
		resp := c.response()
		text, _ := io.ReadAll(resp.Body)
		if want := `Upgrade [], Connection [], HTTP2-Settings []`; resp.StatusCode != 200 || string(text) != want {
			t.Errorf("Upgrade: %s: %d, the upstream was asked with %s, want %s", to, resp.StatusCode, text, want)
		}
	}
	for request, want := range map[string]int{upgrade + "X-Switch-To: other\r\n\r\n": 502, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: w\xe9b\r\n\r\n": 400} {
		c := s.dial()
		c.write(request)
		if resp := c.response(); resp.StatusCode != want || resp.Header["Proxy-Status"] == nil {
			t.Errorf("%q: %d %v, want %d", request, resp.StatusCode, resp.Header, want)
		}
	}
	if n := s.metric("spillgate_proxy_switched_connections"); n != 0 {
		t.Errorf("%v switched connections, want none", n)
	}
}

// The proxy stops though streams and websockets are open: they are cut off, once others
// had their time.
func TestStopsWhileStreamsLast(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			socket(w, r)
			return
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}, options{drain: 50 * time.Millisecond}, hourly(5))
	ws, stream := s.dial(), s.dial()
	ws.write(upgrade + "\r\n")
	ws.response()
	stream.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	stream.response()
	if err := s.stop(); err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
	ws.closed()
	if n := s.metric("spillgate_proxy_requests_under_way"); n != 0 {
		t.Errorf("%v requests are under way after Serve", n)
	}
}

// A websocket has the time that all requests have when the proxy stops, be nothing else under
// way.
func TestWebsocketHasItsTimeAtTheEnd(t *testing.T) {
	s := newSite(t, socket, options{drain: patience}, hourly(5))
	ws := s.dial()
	ws.write(upgrade + "\r\n")
	ws.response()
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }() // waited for below
	proc.Until(t, patience, func() error {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			c.Close()
			return errors.New("the proxy still listens")
		}
		return nil
	})
	ws.write("ping\n")
	echo := make([]byte, 5)
	if _, err := io.ReadFull(ws.r, echo); err != nil || string(echo) != "ping\n" {
		t.Errorf("a websocket while the proxy drains: %q, %v; want ping", echo, err)
	}
	ws.Close()
	if err := <-stopped; err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
}
