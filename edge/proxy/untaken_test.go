package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/spillgate/spillgate/test/proc"
)

// dialNoWindow is a client of HTTP/2 that takes no answer's body.
func (s *site) dialNoWindow() *frames {
	s.t.Helper()
	c := s.dialHTTP2()
	s.t.Cleanup(func() { c.Close() })
	c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	return c
}

// get asks for a path.
func (c *frames) get(stream uint32, path string, more ...string) {
	c.header(stream, true, append([]string{":method", "GET", ":scheme", "http", ":path", path, ":authority", "h"}, more...)...)
}

// until reads what comes of a stream until that is what is awaited.
func (c *frames) until(stream uint32, what string, is func(http2.Frame) bool) {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("stream %d has no %s: %v", stream, what, err)
		}
		if f.Header().StreamID == stream && is(f) {
			return
		}
	}
}

// reset waits until a stream is.
func (c *frames) reset(stream uint32) {
	c.t.Helper()
	c.until(stream, "reset", func(f http2.Frame) bool { return f.Header().Type == http2.FrameRSTStream })
}

// h2cUpstream is one of HTTP/2.
func h2cUpstream(t *testing.T, handler http.HandlerFunc) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return "h2c://" + server.Listener.Addr().String()
}

// Of an answer of HTTP/2 that its client does not take no more is fetched than a window, and
// as much again that is on its way; and the window is narrow where there is no room for wide ones.
func TestUntakenAnswersAreNotFetched(t *testing.T) {
	var fetched atomic.Int64
	ended := make(chan struct{})
	up := h2cUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		for part := make([]byte, 16<<10); ; {
			n, err := w.Write(part)
			if fetched.Add(int64(n)); err != nil {
				return
			}
		}
	})
	s := (&site{t: t}).before(up, options{cfg: Config{ClientTimeout: time.Second}}, hourly(5))
	c := s.dialNoWindow()
	for i, window := range []int64{answerWindow, answerWindow, narrowWindow} {
		stream := uint32(2*i + 1)
		proc.Until(t, patience, func() error {
			if n := s.proxy.answers.Taken(); n > 0 {
				return fmt.Errorf("%d bytes of room are taken", n)
			}
			return nil
		})
		if window == narrowWindow {
			s.proxy.answers.Try(netip.Addr{}, answerRoom) // as others have it
		}
		fetched.Store(0)
		c.get(stream, "/")
		c.reset(stream)
		<-ended
		if got := fetched.Load(); got < window || got > 2*window {
			t.Errorf("%d bytes of an answer were fetched that nobody takes, want about %d", got, window)
		}
	}
}

// Of bodies that the upstream does not take no more comes than a window of each, and of all.
func TestUntakenBodiesAreNotRead(t *testing.T) {
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, options{}, hourly(50))
	c := s.dialHTTP2()
	defer c.Close()
	want := map[http2.SettingID]uint32{http2.SettingInitialWindowSize: bodyWindow, http2.SettingMaxFrameSize: maxFrame, http2.SettingMaxConcurrentStreams: maxConnStreams}
	conn := uint32(65535)
	for len(want) > 0 || conn < connWindow {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("of the bounds are not told: %v; %d bytes may come: %v", want, conn, err)
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			for id, most := range want {
				if got, _ := f.Value(id); got == most {
					delete(want, id)
				}
			}
		case *http2.WindowUpdateFrame:
			conn += f.Increment
		}
	}
	if conn != connWindow {
		t.Errorf("%d bytes of a connection's bodies may come, want %d", conn, connWindow)
	}
}

