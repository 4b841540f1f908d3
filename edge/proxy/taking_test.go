package proxy

import (
	"bytes"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// An upstream of HTTP/2 that takes nothing more of a body has no longer for that than for its
// answer, whoever sends it, also if he has left meanwhile.
func TestUpstreamsThatTakeNothing(t *testing.T) {
	upstream := ends(t, func(f *http2.Framer, _ uint32) { // takes a window of 64 KiB, and answers nothing
		for {
			if _, err := f.ReadFrame(); err != nil {
				return
			}
		}
	})
	s := (&site{t: t}).before(upstream, options{cfg: Config{Timeout: time.Second}}, hourly(9))
	const size = 200 << 10
	if got := s.send("POST", "/", strings.Repeat("x", size)); got.status != http.StatusGatewayTimeout || got.header.Get("Proxy-Status") != "spillgate; error=http_response_timeout" {
		t.Errorf("over HTTP/1: %d %q, want 504", got.status, got.header["Proxy-Status"])
	}
	c := s.dialHTTP2()
	defer c.Close()
	c.post(1, "/", size, false)
	if got := c.status(1); got != "504" {
		t.Errorf("over HTTP/2: %q, want 504", got)
	}
	leaves := s.dial()
	leaves.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n" + strings.Repeat("x", 1_000_000))
	s.reaches(1, "spillgate_proxy_requests_under_way")
	leaves.Close()
	s.reaches(0, "spillgate_proxy_requests_under_way")
}

// What an upstream waits for is its own time, and not the client's: that may be longer; and an upstream
// that takes no more is late by its own.
func TestUpstreamsThatTakeWhatComes(t *testing.T) {
	const most = time.Second
	synctest.Test(t, func(t *testing.T) {
		h := &held{make(chan struct{}), make(chan struct{})}
		b := &body{src: h, left: -1, pauses: &pauses{due: due{most: time.Hour, late: func() { close(h.late) }}}}
		var late atomic.Bool
		taking := &due{most: most, late: func() { late.Store(true) }}
		b.taking.Store(taking)
		taking.start()
		for range 8 {
			time.Sleep(most - time.Millisecond) // virtual: the upstream
			time.AfterFunc(3*most, func() { h.sends <- struct{}{} })
			if n, err := b.Read(make([]byte, 9)); n != 1 || err != nil || late.Load() {
				t.Fatalf("%d bytes, %v; late %v, want a byte and more to come", n, err, late.Load())
			}
		}
		time.Sleep(most + time.Millisecond) // virtual
		synctest.Wait()
		if !late.Load() {
			t.Error("an upstream that takes no more is not late")
		}
	})
}

// An upstream that has few streams a connection is asked for no more of them at a time.
func TestUpstreamsOfFewStreams(t *testing.T) {
	const streams, clients = 10, 100
	for _, scheme := range []string{"h2c", "https"} {
		t.Run(scheme, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-time.After(10 * time.Millisecond) }))
			server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			url, roots := "", x509.NewCertPool()
			if scheme == "h2c" {
				server.Start()
				url = "h2c://" + server.Listener.Addr().String()
			} else {
				server.EnableHTTP2 = true
				server.Config.Protocols.SetHTTP2(true)
				server.StartTLS()
				roots.AddCert(server.Certificate())
				url = server.URL
			}
			t.Cleanup(server.Close)
			s := (&site{t: t}).before(url, options{}, hourly(1000))
			s.trust(roots)
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					for _, method := range []string{"GET", "POST"} {
						got := reply{}
						if scheme == "h2c" {
							got = s.send(method, "/", "x")
						} else {
							got = s.call("/", "x")
						}
						if got.status != http.StatusOK {
							t.Errorf("%s: %d %s", method, got.status, got.body)
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// An answer of HTTP/2 ends where the upstream ends it, though its client has more to say, as streams
// of gRPC have that the server ends.
func TestAnswersEndBeforeTheirRequests(t *testing.T) {
	s := (&site{t: t}).before(h2cUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		if _, err := io.ReadFull(r.Body, make([]byte, 5)); err != nil {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, "denied")
		w.Header().Set("Grpc-Status", "7")
	}), options{}, hourly(9))
	c := s.dialHTTP2()
	defer c.Close()
	c.post(1, "/", 5, false)
	c.until(1, "end", func(f http2.Frame) bool {
		end, is := f.(*http2.MetaHeadersFrame)
		return is && end.StreamEnded() && len(end.Fields) == 1 && end.Fields[0].Value == "7"
	})
	chunked := s.dial()
	chunked.write("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
	if resp := chunked.response(); resp.StatusCode != http.StatusOK {
		t.Errorf("over HTTP/1: %d", resp.StatusCode)
	} else if text, err := io.ReadAll(resp.Body); string(text) != "denied" || err != nil {
		t.Errorf("over HTTP/1: %q, %v", text, err)
	}
	s.reaches(0, "spillgate_proxy_requests_under_way")
}

// Nor does one that begins its answer, and takes no more of the body, hold the request of a client of
// HTTP/1 who has left: nothing else would tell.
func TestUpstreamsThatTakeNothingMore(t *testing.T) {
	ended := make(chan struct{})
	s := (&site{t: t}).before(h2cUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	}), options{cfg: Config{Timeout: time.Second}}, hourly(9))
	c := s.dial()
	c.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n" + strings.Repeat("x", 2_000_000))
	if resp := c.response(); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d, want the answer to begin", resp.StatusCode)
	}
	c.Close()
	s.reaches(0, "spillgate_proxy_requests_under_way")
	<-ended
}

// silentAfter is the body of a client that says something, and then nothing, until the test ends.
func silentAfter(t *testing.T, text string) io.Reader {
	body, client := io.Pipe()
	t.Cleanup(func() { client.Close() })
	go func() { _, _ = io.WriteString(client, text) }() // body's end ends it
	return body
}

// An upstream of HTTP/2 that dies under an answer, to a client that is silent as streams are, ends the
// request: nothing more can come of either.
func TestUpstreamsThatDieUnderAStream(t *testing.T) {
	over(t, func(t *testing.T, c *http.Client) {
		upstream := ends(t, func(f *http2.Framer, stream uint32) {
			var block bytes.Buffer
			_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
			_ = f.WriteData(stream, false, []byte("part"))
		})
		s := (&site{t: t}).before(upstream, options{}, hourly(9))
		resp, err := c.Post(s.url, "application/grpc", silentAfter(t, "hello"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); string(text) != "part" || err == nil {
			t.Errorf("%q, %v; want what came, and an error", text, err)
		}
		s.reaches(0, "spillgate_proxy_requests_under_way")
		s.result("broken", 1)
	})
}

// An upstream of HTTP/2 that refuses a request may take its time to say why, though its client sends
// no more of it.
func TestRefusalsThatTakeTheirTime(t *testing.T) {
	over(t, func(t *testing.T, c *http.Client) {
		s := (&site{t: t}).before(h2cUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "be")
			_ = http.NewResponseController(w).Flush()
			<-time.After(abortTime + abortTime/4)
			_, _ = io.WriteString(w, "cause")
		}), options{}, hourly(9))
		resp, err := c.Post(s.url, "text/plain", silentAfter(t, "hello"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); string(text) != "because" || err != nil {
			t.Errorf("%q, %v; want all of it", text, err)
		}
	})
}
