package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A body that says that it is too long is refused before anybody is asked. One that does
// not is refused once it is, and then it has counted: the upstream had the beginning of it.
func TestBodiesThatAreTooLong(t *testing.T) {
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }, options{cfg: Config{MaxBody: 1000}}, hourly(3))
	long := strings.Repeat("x", 1001)
	check := func(name string, got reply) {
		t.Helper()
		if got.status != http.StatusRequestEntityTooLarge || got.header.Get("Proxy-Status") != "spillgate; error=http_request_error" || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %+v, want 413", name, got)
		}
	}
	check("a length of 1001", s.send("POST", "/", long))
	check("a length of 100 MB", s.huge())
	if n, charged := s.served.Load(), s.charged(); n != 0 || charged != 0 {
		t.Errorf("the upstream was asked %d times, %v were charged; want none", n, charged)
	}
	check("no length", s.chunked(long))
	if charged := s.charged(); charged != 1 {
		t.Errorf("%v were charged, want the one that the upstream had in part", charged)
	}
	s.result("refused", 3)
	for name, got := range map[string]reply{"a length of 1000": s.send("POST", "/", long[1:]), "no length, 1000": s.chunked(long[1:])} {
		if got.status != 200 {
			t.Errorf("%s: %+v, want 200", name, got)
		}
	}
}

// silent is a client that sends nothing: who reads of it waits, until the deadline of its connection.
type silent struct {
	http.ResponseWriter
	mu    sync.Mutex // guards until
	until time.Time
	hears func(until time.Time) // of a deadline, before it is set
	waits bool                  // who has read
}

func (s *silent) SetReadDeadline(until time.Time) error {
	s.hears(until)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = until
	return nil
}

func (s *silent) Read([]byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = s.until.IsZero() || s.until.After(time.Now())
	return 0, os.ErrDeadlineExceeded
}

// A handler whose body somebody begins to read as it returns does not wait for the client.
func TestLeaveWhileABodyIsReadAnew(t *testing.T) {
	for _, talking := range []bool{false, true} {
		client := &silent{}
		b := &body{src: client, rc: http.NewResponseController(client), pause: time.Minute, left: -1}
		b.talking.Store(talking)
		var leaving sync.WaitGroup
		var begins, cuts sync.Once
		set := func() bool {
			client.mu.Lock()
			defer client.mu.Unlock()
			return client.until.Equal(longAgo)
		}
		cut := make(chan struct{})
		client.hears = func(until time.Time) {
			if until.Equal(longAgo) {
				cuts.Do(func() { close(cut) })
				return
			}
			begins.Do(func() { // the reader has seen that the body is open
				leaving.Go(func() { b.leave(false) })
				<-cut
				for !set() { // the deadline, before the reader's own
					runtime.Gosched()
				}
			})
		}
		_, _ = b.Read(make([]byte, 1))
		leaving.Wait()
		if client.waits {
			t.Errorf("talking is %v: it waits for the client", talking)
		}
	}
}

// huge sends a header that promises 100 MB, and begins.
func (s *site) huge() reply {
	c := s.dial()
	c.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\nxxxxxxxxxx")
	resp := c.response()
	body, _ := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}
}

// chunked sends a body without a length.
func (s *site) chunked(body string) reply {
	s.t.Helper()
	req, err := http.NewRequest("POST", s.url, io.NopCloser(strings.NewReader(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do(req)
}

func TestAnyBody(t *testing.T) {
	got := int64(0)
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) { got, _ = io.Copy(io.Discard, r.Body) }, options{cfg: Config{MaxBody: -1}}, hourly(3))
	body := strings.Repeat("x", 12<<20)
	for name, answer := range map[string]reply{"with a length": s.send("PUT", "/", body), "without": s.chunked(body)} {
		if answer.status != 200 || got != 12<<20 {
			t.Errorf("%s: %d, and the upstream got %d bytes", name, answer.status, got)
		}
	}
}

// A client that does not send its body has a minute for each pause, here less, and holds
// nothing after that.
func TestSlowBodies(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }, options{cfg: Config{ClientTimeout: 100 * time.Millisecond}}, hourly(9))
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{"stops", "Content-Length: 10\r\n\r\nx", http.StatusRequestTimeout},
		{"stops amid a chunk", "Transfer-Encoding: chunked\r\n\r\n5\r\nx", http.StatusRequestTimeout},
		{"waits to be told to go on, and does not", "Content-Length: 10\r\nExpect: 100-continue\r\n\r\n", http.StatusRequestTimeout},
		{"is no body", "Transfer-Encoding: chunked\r\n\r\nzz\r\n", http.StatusBadRequest},
	} {
		conn := s.dial()
		conn.write("POST / HTTP/1.1\r\nHost: h\r\n" + c.request)
		resp := conn.response()
		for resp.StatusCode == http.StatusContinue {
			resp = conn.response()
		}
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", c.name, resp.StatusCode, c.status)
		}
		io.Copy(io.Discard, resp.Body)
		conn.closed() // what comes now would be taken for a request
	}
	// Slow all the time, but never silent: that is a slow client, and it is served.
	conn := s.dial()
	conn.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n")
	for range 10 {
		time.Sleep(20 * time.Millisecond)
		conn.write("x")
	}
	if resp := conn.response(); resp.StatusCode != 200 {
		t.Errorf("a slow client got %d, want 200", resp.StatusCode)
	}
	s.reaches(0, "spillgate_proxy_requests_under_way")
}