// An answer whose client takes nothing of it ends, whoever gives it, though it is so short that
// it is net/http that sends it, after the handler.
func TestUntakenAnswersEnd(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "short") }, options{cfg: Config{ClientTimeout: 50 * time.Millisecond}}, hourly(1))
	c := s.dialNoWindow()
	for stream, path := range []string{"/", "/denied", "//h"} {
		c.get(uint32(2*stream+1), path)
		c.reset(uint32(2*stream + 1))
	}
	c.header(7, true, ":method", "CONNECT", ":authority", "h") // which is refused
	c.reset(7)
	c.header(9, true, ":method", "HEAD", ":scheme", "http", ":path", "/denied", ":authority", "h")
	if got := c.answer(); got != "429" { // has no body to take
		t.Errorf("HEAD: %q, want 429", got)
	}
}

// A connection of HTTP/2 from which nothing is read ends, as no stream of it can be told to.
func TestUnreadConnectionsEnd(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		for part := make([]byte, 1<<20); ; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}, options{cfg: Config{ClientTimeout: 100 * time.Millisecond}}, hourly(1))
	c := s.dialHTTP2()
	defer c.Close()
	c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	c.WriteWindowUpdate(0, 1<<30)
	c.get(1, "/")
	s.result("left", 1)
}

// An answer may end after a silence that is longer than the client may pause.
func TestAnswerEndsAfterASilence(t *testing.T) {
	over(t, func(t *testing.T, client *http.Client) {
		silence := make(chan struct{})
		s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "all")
			w.(http.Flusher).Flush()
			<-silence
		}, options{cfg: Config{ClientTimeout: 50 * time.Millisecond}}, hourly(5))
		resp, err := client.Get(s.url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		time.AfterFunc(150*time.Millisecond, func() { close(silence) })
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "all" {
			t.Errorf("%q, %v; want all", text, err)
		}
	})
}

// A request over HTTP/2 has its place until its answer is taken, and not beyond.
func TestPlacesUntilAnswersAreTaken(t *testing.T) {
	places := make(chan struct{}, 2)
	enter := func(string) (leave func(), ok bool) {
		select {
		case places <- struct{}{}:
			return func() { <-places }, true
		default:
			return nil, false
		}
	}
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{cfg: Config{Enter: enter}}, hourly(1))
	s.get("/") // over HTTP/1
	c := s.dialNoWindow()
	for stream := uint32(1); stream < 5; stream += 2 {
		c.get(stream, "/denied")
		if got := c.status(stream); got != "429" {
			t.Fatalf("stream %d: %q, want 429", stream, got)
		}
	}
	c.get(5, "/")
	if got := c.head(5); got[":status"] != "503" || got["proxy-status"] != "spillgate; error=http_request_denied" || got["retry-after"] != "1" {
		t.Errorf("beyond the places: %v, want 503 of ours", got)
	}
	c.header(7, true, ":method", "POST", ":scheme", "http", ":path", "/", ":authority", "h", "content-type", "application/grpc")
	if got := c.head(7); got[":status"] != "200" || got["grpc-status"] != "14" || got["proxy-status"] == "" {
		t.Errorf("a call of gRPC: %v, want UNAVAILABLE of ours", got)
	}
	c.WriteWindowUpdate(1, 1<<16)
	c.WriteRSTStream(3, http2.ErrCodeCancel)
	proc.Until(t, patience, func() error {
		if n := len(places); n > 0 {
			return fmt.Errorf("%d places are taken", n)
		}
		return nil
	})
	c.get(9, "/")
	if got := c.status(9); got != "429" {
		t.Errorf("where there is room again: %q, want 429", got)
	}
}

// status waits for that of a stream.
func (c *frames) status(stream uint32) string {
	c.t.Helper()
	return c.head(stream)[":status"]
}

// head waits for the fields that begin a stream's answer.
func (c *frames) head(stream uint32) map[string]string {
	c.t.Helper()
	fields := map[string]string{}
	c.until(stream, "answer", func(f http2.Frame) bool {
		header, is := f.(*http2.MetaHeadersFrame)
		if is {
			for _, field := range header.Fields {
				fields[field.Name] = field.Value
			}
		}
		return is
	})
	return fields
}
