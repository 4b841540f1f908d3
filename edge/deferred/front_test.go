package deferred

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/proxy"
)

// upstream notes what it is sent.
type upstream struct {
	mu   sync.Mutex
	seen []string
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen = append(u.seen, fmt.Sprintf("%s %s%s from %s, %s: %s", r.Method, r.Host, r.URL.RequestURI(), r.Header.Get("X-Forwarded-For"), r.Header.Get(IdempotencyKey), body))
	w.WriteHeader(http.StatusCreated)
}

func (u *upstream) all() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.seen...)
}

// all are the methods that a rule names which lets all wait that may.
var all = []string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH", "CONNECT"}

// site is an upstream behind the proxy, which lets one request pass in so long, of each
// client, and has others wait: but for those of /no, which no rule lets wait.
func site(t testing.TB, per time.Duration, u http.Handler) http.Handler {
	t.Helper()
	rule := func(name string, paths ...string) limit.RuleSpec {
		return limit.RuleSpec{Name: name, Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: 1, Per: per}}, Match: limit.MatchSpec{Path: paths}}
	}
	waits, no := rule("per-client"), rule("no", "/no")
	waits.OnLimit.Defer, no.Priority = limit.DeferSpec{For: time.Hour, Methods: all}, 1
	return behind(t, u, waits, no)
}