// Who is denied is told so at once, be it that his body does not come; if it was there
// the connection serves on, and else what comes of it later is no request.
func TestDenialDoesNotWaitForTheBody(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{cfg: Config{ClientTimeout: 300 * time.Millisecond}}, hourly(1))
	s.get("/")
	for name, expect := range map[string]string{"plainly": "", "asking first": "Expect: 100-continue\r\n"} {
		c := s.dial()
		c.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 40\r\n" + expect + "\r\n")
		resp := c.response()
		if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(text), "quota-exceeded") {
			t.Errorf("%s: %d %s, want 429", name, resp.StatusCode, text)
		}
		c.closed()
	}
	c := s.dial()
	c.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 40\r\n\r\n")
	resp := c.response()
	io.Copy(io.Discard, resp.Body)
	c.write(fmt.Sprintf("%-40s", "GET /smuggled HTTP/1.1") + "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	c.closed()
	c = s.dial()
	for range 3 {
		c.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 40\r\n\r\n" + strings.Repeat("x", 40))
		resp := c.response()
		if io.Copy(io.Discard, resp.Body); resp.StatusCode != http.StatusTooManyRequests || resp.Close {
			t.Errorf("with its body: %d, closed: %v; want 429, and the connection open", resp.StatusCode, resp.Close)
		}
	}
	s.result("limited", 6)
}

// An upstream that answers before it has the body is heard at once, and what is left of
// the body is no request.
func TestAnswerDoesNotWaitForTheBody(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		http.Error(w, "not like that", http.StatusUnauthorized)
	}, options{cfg: Config{ClientTimeout: 300 * time.Millisecond}}, hourly(9))
	c := s.dial()
	c.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nx")
	resp := c.response()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusUnauthorized || string(text) != "not like that\n" {
		t.Errorf("%d %q, want the upstream's 401", resp.StatusCode, text)
	}
	c.closed()
	s.result("answered", 1)
	s.reaches(0, "spillgate_proxy_requests_under_way")
}

// A client that takes nothing of its answer is cut off.
func TestClientsThatTakeNothing(t *testing.T) {
	over(t, func(t *testing.T, c *http.Client) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, options{cfg: Config{ClientTimeout: 100 * time.Millisecond}}, hourly(9))
		resp, err := c.Get(s.url)
		if err != nil {
			t.Fatal(err)
		}
		s.result("left", 1)
		resp.Body.Close()
	})
}

// While a request waits for its turn its client is seen to leave, with a small body too,
// and gives its place back.
func TestWhoLeavesTheQueueGivesHisPlaceBack(t *testing.T) {
	queue := limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 2, Outflow: limit.Flow{Units: 1, Per: time.Hour}, Queue: true}
	for name, request := range map[string]string{
		"GET":                     "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"a body":                  "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nsome body",
		"a body that is told for": "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\nsome body",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {}, options{}, each("queue", queue))
			s.get("/")
			for i := range 3 { // each finds a place
				c := s.dial()
				c.write(request)
				s.reaches(1, "spillgate_queue_waiting_requests")
				if full := s.get("/"); full.status != http.StatusTooManyRequests {
					t.Errorf("beside one that waits: %d, want 429: there are two places", full.status)
				}
				c.Close()
				s.reaches(float64(i+1), "spillgate_queue_abandoned_total")
				s.reaches(0, "spillgate_queue_waiting_requests")
			}
			s.result("left", 3)
			s.result("limited", 3)
			if n := s.served.Load(); n != 1 {
				t.Errorf("the upstream was asked %d times, want once", n)
			}
			if n := s.proxy.ahead.Load(); n != 0 {
				t.Errorf("%d bytes are read ahead, of nobody", n)
			}
		})
	}
}

