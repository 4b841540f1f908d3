package httplimit_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httplimit"
	"github.com/spillgate/spillgate/edge/limit"
)

func ExampleLocal() {
	limited, err := httplimit.Local(2, time.Minute)
	if err != nil {
		panic(err)
	}
	handler := limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") }))

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// 200 "per-client.1m";q=2;w=60
	// 200 "per-client.1m";q=2;w=60
	// 429 "per-client.1m";q=2;w=60
}

// One request at a time of each client: while it is served, no other is.
func ExampleNew() {
	node, err := edge.Local(limit.RuleSpec{
		Name: "slots", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Algorithm: "concurrency", Limit: 1, Lease: 30 * time.Second}},
	})
	if err != nil {
		panic(err)
	}
	limited, err := httplimit.New(node, "", httpapi.Config{})
	if err != nil {
		panic(err)
	}
	var handler http.Handler
	ask := func(path string) int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code
	}
	handler = limited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			fmt.Println("meanwhile:", ask("/"))
		}
	}))
	fmt.Println("the first:", ask("/long"))
	fmt.Println("after it:", ask("/"))
	// Output:
	// meanwhile: 429
	// the first: 200
	// after it: 200
}

func node(t testing.TB, rules ...limit.RuleSpec) *edge.Node {
	t.Helper()
	n, err := edge.Local(rules...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })

func get(h http.Handler, target, peer string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", target, nil)
	r.RemoteAddr = peer
	for k, v := range header {
		r.Header[k] = v
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestOwnAttributesAreLimited(t *testing.T) {
	n := node(t,
		limit.RuleSpec{Name: "login", Priority: 10, Match: limit.MatchSpec{Path: []string{"/login"}, Methods: []string{"GET"}}, Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}},
		limit.RuleSpec{Name: "rest", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: 3, Per: time.Minute}}})
	limited, err := httplimit.New(n, "", httpapi.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := limited(ok)
	for i, c := range []struct {
		target, peer string
		header       http.Header
		status       int
	}{
		{"/login", "192.0.2.1:1", nil, http.StatusTeapot},
		{"/login", "192.0.2.1:1", nil, http.StatusTooManyRequests},
		{"//login?x=1", "192.0.2.1:1", nil, http.StatusTooManyRequests}, // the same path to a mux
		{"/login", "192.0.2.2:1", nil, http.StatusTeapot},
		{"/login", "192.0.2.2:1", http.Header{"X-Forwarded-For": {"192.0.2.3"}}, http.StatusTooManyRequests},  // not believed
		{"/login", "192.0.2.2:1", http.Header{"X-Forwarded-Uri": {"/elsewhere"}}, http.StatusTooManyRequests}, // of no meaning here
		{"/x", "192.0.2.1:1", nil, http.StatusTeapot},
	} {
		if w := get(h, c.target, c.peer, c.header); w.Code != c.status {
			t.Errorf("request %d, %s from %s with %v: %d, want %d", i, c.target, c.peer, c.header, w.Code, c.status)
		} else if c.status == http.StatusTooManyRequests {
			if w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "login.1m") || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("request %d: denied with %v %s", i, w.Header(), w.Body)
			}
		}
	}
}

// A rule for a path meets what a mux serves there, and nothing else.
func TestPathsAreThoseOfTheMux(t *testing.T) {
	n := node(t, limit.RuleSpec{Name: "health", Deny: true, Match: limit.MatchSpec{Path: []string{"/healthz"}}})
	limited, err := httplimit.New(n, "", httpapi.Config{})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/{id}", func(http.ResponseWriter, *http.Request) {})
	h := limited(mux)
	for _, target := range []string{"/healthz", "/healthz?x", "/%68ealthz?x", "/healthz%3Fx", "/healthz%3fx", "/healthz%3F", "/healthz%253Fx", "/healthz%23x", "/healthz%23", "/health%7A%3Fx=1?y"} {
		_, served := mux.Handler(httptest.NewRequest("GET", target, nil))
		status := map[string]int{"/healthz": http.StatusForbidden, "/{id}": http.StatusOK}[served]
		if w := get(h, target, "192.0.2.1:1", nil); w.Code != status {
			t.Errorf("%s: %d, want %d: the mux serves it at %q", target, w.Code, status, served)
		}
	}
}

