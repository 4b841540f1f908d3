package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/spillgate/spillgate/test/proc"
)

// seen is what came on the connections of HTTP/2 that it stands on.
type seen struct {
	conns, resets atomic.Int64
	most          atomic.Int64 // resets on one
}

// watched is an upstream's address whose connections of HTTP/2 are watched.
func watched(t *testing.T, upstream string) (url string, s *seen) {
	s = &seen{}
	up := mustURL(t, upstream)
	return up.Scheme + accepts(t, func(c net.Conn) {
		s.conns.Add(1)
		to, err := net.Dial("tcp", up.Host)
		if err != nil {
			return
		}
		defer to.Close()
		look, frames := io.Pipe()
		go func() { // the connections' ends are its
			defer frames.Close()
			defer to.Close()
			_, _ = io.Copy(io.MultiWriter(to, frames), c)
		}()
		go func() { // the pipe's end is its
			_, _ = io.CopyN(io.Discard, look, int64(len(http2.ClientPreface)))
			framer := http2.NewFramer(io.Discard, look)
			for resets := int64(0); ; {
				f, err := framer.ReadFrame()
				if err != nil {
					_, _ = io.Copy(io.Discard, look)
					return
				}
				if _, ok := f.(*http2.RSTStreamFrame); ok {
					resets++
					s.resets.Add(1)
					for most := s.most.Load(); most < resets && !s.most.CompareAndSwap(most, resets); most = s.most.Load() {
					}
				}
			}
		}()
		_, _ = io.Copy(c, to)
	})[len("http"):], s
}

