package httplimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httplimit"
	"github.com/spillgate/spillgate/edge/limit"
)

// An edge somewhere near limits this handler: two requests a minute of each user.
func ExampleRemote() {
	node, err := edge.Local(limit.RuleSpec{Name: "per-user", Key: []string{"header.X-User-Id"}, Rates: []limit.RateSpec{{Limit: 2, Per: time.Minute}}})
	if err != nil {
		panic(err)
	}
	api, err := httpapi.New(node, httpapi.Config{})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(api) // "edge serve", as a rule
	defer server.Close()

	limiter, err := client.NewHTTP(server.URL, client.Config{Timeout: time.Second})
	if err != nil {
		panic(err)
	}
	limited, err := httplimit.Remote(limiter, httplimit.RemoteConfig{Headers: []string{"X-User-Id"}})
	if err != nil {
		panic(err)
	}
	handler := limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") }))
	for range 3 {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User-Id", "u1")
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// 200 "per-user.1m";q=2;w=60
	// 200 "per-user.1m";q=2;w=60
	// 429 "per-user.1m";q=2;w=60
}

// hourly has windows that no test outlives.
func hourly(name string, most uint64, key ...string) limit.RuleSpec {
	return limit.RuleSpec{Name: name, Group: name, Key: key, Rates: []limit.RateSpec{{Name: "hour", Limit: most, Per: time.Hour, Algorithm: "fixed_window"}}}
}

// Requests at random are told the same by an edge elsewhere as by one of this process:
// whether they pass, with which status and which headers.
func TestRemoteLimitsAsEmbedded(t *testing.T) {
	login, hidden := hourly("login", 3, "client_ip", "path"), hourly("hidden", 9, "host")
	login.Match = limit.MatchSpec{Path: []string{"/login", "/a b/**"}, Methods: []string{"GET", "POST"}}
	login.OnLimit = limit.OnLimitSpec{Status: 403, Headers: []string{"x-ratelimit", "draft-11"}}
	hidden.OnLimit = limit.OnLimitSpec{ShowHeaders: "none"}
	rules := []limit.RuleSpec{login, hidden, hourly("user", 12, "header.X-User-Id"),
		{Name: "closed", Group: "closed", Deny: true, Match: limit.MatchSpec{Path: []string{"/closed"}}}}
	const seed = 1
	at := time.Date(2026, 1, 1, 0, 0, 15, 0, time.UTC)
	cfg := httpapi.Config{RetryJitter: -1, Now: func() time.Time { return at }, TrustedProxies: httpapi.Proxies{netip.MustParsePrefix("10.0.0.0/8")}}
	embedded, err := httplimit.New(node(t, rules...), "", cfg)
	if err != nil {
		t.Fatal(err)
	}
	limiter := askable(t, node(t, rules...), cfg, client.Config{Timeout: time.Minute})
	elsewhere, err := httplimit.Remote(limiter, httplimit.RemoteConfig{Headers: []string{"x-user-id"}, TrustedProxies: cfg.TrustedProxies})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(seed, seed))
	one := func(of ...string) string { return of[rnd.IntN(len(of))] }
	seen := map[int]int{}
	for i := range 600 {
		r := httptest.NewRequest(one("GET", "POST", "PUT"), one("/", "/login", "/login?x=1", "//login", "/%6Cogin", "/x/../login", "/a%20b/c", "/closed"), nil)
		r.Host = one("a.example", "A.example:80", "b.example")
		r.RemoteAddr = one("192.0.2.1:1", "192.0.2.2:1", "10.0.0.1:1", "[2001:db8::1]:1", "@", "pipe")
		if rnd.IntN(2) == 0 {
			r.Header.Set("X-Forwarded-For", one("198.51.100.1", "198.51.100.2, 10.0.0.2", "nobody"))
		}
		if rnd.IntN(2) == 0 {
			r.Header.Set("X-User-Id", one("u1", "u2"))
		}
		here, there := httptest.NewRecorder(), httptest.NewRecorder()
		embedded(ok).ServeHTTP(here, r.Clone(t.Context()))
		elsewhere(ok).ServeHTTP(there, r)
		seen[here.Code]++
		if here.Code != there.Code || !reflect.DeepEqual(here.Header(), there.Header()) {
			t.Fatalf("seed %d, request %d, %s %s of %s %v:\n%d %v\nand elsewhere\n%d %v\n%s", seed, i, r.Method, r.URL, r.RemoteAddr, r.Header,
				here.Code, here.Header(), there.Code, there.Header(), there.Body)
		}
		if there.Code == http.StatusTooManyRequests {
			var problem struct {
				Type, Instance string
				Status         int
				RetryAfter     int `json:"retry_after"`
			}
			if err := json.Unmarshal(there.Body.Bytes(), &problem); err != nil || !strings.HasSuffix(problem.Type, "#quota-exceeded") || problem.Status != 429 ||
				len(problem.Instance) != len("/v1/decisions/")+26 || fmt.Sprint(problem.RetryAfter) != there.Header().Get("Retry-After") || strings.Contains(there.Body.String(), "hidden") {
				t.Fatalf("%v: %s", err, there.Body)
			}
		}
	}
	for _, code := range []int{http.StatusTeapot, 403, 429} {
		if seen[code] == 0 {
			t.Errorf("no answer was %d: %v", code, seen)
		}
	}
}