// A limit of each path is one of what any origin serves there: who writes it in a hundred
// ways has no hundred of them, and is told of one.
func TestSpellingsShareTheLimitOfTheirPath(t *testing.T) {
	for _, match := range [][]string{{"/login"}, {"/api/**", "/login"}, nil} {
		for _, form := range []string{"/x%d%%2Fb/../login", "/x%d%%5C..%%5Clogin", "//x%d/login", "/x%d/../login", "/x%d%%2Fb/../y%%2F..%%2Flogin"} {
			rule := limit.RuleSpec{Name: "p", Match: limit.MatchSpec{Path: match}, Key: []string{"client_ip", "path"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}}
			limited, err := httplimit.New(node(t, rule), "", httpapi.Config{})
			if err != nil {
				t.Fatal(err)
			}
			h := limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			if w := get(h, "/login", "192.0.2.1:1", nil); w.Code != http.StatusOK {
				t.Fatalf("/login: %d", w.Code)
			}
			for i := range 5 {
				w := get(h, fmt.Sprintf(form, i), "192.0.2.1:1", nil)
				if w.Code != http.StatusTooManyRequests || strings.Count(w.Header().Get("RateLimit"), ";r=") != 1 {
					t.Errorf("rule for %v: %s: %d, %v; want 429, and one limit", match, fmt.Sprintf(form, i), w.Code, w.Header())
				}
			}
			if w := get(h, "/other/%2Fx", "192.0.2.1:1", nil); w.Code != http.StatusOK {
				t.Errorf("rule for %v: another path: %d", match, w.Code)
			}
		}
	}
}