// Servers end a connection on which too many streams are reset, with all others' requests. Whatever
// clients do that has their streams reset, there are no more of them on one than may be.
func TestNoConnectionHasManyResets(t *testing.T) {
	const many, most = 3 * mostStreams, 10 // as nearly all of them are
	for _, c := range []struct {
		name, request string
		upstream      http.HandlerFunc // which has the request, and may answer
		status        int              // 0: the client leaves once its request is under way
	}{
		{name: "leaves before the answer", request: "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
			upstream: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{name: "leaves after it began", request: "GET / HTTP/1.1\r\nHost: h\r\n\r\n", status: http.StatusOK,
			upstream: func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}},
		{name: "leaves and takes nothing more", request: "GET / HTTP/1.1\r\nHost: h\r\n\r\n", status: http.StatusOK,
			upstream: func(w http.ResponseWriter, _ *http.Request) {
				for err := error(nil); err == nil; {
					_, err = w.Write(make([]byte, 64<<10))
				}
			}},
		{name: "sends no chunks", request: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n", status: http.StatusBadRequest,
			upstream: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{name: "sends too much", request: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n20001\r\n" + strings.Repeat("x", 0x20001) + "\r\n0\r\n\r\n", status: http.StatusRequestEntityTooLarge,
			upstream: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{name: "is answered early", request: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 16\r\n\r\nx", status: http.StatusUnauthorized,
			upstream: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, seen := watched(t, h2cUpstream(t, c.upstream))
			s := (&site{t: t}).before(url, options{cfg: Config{MaxBody: 0x20000}}, hourly(2*many))
			for range many {
				client := s.dial()
				client.write(c.request)
				if c.status == 0 {
					s.reaches(1, "spillgate_proxy_requests_under_way")
				} else if got := client.response().StatusCode; got != c.status {
					t.Fatalf("%d, want %d", got, c.status)
				}
				client.Close()
				s.reaches(0, "spillgate_proxy_requests_under_way")
			}
			least := int64(many / 2)
			if c.name == "is answered early" { // which the upstream may end first
				least = many / 10
			}
			if seen.resets.Load() < least || seen.most.Load() > most {
				t.Errorf("%d of %d streams were reset, %d of them on one of %d connections, want %d at most", seen.resets.Load(), many, seen.most.Load(), seen.conns.Load(), most)
			}
		})
	}
}

// So it is where many leave at once; and where they end as they should, the connections that they
// had are those of the next ones.
func TestNoConnectionHasManyWhoMayLeave(t *testing.T) {
	const many = 2*mostStreams + mostStreams/2
	release := make(chan struct{})
	url, seen := watched(t, h2cUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	s := (&site{t: t}).before(url, options{}, hourly(4*many))
	begin := func() (clients []*raw, answers []*http.Response) {
		for range many {
			c := s.dial()
			c.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			clients = append(clients, c)
		}
		for _, c := range clients {
			if answers = append(answers, c.response()); answers[len(answers)-1].StatusCode != http.StatusOK {
				t.Fatal(answers[len(answers)-1].Status)
			}
		}
		return clients, answers
	}
	conns := [2]int64{}
	for i := range conns {
		_, answers := begin()
		for range answers {
			release <- struct{}{}
		}
		for _, a := range answers {
			if _, err := io.ReadAll(a.Body); err != nil {
				t.Fatal(err)
			}
		}
		s.reaches(0, "spillgate_proxy_requests_under_way")
		conns[i] = seen.conns.Load()
	}
	if conns[0] < 3 || conns[1] > conns[0] || seen.resets.Load() > 0 {
		t.Errorf("%d requests at a time have %d connections, and as many again %d; %d were reset, want none", many, conns[0], conns[1]-conns[0], seen.resets.Load())
	}
	clients, _ := begin()
	for _, c := range clients {
		c.Close()
	}
	proc.Until(t, patience, func() error {
		if got := seen.resets.Load(); got < many {
			return fmt.Errorf("%d streams were reset, want %d", got, many)
		}
		return nil
	})
	if got := seen.most.Load(); got > mostStreams {
		t.Errorf("%d streams of one connection were reset at once, want %d at most", got, mostStreams)
	}
}

// Requests that come at once have no more on a connection either.
func TestRouteCountsRequests(t *testing.T) {
	cfg := Config{Upstream: mustURL(t, "h2c://upstream")}.withDefaults()
	l := newLine(&cfg, answerWindow)
	var all sync.WaitGroup
	var mu sync.Mutex
	had := map[*route]int{}
	for range 10 {
		all.Go(func() {
			for range mostStreams {
				r := l.route(true)
				mu.Lock()
				had[r]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for r, n := range had {
		if n != mostStreams || r.open.Load() != mostStreams {
			t.Errorf("a route has %d requests, and counts %d, want %d", n, r.open.Load(), mostStreams)
		}
	}
	for r := range had {
		for range mostStreams {
			r.over(false)
		}
	}
	r := l.route(true)
	if had[r] == 0 {
		t.Error("what has few requests again is not used again")
	}
	r.over(false)
	for range 10 * mostStreams { // so many that a fifth of all is more
		if l.route(true) != r {
			t.Fatal("it is left, and none of its streams were reset")
		}
		r.over(false)
	}
	for n := range mostStreams/2 - 1 {
		if l.route(true) != r {
			t.Fatalf("%d of %d streams were reset, and it is left", n, mostStreams)
		}
		r.over(true)
	}
	if l.route(true) != r {
		t.Errorf("%d of many streams were reset, and it is left", mostStreams/2-1)
	}
	if r.over(true); l.route(true) == r {
		t.Errorf("%d streams were reset, and it is not left", mostStreams/2)
	}
}

// A stream of which not all was sent is reset where its answer ends; that it was may be heard a little
// later.
func TestStreamsThatEndBeforeTheyAreSent(t *testing.T) {
	r := &route{Transport: &http.Transport{}}
	r.open.Add(2)
	for _, late := range []bool{true, false} {
		s := &stream{ReadCloser: io.NopCloser(strings.NewReader("")), on: r}
		if _, err := s.Read(nil); err != io.EOF || r.left.Load() != 1 {
			t.Fatalf("%v, %d streams were reset, want EOF and one", err, r.left.Load())
		}
		if late {
			s.wrote()
		}
		if s.Close(); late && r.left.Load() != 0 {
			t.Errorf("%d streams were reset, want none, as all was sent", r.left.Load())
		}
	}
	if r.left.Load() != 1 || r.open.Load() != 0 {
		t.Errorf("%d streams were reset, and %d are open; want one, and none", r.left.Load(), r.open.Load())
	}
}
