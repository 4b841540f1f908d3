package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// rules is a document of edge-scoped rules.
func rules(list ...limit.RuleSpec) limit.Document {
	return limit.Document{Namespace: "acme", Defaults: limit.Defaults{Scope: "edge"}, Rules: list}
}

// perAddress is a rule of one rate by client address.
func perAddress(name string, rate limit.RateSpec) limit.RuleSpec {
	return limit.RuleSpec{Name: name, Group: name, Key: []string{"client_ip"}, Rates: []limit.RateSpec{rate}}
}

func queueOf(capacity uint64, each time.Duration) limit.RateSpec {
	return limit.RateSpec{Algorithm: "leaky_bucket", Capacity: capacity, Outflow: limit.Flow{Units: 1, Per: each}, Queue: true}
}

func slotsOf(n uint64, lease time.Duration) limit.RateSpec {
	return limit.RateSpec{Algorithm: "concurrency", Limit: n, Lease: lease}
}

// overBoth runs a test in a bubble of its own over the fake and over a node.
func overBoth(t *testing.T, doc limit.Document, test func(t *testing.T, b *bench)) {
	for name, limiter := range map[string]func(testing.TB) Limiter{
		"fake": func(tb testing.TB) Limiter { return limitertest.New(tb, doc) },
		"node": func(tb testing.TB) Limiter { return limitertest.Node(tb, doc) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{}
				b.api = b.over(t, limiter(t))
				b.api.cfg.Now = time.Now
				test(t, b)
			})
		})
	}
}

// get asks a handler, and gives the status and how long it took.
func get(ctx context.Context, h http.Handler, header ...string) (status int, took time.Duration) {
	begun := time.Now()
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, time.Since(begun)
}

var teapot = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })

// Requests wait for their turn in the middleware and in /v1/auth alike.
func TestQueueHoldsRequestsBack(t *testing.T) {
	overBoth(t, rules(perAddress("queue", queueOf(3, time.Second))), func(t *testing.T, b *bench) {
		auth := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.api.auth(w, r, "") })
		for name, surface := range map[string]struct {
			handler http.Handler
			ok      int
		}{"middleware": {b.api.Middleware("", teapot), 418}, "auth": {auth, 200}} {
			time.Sleep(time.Minute) // virtual: the queue is empty
			type result struct {
				status int
				took   time.Duration
			}
			results := make(chan result, 4)
			for range 4 {
				go func() { // the channel is read once for each
					status, took := get(t.Context(), surface.handler)
					results <- result{status, took}
				}()
				synctest.Wait()
			}
			got := map[time.Duration]int{}
			for range 4 {
				r := <-results
				if r.status == 429 {
					r.took = -1
				} else if r.status != surface.ok {
					t.Errorf("%s: status %d after %v", name, r.status, r.took)
				}
				got[r.took]++
			}
			if want := map[time.Duration]int{0: 1, time.Second: 1, 2 * time.Second: 1, -1: 1}; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: requests by the time they took: %v, want %v", name, got, want)
			}
		}
		if got := b.metric(t, "spillgate_queue_abandoned_total"); got != 0 {
			t.Errorf("%v requests are said to have left the queue", got)
		}
	})
}

// Whoever leaves the queue gives its place back, and is not served.
func TestWhoeverLeavesTheQueueIsNotCharged(t *testing.T) {
	overBoth(t, rules(perAddress("queue", queueOf(3, time.Second)), perAddress("minute", limit.RateSpec{Limit: 4, Per: time.Minute})), func(t *testing.T, b *bench) {
		served := 0
		h := b.api.Middleware("", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		auth := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.api.auth(w, r, "") })
		if status, _ := get(t.Context(), h); status != 200 || served != 1 {
			t.Fatalf("the first: %d, served %d", status, served)
		}
		for i, handler := range []http.Handler{h, auth} {
			ctx, leave := context.WithCancel(t.Context())
			time.AfterFunc(300*time.Millisecond, leave)
			if status, took := get(ctx, handler); status != 503 || took != 300*time.Millisecond {
				t.Errorf("round %d: left with %d after %v, want 503 after 300ms", i, status, took)
			}
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // a deadline that it cannot meet
			if status, took := get(short, handler); status != 503 || took != 0 {
				t.Errorf("round %d: with too short a deadline %d after %v, want 503 at once", i, status, took)
			}
			leave()
			cancel()
		}
		time.Sleep(400 * time.Millisecond) // a second after the first, and virtual
		if status, took := get(t.Context(), h); status != 200 || took != 0 {
			t.Errorf("after all had left: %d after %v, want 200 at once", status, took)
		}
		// Two were served; those that left were charged to no rate.
		time.Sleep(2 * time.Second)
		for i, want := range []int{200, 200, 429} {
			if status, _ := get(t.Context(), h); status != want {
				t.Errorf("request %d of the minute: %d, want %d", i+3, status, want)
			}
		}
		if got := b.metric(t, "spillgate_queue_abandoned_total"); got != 4 {
			t.Errorf("%v requests are said to have left the queue, want 4", got)
		}
	})
}