// behind is an upstream behind rules.
func behind(t testing.TB, u http.Handler, rules ...limit.RuleSpec) http.Handler {
	t.Helper()
	node, err := edge.Local(rules...)
	if err != nil {
		t.Fatal(err)
	}
	api, err := httpapi.New(node, httpapi.Config{Denied: Denied, Replayed: Replayed})
	if err != nil {
		t.Fatal(err)
	}
	served := httptest.NewServer(u)
	t.Cleanup(served.Close)
	to, err := url.Parse(served.URL)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.New(api, nil, proxy.Config{Upstream: to, Admitted: Admitted, Origins: httpapi.Origins{"https://app.example"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// front is one of a site, with an open queue.
func front(q *Queue, site http.Handler, body int64) *Front {
	f := NewFront(site, FrontConfig{Body: body})
	f.queue.Store(q)
	return f
}

// What is denied is told to wait, and done when there is room, as it was sent.
func TestDeniedIsDoneLater(t *testing.T) {
	j, u := newJet(t), &upstream{}
	q := j.queue(j.connect(), Config{})
	f := front(q, site(t, time.Second, u), 0)
	work(t, q, f.Send)
	if w := get(f, call("POST", "http://api.example/a%2Fb?q=1", "first", IdempotencyKey, "k1")); w.Code != http.StatusCreated {
		t.Fatalf("%d %s, want what the upstream says", w.Code, w.Body)
	}
	w := get(f, call("POST", "http://api.example/a%2Fb?q=2", "second", IdempotencyKey, "k2"))
	var told struct {
		ID, State string
		URL       string `json:"status_url"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || w.Code != http.StatusAccepted || told.State != "queued" || w.Header().Get("Location") != told.URL || w.Header().Get("Retry-After") == "" {
		t.Fatalf("%d %v %s, want 202 and where to look", w.Code, w.Header(), w.Body)
	}
	if s := becomes(t, q, told.ID, Done); s.Status != http.StatusCreated || s.Tries != 1 {
		t.Errorf("%+v, want the upstream's 201 of the first try", s)
	}
	var status Status
	w = get(f, call("GET", "http://api.example"+told.URL, ""))
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || w.Code != http.StatusOK || status.State != Done || w.Header().Get("Retry-After") != "" {
		t.Errorf("the client is told %d %s, want that it is done", w.Code, w.Body)
	}
	want := []string{
		"POST api.example/a%2Fb?q=1 from 192.0.2.7, k1: first",
		"POST api.example/a%2Fb?q=2 from 192.0.2.7, k2: second",
	}
	if got := u.all(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the upstream saw %q, want %q", got, want)
	}
}

// A page of another origin reads that its request waits, and what becomes of it.
func TestPagesReadWhatWaits(t *testing.T) {
	const page, allows = "https://app.example", "Access-Control-Allow-Origin"
	j := newJet(t)
	f := NewFront(site(t, time.Hour, &upstream{}), FrontConfig{Origins: httpapi.Origins{page}})
	f.queue.Store(j.queue(j.connect(), Config{}))
	get(f, call("PUT", "/", "first"))
	w := get(f, call("PUT", "/", "second", "Origin", page))
	at := w.Header().Get("Location")
	if h := w.Header(); w.Code != http.StatusAccepted || h.Get(allows) != page || !strings.Contains(h.Get("Access-Control-Expose-Headers"), "Location") {
		t.Fatalf("%d %v, want 202 that the page reads", w.Code, h)
	}
	if w := get(f, call("GET", at, "", "Origin", page)); w.Code != http.StatusOK || w.Header().Get(allows) != page {
		t.Errorf("%d %v, want a status that the page reads", w.Code, w.Header())
	}
	if w := get(f, call("OPTIONS", at, "", "Origin", page, "Access-Control-Request-Method", "DELETE")); w.Code != http.StatusNoContent || w.Header().Get(allows) != page || w.Header().Get("Access-Control-Allow-Methods") != "GET, HEAD" {
		t.Errorf("preflight: %d %v, want leave to read", w.Code, w.Header())
	}
	if w := get(f, call("GET", at, "", "Origin", "https://b.example")); w.Header().Get(allows) != "" {
		t.Errorf("another origin's page reads it: %v", w.Header())
	}
}

// What may not wait is denied as it is without a queue.
func TestWhatMayNotWait(t *testing.T) {
	j, u := newJet(t), &upstream{}
	nc := j.connect()
	q := j.queue(nc, Config{Timeout: 5 * time.Second})
	f := front(q, site(t, time.Hour, u), 1000)
	get(f, call("GET", "/", "")) // uses the limits up
	get(f, call("GET", "/no", ""))
	chunked := call("PUT", "/", strings.Repeat("x", 1001))
	chunked.ContentLength = -1
	for name, r := range map[string]*http.Request{
		"a POST without a key":    call("POST", "/", "x"),
		"a PATCH without a key":   call("PATCH", "/", "x"),
		"a key for the edge only": call("POST", "/", "x", IdempotencyKey, "k", "Connection", "close, idempotency-key"),
		"a switch":                call("POST", "/", "", IdempotencyKey, "k", "Connection", "keep-alive, Upgrade", "Upgrade", "websocket"),
		"a large body":            call("PUT", "/", strings.Repeat("x", 1001)),
		"a large body, chunked":   chunked,
		"what no rule lets wait":  call("PUT", "/no", ""),
		"large headers":           call("PUT", "/", "", "X-Large", strings.Repeat("x", MaxBytes)),
	} {
		w := get(f, r)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"status":429`) {
			t.Errorf("%s: %d %v %s, want the limiter's own 429", name, w.Code, w.Header(), w.Body)
		}
	}
	if waiting, dead, err := q.Depth(t.Context()); waiting+dead != 0 || err != nil {
		t.Errorf("%d wait, %d are dead, %v; want none", waiting, dead, err)
	}
	if w := get(f, call("PUT", "/", "x")); w.Code != http.StatusAccepted {
		t.Errorf("a PUT: %d %s, want 202", w.Code, w.Body)
	}
	j.server.Shutdown()
	if w := get(f, call("PUT", "/", "x")); w.Code != http.StatusTooManyRequests {
		t.Errorf("without JetStream: %d %s, want 429", w.Code, w.Body)
	}
}

// Where a rule names no methods what has no key does not wait: it might be done after a later
// one that undid it.
func TestUnnamedWaitByTheirKey(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Timeout: 5 * time.Second})
	for _, tt := range []struct {
		methods   []string
		method    string
		key, want int
	}{
		{nil, "PUT", 202, 429}, {nil, "GET", 202, 429}, {nil, "POST", 202, 429},
		{[]string{"PUT"}, "PUT", 202, 202}, {[]string{"PUT"}, "DELETE", 429, 429}, {[]string{"POST"}, "POST", 202, 429},
	} {
		rule := limit.RuleSpec{Name: "all", Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}}
		rule.OnLimit.Defer = limit.DeferSpec{For: time.Hour, Methods: tt.methods}
		f := front(q, behind(t, &upstream{}, rule), 0)
		get(f, call("GET", "/", "")) // uses the limit up
		if w := get(f, call(tt.method, "/", "x")); w.Code != tt.want {
			t.Errorf("%s where %v are named: %d %s, want %d", tt.method, tt.methods, w.Code, w.Body, tt.want)
		}
		if w := get(f, call(tt.method, "/", "x", IdempotencyKey, "k")); w.Code != tt.key {
			t.Errorf("%s with a key where %v are named: %d %s, want %d", tt.method, tt.methods, w.Code, w.Body, tt.key)
		}
	}
}