// A request waits its turn, and its body, however it comes, is whole then.
func TestWaitsItsTurn(t *testing.T) {
	var bodies []string
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(text))
	}, options{}, each("queue", limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 9, Outflow: limit.Flow{Units: 1, Per: 300 * time.Millisecond}, Queue: true}))
	began := time.Now()
	s.send("POST", "/", "first")
	if answer := s.send("POST", "/", "second"); answer.status != 200 {
		t.Errorf("the second: %+v", answer)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("two took %v, want 300ms at the least", took)
	}
	c := s.dial() // its body ends after its turn
	c.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nthird")
	s.reaches(0, "spillgate_queue_waiting_requests")
	time.Sleep(400 * time.Millisecond)
	c.write(" part")
	if resp := c.response(); resp.StatusCode != 200 {
		t.Errorf("the third: %d", resp.StatusCode)
	}
	if fmt.Sprint(bodies) != "[first second third part]" {
		t.Errorf("the upstream got %q", bodies)
	}
	s.reaches(0, "spillgate_proxy_requests_under_way")
	if n := s.proxy.ahead.Load(); n != 0 {
		t.Errorf("%d bytes are read ahead, of nobody", n)
	}
}

// An upstream that answers an upload before it has read it, and closes the connection, which resets
// it, has answered all the same, over TLS too. Where it does that without an answer it has failed.
func TestAnswersAmidABody(t *testing.T) {
	const many, size = 30, 2 << 20
	said := "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
	answer := func(c net.Conn) {
		if _, err := c.Read(make([]byte, 4<<10)); err == nil {
			_, _ = io.WriteString(c, said)
		}
	}
	for _, scheme := range []string{"http", "https"} {
		o, upstream := options{cfg: Config{ClientTimeout: patience}}, accepts(t, answer)
		s := &site{t: t}
		if scheme == "https" {
			server := httptest.NewUnstartedServer(nil)
			server.StartTLS() // for its certificate
			defer server.Close()
			with := server.TLS.Clone()
			with.NextProtos = []string{"http/1.1"}
			upstream = accepts(t, func(c net.Conn) { // closed beneath TLS, unread
				answer(tls.Server(c, with))
			})
			s.before("https"+strings.TrimPrefix(upstream, "http"), o, hourly(1000))
			roots := x509.NewCertPool()
			roots.AddCert(server.Certificate())
			s.trust(roots)
		} else {
			s.before(upstream, o, hourly(1000))
		}
		for i := range many {
			if got := s.send("POST", "/", strings.Repeat("x", size)); got.status != http.StatusUnauthorized || got.body != "no" {
				t.Fatalf("%s, %d: %d %v %q, want the upstream's 401", scheme, i, got.status, got.header, got.body)
			}
		}
		s.result("answered", many)
	}
	s := (&site{t: t}).before(accepts(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 4<<10)) }), options{}, hourly(1000))
	if got := s.send("POST", "/", strings.Repeat("x", size)); got.status != http.StatusBadGateway || !strings.Contains(got.header.Get("Proxy-Status"), "http_response_incomplete") {
		t.Errorf("without an answer: %d %v", got.status, got.header)
	}
}

// Who reads a body of HTTP/2 when its request ends, as the transport may after an early answer,
// reads no more of it then, and sets no deadline: that would end the whole edge.
func TestNobodyReadsOn(t *testing.T) {
	s := newSite(t, nil, options{}, hourly(9))
	early := &answersEarly{ended: make(chan struct{})}
	s.proxy.transport = early
	w := &unread{ResponseRecorder: httptest.NewRecorder(), reading: make(chan struct{}), comes: make(chan struct{})}
	early.reading = w.reading
	r := httptest.NewRequest("POST", "/", w)
	r.ProtoMajor, r.ProtoMinor = 2, 0
	s.proxy.ServeHTTP(w, r)
	w.over.Store(true)
	close(w.comes)
	<-early.ended
	if n := w.reads.Load(); n != 1 {
		t.Errorf("the body is read %d times, want it read once: the request has ended", n)
	}
	if w.late.Load() {
		t.Error("a deadline is set though the request has ended")
	}
}

// answersEarly is an upstream in memory that answers while it reads.
type answersEarly struct {
	canned
	reading, ended chan struct{}
}

func (a *answersEarly) RoundTrip(r *http.Request) (*http.Response, error) {
	go func() { // the end of the body ends it; the test waits for it
		io.Copy(io.Discard, r.Body)
		close(a.ended)
	}()
	<-a.reading
	return a.canned.RoundTrip(r)
}

// unread is a client whose body comes once its request is over.
type unread struct {
	*httptest.ResponseRecorder
	reading, comes chan struct{}
	reads          atomic.Int64
	over, late     atomic.Bool
}

func (u *unread) Read(b []byte) (int, error) {
	if u.reads.Add(1) == 1 {
		close(u.reading)
	}
	<-u.comes
	return 1, nil
}

func (u *unread) SetReadDeadline(time.Time) error {
	u.late.Store(u.late.Load() || u.over.Load())
	return nil
}