// A slot is held, and renewed, as long as its handler runs, and comes back when
// it is done, be it by a panic.
func TestSlotsAreHeldWhileTheHandlerRuns(t *testing.T) {
	overBoth(t, rules(perAddress("slots", slotsOf(1, 20*time.Second))), func(t *testing.T, b *bench) {
		h := b.api.Middleware("", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Panic") != "" {
				panic(errors.New("a bug of the handler's"))
			}
			time.Sleep(3 * time.Minute)
			w.WriteHeader(http.StatusTeapot)
		}))
		done := make(chan int)
		go func() { // done says when it ends
			status, _ := get(t.Context(), h)
			done <- status
		}()
		for range 17 {
			time.Sleep(10 * time.Second)
			if status, _ := get(t.Context(), h); status != 429 {
				t.Fatalf("beside a handler that holds the only slot: %d", status)
			}
		}
		if status := <-done; status != 418 {
			t.Fatalf("the handler's answer is %d", status)
		}
		for range 3 {
			func() {
				defer func() {
					if p := recover(); fmt.Sprint(p) != "a bug of the handler's" {
						t.Errorf("the handler's panic became %v", p)
					}
				}()
				status, _ := get(t.Context(), h, "X-Panic", "1")
				t.Errorf("no panic, status %d", status)
			}()
		}
		if status, _ := get(t.Context(), h); status != 418 {
			t.Errorf("after handlers that panicked: %d, want their slots back", status)
		}
	})
}

// What a handler answers is charged where a rule counts it.
func TestResponsesAreCounted(t *testing.T) {
	rule := perAddress("logins", limit.RateSpec{Limit: 2, Per: time.Hour})
	rule.CountWhen = `attr("response.status") in ["401", "500", "101"]`
	doc := rules(rule)
	answers := map[string]func(http.ResponseWriter){
		"401": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(401)
			w.WriteHeader(200)
		},
		"200": func(w http.ResponseWriter) { w.WriteHeader(200) },
		"":    func(http.ResponseWriter) {},
		"write": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "x")
			w.WriteHeader(401)
		},
		"flush": func(w http.ResponseWriter) { w.(http.Flusher).Flush(); w.WriteHeader(401) },
		"panic": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"copy":  func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("x")); w.WriteHeader(401) },
	}
	for answer, counts := range map[string]bool{"401": true, "200": false, "": false, "write": false, "flush": false, "panic": true, "copy": false} {
		overBoth(t, doc, func(t *testing.T, b *bench) {
			h := b.api.Middleware("", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answers[answer](w) }))
			last := 0
			for range 3 {
				func() {
					defer func() { _ = recover() }()
					last, _ = get(t.Context(), h)
				}()
			}
			if denied := last == 429; denied != counts {
				t.Errorf("three answers of %q: the last %d, want them counted %v", answer, last, counts)
			}
		})
	}
}