// Each policy is told once, and as it is of the reading with the least left.
func TestReadingsAreToldAsTheTightest(t *testing.T) {
	rule := limit.RuleSpec{Name: "p", Key: []string{"client_ip", "path"}, Rates: []limit.RateSpec{{Limit: 2, Per: time.Minute}, {Limit: 2, Per: time.Hour}}}
	rule.OnLimit.ShowHeaders, rule.OnLimit.Headers = "all", []string{"draft-11", "envoy"}
	limited, err := httplimit.New(node(t, rule), "", httpapi.Config{Now: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	h := limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i, c := range []struct{ target, want, violated string }{
		{"/login", `"p.1m";r=1;t=60, "p.1h";r=1;t=3600`, ""},
		{"/x%2Fb/../login", `"p.1m";r=0;t=60, "p.1h";r=0;t=3600`, ""},
		{"/x%2Fb/../login", `"p.1m";r=0;t=61, "p.1h";r=0;t=3645`, `["p.1h","p.1m"]`},
		{"/x%2Fb/../else", `"p.1m";r=1;t=60, "p.1h";r=1;t=3600`, ""},
		{"/x%2Fb/../else", `"p.1m";r=0;t=60, "p.1h";r=0;t=3600`, ""},
		{"/x%2Fb/../else", `"p.1m";r=0;t=61, "p.1h";r=0;t=3645`, `["p.1h","p.1m"]`},
	} {
		w := get(h, c.target, "192.0.2.1:1", nil)
		policies := w.Header().Get("RateLimit-Policy") + w.Header().Get("X-RateLimit-Limit")
		if got := w.Header().Get("RateLimit"); got != c.want || strings.Count(policies, "p.1m") != 2 || strings.Count(policies, "p.1h") != 2 || !strings.Contains(w.Body.String(), c.violated) {
			t.Errorf("%d: %s: %d %s, %v %s; want %s, violated %s", i, c.target, w.Code, got, w.Header(), w.Body, c.want, c.violated)
		}
	}
}

// A target without a path is "/" (RFC 9110 section 4.2.3), to a proxy as well, which passes
// on others as paths.
func TestTargetsWithoutPathAreLimited(t *testing.T) {
	for _, pattern := range []string{"/**", "/"} {
		limited, err := httplimit.New(node(t, limit.RuleSpec{Name: "none", Deny: true, Match: limit.MatchSpec{Path: []string{pattern}}}), "", httpapi.Config{})
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		defer s.Close()
		for target, want := range map[string]int{"/": 403, "http://h": 403, "http://h?q=1": 403, "//": 403, "/?": 403, "/%2e": 403, "x:?": 403, "http:///": 403, "/x": 200, "*": 200} {
			if pattern == "/**" {
				want = 403
			}
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", target)
			switch resp, err := http.ReadResponse(bufio.NewReader(c), nil); {
			case err != nil:
				t.Errorf("%s: %v", target, err)
			case resp.StatusCode != want:
				t.Errorf("%s with a rule for %s: %d, want %d", target, pattern, resp.StatusCode, want)
			}
			c.Close()
		}
	}
}

// However a client writes a path, a rule for what the mux serves there applies.
func TestNoSpellingOfAPathIsUnlimited(t *testing.T) {
	for _, test := range []struct{ path, route, spelling string }{
		{"/api/**", "/api/{id}", "/api/1%2F..%2F..%2Fpublic"},
		{"/api/**", "/api/{id}", "/api/..%2Fx"},
		{"/api/**", "/api/{id}/x", "/api/%2e%2e/x"},
		{"/api/*", "/api/{id}", "/api/1%2f"},
		{"/api/*", "/api/{id}", "/api/1%2F2"},
		{"/users/*/keys", "/users/{id}/keys", "/users/1%2F2/keys"},
		{"/api/**", "/api/{rest...}", "/api/1%2F..%2F..%2Fpublic"},
		{"/api/**", "/api/{rest...}", "/api/..%2Fpublic"},
		{"/api/**", "/api/", "/api/%2E%2E"},
		{"/login", "/login", "/%6Cogin"},
	} {
		limited, err := httplimit.New(node(t, limit.RuleSpec{Name: "none", Deny: true, Match: limit.MatchSpec{Path: []string{test.path}}}), "", httpapi.Config{})
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.HandleFunc(test.route, func(http.ResponseWriter, *http.Request) {})
		if _, served := mux.Handler(httptest.NewRequest("GET", test.spelling, nil)); served != test.route {
			t.Fatalf("%s is served at %q, want %q", test.spelling, served, test.route)
		}
		if w := get(limited(mux), test.spelling, "192.0.2.1:1", nil); w.Code != http.StatusForbidden {
			t.Errorf("%s, served at %s: %d, want 403 of the rule for %s", test.spelling, test.route, w.Code, test.path)
		}
	}
}

func TestTrustedProxyNamesItsClient(t *testing.T) {
	n := node(t, limit.RuleSpec{Name: "all", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}})
	limited, err := httplimit.New(n, edge.LocalNamespace, httpapi.Config{TrustedProxies: httpapi.Loopback})
	if err != nil {
		t.Fatal(err)
	}
	h := limited(ok)
	for client, want := range map[string]int{"192.0.2.1": http.StatusTeapot, "192.0.2.2": http.StatusTeapot} {
		if w := get(h, "/", "127.0.0.1:9", http.Header{"X-Forwarded-For": {client}}); w.Code != want {
			t.Errorf("first request of %s: %d, want %d", client, w.Code, want)
		}
	}
	if w := get(h, "/", "127.0.0.1:9", http.Header{"X-Forwarded-For": {"192.0.2.1"}}); w.Code != http.StatusTooManyRequests {
		t.Errorf("second request of 192.0.2.1: %d, want 429", w.Code)
	}
}

// Over a unix socket nobody has an address, and nobody is without a limit.
func TestUnixSocketIsLimited(t *testing.T) {
	limited, err := httplimit.Local(2, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(limited(ok))
	server.Listener.Close()
	path := filepath.Join(t.TempDir(), "limited.sock")
	if server.Listener, err = net.Listen("unix", path); err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	for i, c := range []struct {
		forwarded string
		status    int
	}{
		{"", http.StatusTeapot}, {"", http.StatusTeapot}, {"", http.StatusTooManyRequests}, // all one client
		{"192.0.2.1", http.StatusTeapot}, {"192.0.2.1", http.StatusTeapot}, {"192.0.2.1", http.StatusTooManyRequests}, // a proxy names its clients
		{"192.0.2.2", http.StatusTeapot}, {"", http.StatusTooManyRequests},
	} {
		r, err := http.NewRequest("GET", "http://limited/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != c.status {
			t.Errorf("request %d, forwarded for %q: %d, want %d", i, c.forwarded, answer.StatusCode, c.status)
		}
	}
}

// A request whose server told no address of its peer is limited too.
func TestPeersWithoutAddressAreLimited(t *testing.T) {
	limited, err := httplimit.Local(1, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	h := limited(ok)
	for i, c := range []struct {
		peer   string
		status int
	}{{"", http.StatusTeapot}, {"", http.StatusTooManyRequests}, {"pipe", http.StatusTooManyRequests}, {"192.0.2.1:1", http.StatusTeapot}} {
		if w := get(h, "/", c.peer, http.Header{"X-Forwarded-For": {fmt.Sprintf("192.0.2.%d", 10+i)}}); w.Code != c.status {
			t.Errorf("request %d of %q: %d, want %d", i, c.peer, w.Code, c.status)
		}
	}
}

// broken is a limiter that panics.
type broken struct{ httpapi.Limiter }

func (broken) CheckOrWait(time.Time, *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	panic("a bug")
}

// gone is a limiter whose rules are loaded after New has asked for them, and lack a
// namespace then.
type gone struct {
	httpapi.Limiter
	asked *atomic.Bool
}

func (g gone) Rules() *limit.Set {
	if !g.asked.Swap(true) {
		return nil
	}
	return g.Limiter.Rules()
}

func TestFailureOfTheLimiterLetsRequestsPass(t *testing.T) {
	n := node(t, limit.RuleSpec{Name: "all", Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}})
	for name, c := range map[string]struct {
		limiter   httpapi.Limiter
		namespace string
		why       string
	}{"panic": {broken{n}, "", "fault"}, "a namespace that is gone": {gone{n, new(atomic.Bool)}, "elsewhere", "setup"}} {
		limited, err := httplimit.New(c.limiter, c.namespace, httpapi.Config{})
		if err != nil {
			t.Fatal(err)
		}
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if why := w.Header().Get(httpapi.UndecidedField); why != c.why {
				t.Errorf("%s: the handler finds %q, want %q", name, why, c.why)
			}
			ok(w, r)
		})
		if w := get(limited(handler), "/", "192.0.2.1:1", nil); w.Code != http.StatusTeapot || w.Header().Get(httpapi.UndecidedField) != c.why {
			t.Errorf("%s: %d %v, want the handler's own answer, told as undecided: %s", name, w.Code, w.Header(), c.why)
		}
	}
}