// askable is an edge over a node, and a client of it.
func askable(t *testing.T, limiter httpapi.Limiter, cfg httpapi.Config, how client.Config) client.Limiter {
	t.Helper()
	api, err := httpapi.New(limiter, cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	c, err := client.NewHTTP(server.URL, how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// answers is an edge that answers so.
type answers struct {
	client.Limiter
	reply client.Reply
	err   error
}

func (a answers) Check(context.Context, client.Check) (client.Reply, error) { return a.reply, a.err }

// A fault lets requests pass, or is told apart from a denial: by status, problem and metric;
// and is logged, but not with each request.
func TestRemoteFaults(t *testing.T) {
	fault := &client.Fault{Op: "check", Err: errors.New("gone")}
	for name, c := range map[string]struct {
		answers
		status  int
		kind    string // of the problem
		retry   string
		faults  float64
		call    string // the status that a call of gRPC ends with
		connect string // the code that one of Connect has
	}{
		"passes":                   {answers{reply: client.Reply{Allowed: true, Undecided: true}, err: fault}, http.StatusTeapot, "", "", 4, "", ""},
		"closed":                   {answers{reply: client.Reply{Undecided: true}, err: fault}, 503, "temporary-reduced-capacity", "1", 4, "14", "unavailable"},
		"a wrong namespace":        {answers{reply: client.Reply{Allowed: true, Undecided: true}, err: &client.Mistake{Op: "check", Detail: "namespace", Setup: true}}, http.StatusTeapot, "", "", 4, "", ""},
		"a mistake in the request": {answers{reply: client.Reply{Allowed: true, Undecided: true}, err: &client.Mistake{Op: "check", Detail: "cost"}}, 400, "about:blank", "", 4, "3", ""},
		"too long":                 {answers{err: &client.Mistake{Op: "check", Detail: "path", Status: 414}}, 414, "about:blank", "", 4, "3", ""},
		"cut off":                  {answers{reply: client.Reply{Rule: "r", Policy: "p", Status: 503, Basis: client.Basis{CutOff: true}, Headers: map[string]string{"Retry-After": "7"}}}, 503, "temporary-reduced-capacity", "7", 0, "14", "unavailable"},
		"denied":                   {answers{reply: client.Reply{Rule: "r", Policy: "p", Status: 429, Headers: map[string]string{"Retry-After": "7"}}}, 429, "quota-exceeded", "7", 0, "8", "resource_exhausted"},
		"denied for good":          {answers{reply: client.Reply{Rule: "r", Status: 403}}, 403, "about:blank", "", 0, "7", "permission_denied"},
		"denied with no status":    {answers{reply: client.Reply{Rule: "r", Policy: "p"}}, 429, "quota-exceeded", "", 0, "8", "resource_exhausted"},
		"denied with one of none":  {answers{reply: client.Reply{Rule: "r", Policy: "p", Status: 200}}, 429, "quota-exceeded", "", 0, "8", "resource_exhausted"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			registry := prometheus.NewRegistry()
			limited, err := httplimit.Remote(c.answers, httplimit.RemoteConfig{Logger: slog.New(slog.NewTextHandler(&log, nil)), Metrics: httpapi.NewMetrics(registry)})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				w := get(limited(ok), "/", "192.0.2.1:1", nil)
				var problem struct{ Type string }
				_ = json.Unmarshal(w.Body.Bytes(), &problem) // the handler's own is none
				if w.Code != c.status || !strings.HasSuffix(problem.Type, c.kind) || w.Header().Get("Retry-After") != c.retry {
					t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
				}
			}
			call := httptest.NewRequest("POST", "/a.Service/Method", http.NoBody)
			call.Header.Set("Content-Type", "application/grpc")
			answer := httptest.NewRecorder()
			limited(ok).ServeHTTP(answer, call)
			if status := answer.Header().Get("Grpc-Status"); status != c.call || c.call != "" && (answer.Code != http.StatusOK || answer.Header().Get("Retry-After") != c.retry) {
				t.Errorf("a call of gRPC is answered %d %v", answer.Code, answer.Header())
			}
			call.Header.Set("Content-Type", "application/json")
			call.Header.Set("Connect-Protocol-Version", "1")
			answer = httptest.NewRecorder()
			limited(ok).ServeHTTP(answer, call)
			var told struct{ Code, Message string }
			_ = json.Unmarshal(answer.Body.Bytes(), &told)
			if answer.Code != c.status || told.Code != c.connect || (told.Message == "") != (c.connect == "") || answer.Header().Get("Retry-After") != c.retry || c.connect != "" && answer.Header().Get("Content-Type") != "application/json" {
				t.Errorf("a call of Connect is answered %d %v %s", answer.Code, answer.Header(), answer.Body)
			}
			if n := strings.Count(log.String(), "requests are "); (n == 1) != (c.faults > 0) || n > 1 {
				t.Errorf("logged: %s", log.String())
			}
			if n := faults(t, registry); n != c.faults {
				t.Errorf("%v faults counted, want %v", n, c.faults)
			}
			why, passed := "fault", ""
			if wrong := (*client.Mistake)(nil); errors.As(c.err, &wrong) {
				if why = "refused"; wrong.Setup {
					why = "setup"
				}
			}
			if n := counted(t, registry, "spillgate_remote_undecided_total", why); n != c.faults {
				t.Errorf("%v counted as %s, want %v", n, why, c.faults)
			}
			if c.status == http.StatusTeapot {
				passed = why
			}
			if got := get(limited(ok), "/", "192.0.2.1:1", nil).Header().Get(httpapi.UndecidedField); got != passed {
				t.Errorf("told as undecided: %q, want %q", got, passed)
			}
		})
	}
}

// faults are the requests counted as not decided.
func faults(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	return counted(t, registry, "spillgate_decisions_total", "error")
}

// counted is a metric with a label of that value.
func counted(t *testing.T, registry *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && strings.Contains(fmt.Sprint(m.GetLabel()), strconv.Quote(label)) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// A request that a queue admits waits for its turn, or is not served where it ends before.
func TestRemoteWaitsForItsTurn(t *testing.T) {
	limited, err := httplimit.Remote(answers{reply: client.Reply{Allowed: true, Delay: 20 * time.Millisecond}}, httplimit.RemoteConfig{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if w := get(limited(ok), "/", "192.0.2.1:1", nil); w.Code != http.StatusTeapot || time.Since(began) < 20*time.Millisecond {
		t.Errorf("%d after %v, want it served after 20 ms", w.Code, time.Since(began))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	limited(ok).ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("with 10 ms to live %d, want 503", w.Code)
	}
}

func TestRemoteConfig(t *testing.T) {
	for want, cfg := range map[string]httplimit.RemoteConfig{
		`Headers[1]: "X User" is not the name of a header`: {Headers: []string{"X-User", "X User"}},
		`TrustedProxies[0]: is not a network`:              {TrustedProxies: httpapi.Proxies{{}}},
		`Headers: 61 are too many (60 at the most)`:        {Headers: strings.Split(strings.Repeat("X,", 60)+"X", ",")},
	} {
		if _, err := httplimit.Remote(answers{}, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
