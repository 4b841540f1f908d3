package proxy

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// endsAfter is an upstream of HTTP/2 that ends each connection after so many requests, as nginx does:
// what comes beyond is not done. It counts what is.
func endsAfter(t *testing.T, most int, done *atomic.Int64) string {
	return "h2c" + accepts(t, func(c net.Conn) {
		_, _ = io.CopyN(io.Discard, c, int64(len(http2.ClientPreface)))
		frames := http2.NewFramer(c, c)
		_ = frames.WriteSettings()
		var block bytes.Buffer
		fields := hpack.NewEncoder(&block)
		last := uint32(0)
		for begun, ended := 0, 0; ended < most; {
			f, err := frames.ReadFrame()
			if err != nil {
				return
			}
			id := f.Header().StreamID
			if _, ok := f.(*http2.HeadersFrame); ok {
				if begun++; begun == most {
					last = id
					_ = frames.WriteGoAway(id, http2.ErrCodeNo, nil)
				}
			}
			if id == 0 || !f.Header().Flags.Has(http2.FlagDataEndStream) || last > 0 && id > last {
				continue
			}
			ended++
			done.Add(1)
			block.Reset()
			_ = fields.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		}
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c) // or what was answered would be lost
	})[len("http"):]
}

// What an upstream had not begun with as it ended a connection is sent again, with its body, and is
// done once.
func TestConnectionsThatEndUnderWay(t *testing.T) {
	const clients, each = 40, 10
	var done atomic.Int64
	s := (&site{t: t}).before(endsAfter(t, 20, &done), options{}, hourly(10_000))
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for i := range each {
				method, body := "POST", strings.Repeat("x", 1000)
				if i%2 == 0 {
					method, body = "GET", ""
				}
				if got := s.send(method, "/", body); got.status != http.StatusOK {
					t.Errorf("%s: %d %s", method, got.status, got.body)
				}
			}
		})
	}
	all.Wait()
	if n := done.Load(); n != clients*each {
		t.Errorf("%d requests were done, of %d", n, clients*each)
	}
	if n := s.proxy.kept.Load(); n != 0 {
		t.Errorf("%d bytes are kept, of nobody", n)
	}
}

// A body that is sent again is whole, however far it came, and one that is too long for that is not
// sent again.
func TestBodiesThatAreSentAgain(t *testing.T) {
	for size, again := range map[int]bool{1: true, 5000: true, mostKept: true, mostKept + 1: false} {
		var room atomic.Int64
		text := strings.Repeat("x", size-1) + "y"
		b := &body{src: strings.NewReader(text), left: -1, pauses: &pauses{due: due{most: time.Minute}}, trim: func(http.Header) {}}
		b.keepIn.Store(&room)
		send := func() *reader { return b.sends(func(int64) {}) }
		first := send()
		_, _ = io.ReadFull(first, make([]byte, size*2/3+1))
		for range 3 {
			if err := b.again(); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			if n, err := first.Read(make([]byte, 1)); n > 0 || err != errClosed {
				t.Errorf("who read it before: %d, %v", n, err)
			}
			first = send()
			_, _ = io.ReadFull(first, make([]byte, size/2))
		}
		if err := b.again(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(send()); string(got) != text || err != nil {
			t.Errorf("%d bytes: %d come again, %v", size, len(got), err)
		}
		if err := b.again(); (err == nil) != again {
			t.Errorf("%d bytes, all read: %v", size, err)
		}
		if b.talk(false); room.Load() != 0 {
			t.Errorf("%d bytes: %d are kept though the answer has begun", size, room.Load())
		}
		b.leave(false)
	}
}

// An upstream that ends a stream before it answers is done with it, though the client is silent, and
// has more to say.
func TestStreamsThatEndWhileTheClientIsSilent(t *testing.T) {
	for name, end := range map[string]func(*http2.Framer, uint32){
		"reset":   func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeInternal) },
		"refused": func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream) },
		"goes":    func(f *http2.Framer, id uint32) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) },
		"closed":  func(*http2.Framer, uint32) {},
	} {
		s := (&site{t: t}).before(ends(t, end), options{}, hourly(9)) // it closes the connection then
		c := s.dialHTTP2()
		c.post(1, "/", 5, false)
		if got := c.status(1); got != "502" {
			t.Errorf("%s, over HTTP/2: %q, want 502", name, got)
		}
		c.Close()
		chunked := s.dial()
		chunked.write("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		if resp := chunked.response(); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%s, over HTTP/1: %d, want 502", name, resp.StatusCode)
		}
		s.reaches(0, "spillgate_proxy_requests_under_way")
	}
}