func TestMistakesAreTold(t *testing.T) {
	if _, err := httplimit.Local(1, time.Nanosecond); err == nil || !strings.Contains(err.Error(), "per") {
		t.Errorf("Local(1, 1ns) = %v, want it to name per", err)
	}
	if limited, err := httplimit.Local(0, time.Minute); limited != nil || err == nil || !strings.Contains(err.Error(), "requests") {
		t.Errorf("Local(0, 1m) = %v, want it to name requests", err)
	}
	none, _ := edge.Local() // without a rule
	for _, limiter := range []httpapi.Limiter{nil, none} {
		if limited, err := httplimit.New(limiter, "", httpapi.Config{}); limited != nil || err == nil || !strings.Contains(err.Error(), "there is no limiter") {
			t.Errorf("New(%T) = %v, want that there is no limiter", limiter, err)
		}
	}
	if limited, err := httplimit.Remote(nil, httplimit.RemoteConfig{}); limited != nil || err == nil || !strings.Contains(err.Error(), "there is no limiter") {
		t.Errorf("Remote(nil) = %v, want that there is no limiter", err)
	}
}

// A namespace that the rules do not have is an error at once: all requests would pass.
func TestNewRefusesUnknownNamespaces(t *testing.T) {
	n := node(t, limit.RuleSpec{Name: "r", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}})
	for _, namespace := range []string{"", edge.LocalNamespace} {
		if _, err := httplimit.New(n, namespace, httpapi.Config{}); err != nil {
			t.Errorf("New(%q) = %v, want middleware", namespace, err)
		}
	}
	_, err := httplimit.New(n, "nope", httpapi.Config{})
	if err == nil || !strings.Contains(err.Error(), `"nope"`) || !strings.Contains(err.Error(), "there are rules for: local") {
		t.Errorf("New(nope) = %v, want an error that names it, and those that there are", err)
	}
	fresh, err := edge.New(edge.Config{Region: "r", Pop: "p", Name: "n", Secret: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := httplimit.New(fresh, "later", httpapi.Config{}); err != nil {
		t.Errorf("New = %v before any rules are there, want middleware: they may come", err)
	}
}