// What a client's Connection names ends there, be it the key: what waits has one all the same.
func TestNominatedFieldsDoNotWait(t *testing.T) {
	j, u := newJet(t), &upstream{}
	q := j.queue(j.connect(), Config{})
	f := front(q, site(t, time.Second, u), 0)
	work(t, q, f.Send)
	get(f, call("GET", "http://api.example/", "", IdempotencyKey, "first"))
	w := get(f, call("PUT", "http://api.example/a", "x", IdempotencyKey, "k", "Connection", "Idempotency-Key, X-Hop", "X-Hop", "1"))
	var told struct{ ID string }
	if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || w.Code != http.StatusAccepted {
		t.Fatalf("%d %s, want 202", w.Code, w.Body)
	}
	becomes(t, q, told.ID, Done)
	if got, want := u.all()[1], "PUT api.example/a from 192.0.2.7, "+told.ID+": x"; got != want {
		t.Errorf("the upstream saw %q, want %q", got, want)
	}
}

// Java's HttpClient and curl --http2 ask with each request for HTTP/2 over cleartext, which nobody
// takes: that asks to switch to nothing that would have to be done at once.
func TestWhoAsksForHTTP2Waits(t *testing.T) {
	j, u := newJet(t), &upstream{}
	f := front(j.queue(j.connect(), Config{Timeout: 5 * time.Second}), site(t, time.Hour, u), 1000)
	get(f, call("GET", "/", "")) // uses the limit up
	ids := map[string]bool{}
	for _, fields := range [][]string{
		{"Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AAMAAABk"},
		{"Upgrade", "websocket"}, // which Connection does not name
		{},
	} {
		w := get(f, call("POST", "/", "x", append(fields, IdempotencyKey, "k")...))
		if w.Code != http.StatusAccepted {
			t.Errorf("%v: %d %s, want 202", fields, w.Code, w.Body)
		}
		ids[w.Header().Get("Location")] = true
	}
	if len(ids) != 1 {
		t.Errorf("%v: want that it is one request, of which only the first on a connection asks", ids)
	}
}

// Clients ask for what they were told of, and nothing else.
func TestStatusForClients(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	f := front(q, site(t, time.Hour, &upstream{}), 0)
	id := put(t, q, "acme", time.Time{})
	for target, want := range map[string]int{id: 200, NewID(): 404, "": 404, "x": 404, ">": 404, strings.Repeat("a", 5000): 404, id + "/x": 404} {
		if w := get(f, call("GET", "http://api.example"+StatusPath+target, "")); w.Code != want {
			t.Errorf("%.40q: %d %s, want %d", target, w.Code, w.Body, want)
		}
	}
	if w := get(f, call("POST", "http://api.example"+StatusPath+id, "")); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
		t.Errorf("POST: %d, want 405", w.Code)
	}
}

// A body that comes over a real connection is kept whole, however much of it whoever
// denied the request has read.
func TestBodiesAreKeptWhole(t *testing.T) {
	j, u := newJet(t), &upstream{}
	q := j.queue(j.connect(), Config{})
	f := front(q, site(t, time.Second, u), 0)
	server := httptest.NewServer(f)
	defer server.Close()
	work(t, q, f.Send)
	for size, chunked := range map[int]bool{1: false, 1000: true, 100_000: false, 300_000: true} {
		body := strings.Repeat("x", size-1) + "."
		for range 2 { // the first may pass
			var r io.Reader = strings.NewReader(body)
			if chunked {
				r = io.MultiReader(r)
			}
			req, err := http.NewRequest("PUT", fmt.Sprintf("%s/%d", server.URL, size), r)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var told struct{ ID string }
			if resp.StatusCode == http.StatusAccepted {
				if err := json.NewDecoder(resp.Body).Decode(&told); err != nil {
					t.Fatal(err)
				}
				becomes(t, q, told.ID, Done)
			} else if resp.StatusCode != http.StatusCreated {
				t.Errorf("%d bytes: status %d", size, resp.StatusCode)
			}
			resp.Body.Close()
		}
		want, n := fmt.Sprintf(": %s", body), 0
		for _, seen := range u.all() {
			if strings.Contains(seen, fmt.Sprintf("/%d from", size)) {
				if n++; !strings.HasSuffix(seen, want) || len(seen) > size+200 {
					t.Errorf("%d bytes: the upstream was sent %d", size, len(seen))
				}
			}
		}
		if n != 2 {
			t.Errorf("%d bytes: the upstream was asked %d times, want twice", size, n)
		}
	}
}