// The writer that reads the status keeps what net/http's writers can do.
func TestResponsesKeepTheirPowers(t *testing.T) {
	rule := perAddress("logins", limit.RateSpec{Limit: 100, Per: time.Hour})
	rule.CountWhen = `attr("response.status") == "101"`
	b := &bench{}
	limiter := limitertest.New(t, rules(rule))
	b.api = b.over(t, limiter)
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	var readFrom atomic.Int32
	goOn := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/stream", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "first")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("Flush: %v", err)
		}
		<-goOn // the client has read the first line
		fmt.Fprintln(w, "second")
		w.(http.Flusher).Flush()
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello\n")
		rw.Flush()
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	mux.HandleFunc("/deadline", func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("SetWriteDeadline: %v", err)
		}
	})
	limited := b.api.Middleware("", mux)
	var serving sync.WaitGroup
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Done()
		limited.ServeHTTP(&sending{w, w.(http.Flusher), w.(http.Hijacker), &readFrom}, r)
	}))
	defer srv.Close()

	resp, err := http.Get(srv.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Fatalf("the first line is %q (%v): it was not flushed", line, err)
	}
	close(goOn)
	if line, err := lines.ReadString('\n'); line != "second\n" {
		t.Errorf("the second line is %q (%v)", line, err)
	}
	resp.Body.Close()

	req, _ := http.NewRequest("GET", srv.URL+"/hijack", nil)
	req.Header.Set("Connection", "upgrade")
	req.Header.Set("Upgrade", "echo")
	if resp, err = http.DefaultClient.Do(req); err != nil || resp.StatusCode != 101 {
		t.Fatalf("hijacked: %v, %v", resp, err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "hello\n" {
		t.Errorf("over the hijacked connection %q (%v)", line, err)
	}
	resp.Body.Close()
	if r := send(t, "GET", srv.URL+"/file", ""); r.text != "from a file" || readFrom.Load() != 1 {
		t.Errorf("a file: %q, by ReadFrom %d times, want once", r.text, readFrom.Load())
	}
	send(t, "GET", srv.URL+"/deadline", "")
	srv.Close()
	serving.Wait() // for the hijacked one as well, of which the server knows no more
	if got := limiter.Charged(); got != 1 {
		t.Errorf("%d charged, want the hijack alone", got)
	}
}

// sending is a writer that counts what comes by ReadFrom.
type sending struct {
	http.ResponseWriter
	http.Flusher
	http.Hijacker
	readFrom *atomic.Int32
}

func (s *sending) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *sending) ReadFrom(src io.Reader) (int64, error) {
	s.readFrom.Add(1)
	return io.Copy(s.ResponseWriter, src)
}

// A writer that cannot do more than write is not given out for one that can.
func TestResponsesPretendNothing(t *testing.T) {
	plain := &response{ResponseWriter: &sink{http.Header{}}}
	if _, ok := plain.shaped().(http.Flusher); ok {
		t.Error("a plain writer became a Flusher")
	}
	flushing := &response{ResponseWriter: httptest.NewRecorder()}
	if _, ok := flushing.shaped().(http.Flusher); !ok {
		t.Error("a Flusher became a plain writer")
	}
	if _, ok := flushing.shaped().(http.Hijacker); ok {
		t.Error("a Flusher became a Hijacker")
	}
	pushing := &response{ResponseWriter: struct {
		http.ResponseWriter
		http.Flusher
		http.Pusher
	}{}}
	if _, ok := pushing.shaped().(http.Pusher); !ok {
		t.Error("a Pusher lost its power")
	}
}

// TestNothingIsKeptWithoutNeed goes round the pools, which drop some of what
// they are given under -race.
func TestNothingIsKeptWithoutNeed(t *testing.T) {
	plain := perAddress("minute", limit.RateSpec{Limit: 1 << 40, Per: time.Minute})
	logins := perAddress("logins", limit.RateSpec{Limit: 1 << 40, Per: time.Minute})
	logins.CountWhen, logins.Match.Path = `attr("response.status") == "401"`, []string{"/login"}
	for name, list := range map[string][]limit.RuleSpec{
		"no such rule": {plain}, "one that does not apply": {plain, logins},
	} {
		b := &bench{}
		b.api = b.over(t, limitertest.Node(t, rules(list...)))
		b.api.cfg.Now = time.Now
		set, r := b.api.limiter.Rules(), httptest.NewRequest("GET", "/", nil)
		v, ns := b.api.viewOf(set), set.Only()
		nv := v.namespaces[ns]
		req := ns.NewRequest()
		var x exchange
		if n := testing.AllocsPerRun(1000, func() {
			fillOwn(req, r, nil)
			req.Receipt = nv.charges
			b.api.ask(t.Context(), &x, v, req, time.Now())
			if visit := b.api.begin(req, nv, &x.answer.decision, ""); visit != nil {
				t.Fatalf("%s: there is something left to do", name)
			}
			req.Reset()
		}); n != 0 {
			t.Errorf("%s: a decision allocates %v times, want 0", name, n)
		}
	}
}

// stuck is a limiter whose Refund, Renew and Answered have a bug.
type stuck struct{ Limiter }

func (stuck) Refund(time.Time, []limit.Charge, uint64) { panic("a bug in Refund") }
func (stuck) Renew(time.Time, []limit.Charge)          { panic("a bug in Renew") }
func (stuck) Answered(time.Time, *limit.Request)       { panic("a bug in Answered") }

// A limiter that fails after its decision takes no request down.
func TestFailuresAfterTheDecision(t *testing.T) {
	logins := perAddress("logins", limit.RateSpec{Limit: 100, Per: time.Hour})
	logins.CountWhen = `attr("response.status") == "418"`
	doc := rules(perAddress("slots", slotsOf(10, 10*time.Second)), logins)
	overBoth(t, doc, func(t *testing.T, b *bench) {
		b.api.limiter = stuck{b.api.limiter}
		h := b.api.Middleware("", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(8 * time.Second)
			w.WriteHeader(http.StatusTeapot)
		}))
		if status, _ := get(t.Context(), h); status != 418 {
			t.Errorf("status %d, want the handler's", status)
		}
		if got := b.metric(t, "spillgate_http_panics_total"); got != 2 { // Renew, then Refund; what followed it was not tried
			t.Errorf("%v panics counted, want 2", got)
		}
	})
}

// The word of a trusted peer is taken on what its request costs.
func TestTrustedCosts(t *testing.T) {
	rule := perAddress("bytes", limit.RateSpec{Limit: 100, Per: time.Hour})
	rule.Key, rule.Cost = nil, limit.CostSpec{FromHeader: "X-Cost"}
	for peer, want := range map[string]uint64{"10.1.2.3:80": 40, "@": 40, "192.0.2.1:80": 1} {
		for _, surface := range []string{"middleware", "auth", "call"} {
			b := &bench{}
			limiter := limitertest.New(t, rules(rule))
			b.api = b.over(t, limiter)
			r := httptest.NewRequest("GET", "/v1/auth", nil)
			r.RemoteAddr = peer
			r.Header.Set("X-Cost", "40")
			switch surface {
			case "middleware":
				b.api.Middleware("", teapot).ServeHTTP(httptest.NewRecorder(), r)
			case "auth":
				b.api.ServeHTTP(httptest.NewRecorder(), r)
			case "call":
				b.api.Decide(t.Context(), &Call{Peer: peer, Metadata: map[string][]string{"x-cost": {"40"}}})
			}
			if got := limiter.Charged(); got != want {
				t.Errorf("%s from %s: charged %d, want %d", surface, peer, got, want)
			}
		}
	}
}

// Those near their limit are told so, and counted.
func TestNearLimit(t *testing.T) {
	rule := perAddress("near", limit.RateSpec{Limit: 4, Per: time.Hour})
	rule.Key, rule.NearLimitPercent = nil, 75
	b := newBench(t, rules(rule))
	url := b.listen(t) + "/v1/check"
	for i, near := range []bool{false, false, true, true} {
		if r := send(t, "POST", url, `{}`); (r.body["near_limit"] == true) != near || r.body["near_limit"] == false {
			t.Errorf("request %d: %s, want near_limit %v, and only where it is", i, r.text, near)
		}
	}
	if got := b.metric(t, "spillgate_near_limit_total", "namespace", "acme", "rule", "near"); got != 2 {
		t.Errorf("%v requests near the limit, want 2", got)
	}
}

// A server that is cut off has nobody wait for a turn that does not come.
func TestServerThatClosesGivesTurnsBack(t *testing.T) {
	limiter := limitertest.New(t, rules(perAddress("queue", queueOf(3, time.Hour))))
	b := &bench{now: testStart}
	b.api = b.over(t, limiter)
	limited := b.api.Middleware("", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	came, left := make(chan struct{}, 2), make(chan struct{}, 2)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		limited.ServeHTTP(w, r)
		left <- struct{}{}
	}))
	defer srv.Close()
	send(t, "GET", srv.URL, "") // its turn is at once
	<-came
	<-left
	failed := make(chan error)
	go func() { // failed says when it ends
		resp, err := http.Get(srv.URL)
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	<-came
	_ = srv.Config.Close()
	<-left
	if err := <-failed; err == nil {
		t.Error("a request that waited for an hour was answered")
	}
	if got := limiter.Charged(); got != 1 {
		t.Errorf("%d charged, want the first alone", got)
	}
}
