package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// What is allowed reaches the upstream as it was sent, and its answer the client, with
// the rules' fields added and nothing guessed.
func TestPassesOnWhatItIsSent(t *testing.T) {
	var got *http.Request
	var body string
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got, body = r, string(text)
		w.Header().Add("X-Two", "a")
		w.Header().Add("X-Two", "b")
		w.Header()["Content-Type"] = nil // the upstream says none
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "<html>made")
	}, options{}, hourly(5))
	for _, target := range []string{"/a%2Fb//c/../d?q=1;r=%zz&&s", "/", "//x?", "/%E2%82%AC"} {
		answer := s.send("PATCH", target, "the body", "X-User-Id", "u1", "Accept-Encoding", "br", "User-Agent", "")
		if got.Method != "PATCH" || got.RequestURI != target || body != "the body" || got.Host != s.addr || got.Header.Get("X-User-Id") != "u1" || got.ContentLength != 8 {
			t.Errorf("%s: the upstream got %s %s of %s, %q, %v", target, got.Method, got.RequestURI, got.Host, body, got.Header)
		}
		if e := got.Header.Values("Accept-Encoding"); !slices.Equal(e, []string{"br"}) || got.Header["User-Agent"] != nil {
			t.Errorf("%s: the upstream got Accept-Encoding %q, User-Agent %q; want what the client sent", target, e, got.Header["User-Agent"])
		}
		if answer.status != http.StatusCreated || answer.body != "<html>made" || !slices.Equal(answer.header["X-Two"], []string{"a", "b"}) || answer.header["Content-Type"] != nil {
			t.Errorf("%s: the client got %+v", target, answer)
		}
		if answer.header.Get("RateLimit-Policy") != `"hourly.1h";q=5;w=3600` || !strings.HasPrefix(answer.header.Get("RateLimit"), `"hourly.1h";r=`) {
			t.Errorf("%s: the rule's fields are %v", target, answer.header)
		}
	}
	s.result("answered", 4)
	if n := s.metric("spillgate_proxy_upstream_responses_total", "class", "2xx"); n != 4 {
		t.Errorf("%v answers of class 2xx, want 4", n)
	}
	if n := s.metric("spillgate_proxy_upstream_duration_seconds"); n != 4 {
		t.Errorf("%v answers were timed, want 4", n)
	}
}

// net/http guesses no type for an answer that has none: whether it would depends on what
// is flushed first.
func TestNoTypeIsGuessed(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{}, hourly(5))
	x := &exchange{proxy: s.proxy}
	x.answer.ResponseWriter = httptest.NewRecorder()
	if err := x.answered(&http.Response{StatusCode: 200, Header: http.Header{}}); err != nil {
		t.Fatal(err)
	}
	if v, ok := x.answer.Header()["Content-Type"]; !ok || v != nil {
		t.Errorf("Content-Type is %q, %v; want it there, without a value", v, ok)
	}
}

// A path of the upstream's stands before that of a request, and its own name is sent
// where that is wanted.
func TestUpstreamsPathAndHost(t *testing.T) {
	var uri, host string
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { uri, host = r.RequestURI, r.Host }))
	defer upstream.Close()
	s := (&site{t: t}).before(upstream.URL+"/base/", options{cfg: Config{UpstreamHost: true}}, hourly(9))
	s.get("/a%2Fb?x=1")
	if uri != "/base/a%2Fb?x=1" || "http://"+host != upstream.URL {
		t.Errorf("the upstream got %s of %s, want /base/a%%2Fb?x=1 of its own name", uri, host)
	}
}

// A limit that is cut off, and closed then, is told apart from one that is used up: by
// status, problem and metric.
func TestCutOff(t *testing.T) {
	closed := limit.RuleSpec{Name: "logins", OnPartition: "closed", Match: limit.MatchSpec{Path: []string{"/login"}}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Hour}}}
	used := hourly(1)
	used.Match.Path = []string{"/used"}
	node := limitertest.Node(t, limit.Document{Namespace: "site", Rules: []limit.RuleSpec{closed, used}})
	node.Flush(time.Now().Add(-2 * time.Second)) // it asks its region, and is never answered
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{limiter: node}, hourly(9))
	for _, c := range []struct {
		path    string
		status  int
		problem string
	}{{"/login", 503, "temporary-reduced-capacity"}, {"/used", 200, ""}, {"/used", 429, "quota-exceeded"}} {
		if got := s.get(c.path); got.status != c.status || !strings.Contains(got.body, c.problem) {
			t.Errorf("%s: %+v, want %d %s", c.path, got, c.status, c.problem)
		}
	}
	s.result("cut_off", 1)
	s.result("limited", 1)
	s.result("answered", 1)
}

// A denial is the one that all surfaces give, and the upstream is not asked.
func TestDenialIsThatOfTheOtherSurfaces(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{api: httpapi.Config{RetryJitter: -1}}, hourly(1))
	s.get("/")
	denied := s.get("/")
	middleware := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "127.0.0.1:1"
	s.proxy.api.Middleware("", nil).ServeHTTP(middleware, r)
	if denied.status != http.StatusTooManyRequests || s.served.Load() != 1 {
		t.Fatalf("the second got %+v, the upstream %d; want 429, and one", denied, s.served.Load())
	}
	for _, name := range []string{"Retry-After", "Ratelimit", "Ratelimit-Policy", "Content-Type", "Cache-Control"} {
		got, want := denied.header[name], middleware.Header()[name]
		if name == "Retry-After" || name == "Ratelimit" { // a second may pass between the two
			got, want = got[:min(1, len(got))], want[:min(1, len(want))]
			if len(got) == 1 && len(want) == 1 && len(got[0]) == len(want[0]) {
				continue
			}
		}
		if !slices.Equal(got, want) || len(got) != 1 {
			t.Errorf("%s is %q, of the middleware %q", name, got, want)
		}
	}
	var problem, other map[string]any
	if json.Unmarshal([]byte(denied.body), &problem) != nil || json.Unmarshal(middleware.Body.Bytes(), &other) != nil || problem["type"] != other["type"] || problem["detail"] != other["detail"] || problem["type"] == nil {
		t.Errorf("the problem is %s, of the middleware %s", denied.body, middleware.Body)
	}
	if denied.header["Proxy-Status"] != nil {
		t.Errorf("Proxy-Status %q on a denial: it is no fault", denied.header["Proxy-Status"])
	}
	s.result("limited", 1)
	s.result("answered", 1)
}

// broken is a limiter over a site's node that panics where it is to decide.
type broken struct {
	httpapi.Limiter
	s *site
}

func (b broken) Rules() *limit.Set { return b.s.node.Rules() }

func (broken) CheckOrWait(time.Time, *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	panic("a bug")
}

// A limiter that fails is no outage: requests pass, are counted as undecided, and told so
// to the upstream and in the answer.
func TestFailureOfTheLimiterLetsRequestsPass(t *testing.T) {
	s := &site{t: t}
	var told []string
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told = r.Header[httpapi.UndecidedField]
		w.WriteHeader(http.StatusTeapot)
	}))
	defer upstream.Close()
	s.before(upstream.URL, options{limiter: broken{s: s}}, hourly(0))
	if got := s.get("/", httpapi.UndecidedField, "says-the-client"); got.status != http.StatusTeapot || got.header["Ratelimit"] != nil || got.header["Proxy-Status"] != nil || got.header.Get(httpapi.UndecidedField) != "fault" {
		t.Errorf("with a broken limiter: %+v, want the upstream's answer, told as undecided, and no other field of ours", got)
	}
	if !slices.Equal(told, []string{"fault"}) {
		t.Errorf("the upstream is told %q, want fault", told)
	}
	if n := s.metric("spillgate_decisions_total", "result", "error"); n != 1 {
		t.Errorf("%v decisions failed, want 1", n)
	}
	s.result("answered", 1)
}

// What the upstream says of limits of its own is told with ours; of fields that are no
// lists its own stand, as those of its own denial must, and nothing of ours is mixed in.
func TestUpstreamsOwnLimitIsTold(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"own";r=0;t=9`)
		w.Header().Set("X-RateLimit-Limit", "7")
		w.Header().Set("Retry-After", "9")
		w.WriteHeader(http.StatusTooManyRequests)
	}, options{}, limit.RuleSpec{Name: "r", Rates: []limit.RateSpec{{Limit: 5, Per: time.Hour}}, OnLimit: limit.OnLimitSpec{Headers: []string{"draft-11", "x-ratelimit"}}})
	got := s.get("/")
	if got.status != 429 || len(got.header["Ratelimit"]) != 2 || !slices.Equal(got.header["X-Ratelimit-Limit"], []string{"7"}) ||
		got.header["X-Ratelimit-Remaining"] != nil || !slices.Equal(got.header["Retry-After"], []string{"9"}) {
		t.Errorf("the client got %+v", got)
	}
	s.result("answered", 1)
}

// Informational answers go on at once, and the fields come with the one that counts.
func TestEarlyHintsKeepTheFields(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</s.css>; rel=preload")
		w.Header().Set("X-Spillgate-Undecided", "yes") // of that nobody but the proxy tells
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		io.WriteString(w, "ok")
	}, options{}, hourly(5))
	c := s.dial()
	c.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if hint := c.response(); hint.StatusCode != http.StatusEarlyHints || hint.Header.Get("Link") == "" || hint.Header["Ratelimit"] != nil || hint.Header[httpapi.UndecidedField] != nil {
		t.Errorf("first came %d, %v", hint.StatusCode, hint.Header)
	}
	if final := c.response(); final.StatusCode != http.StatusOK || final.Header["Ratelimit"] == nil || final.Header["Link"] != nil {
		t.Errorf("then %d, %v; want 200 with the rule's fields", final.StatusCode, final.Header)
	}
}

// To a client that asks whether to go on net/http says so as its body is read, beside what the upstream
// says: until then no informational answer goes on, or the two would mix.
func TestNoHintsBesideTheWordToGoOn(t *testing.T) {
	w := httptest.NewRecorder()
	a := &answer{ResponseWriter: w, body: &body{asks: true, src: strings.NewReader("x"), rc: http.NewResponseController(w), left: -1}}
	if a.WriteHeader(http.StatusEarlyHints); w.Code == http.StatusEarlyHints {
		t.Error("a hint went on before")
	}
	if _, err := a.body.Read(make([]byte, 9)); err != nil {
		t.Fatal(err)
	}
	if a.WriteHeader(http.StatusEarlyHints); w.Code != http.StatusEarlyHints {
		t.Error("and none after")
	}
}

// leaver is a client of HTTP/2 that leaves as an informational answer comes, which net/http writes yet.
type leaver struct {
	http.ResponseWriter
	leave context.CancelFunc
}

func (l leaver) WriteHeader(status int) {
	if l.ResponseWriter.WriteHeader(status); status == http.StatusEarlyHints {
		l.leave()
	}
}

// The header of a client that has left stays as it is: net/http may be reading it.
func TestHeaderOfAClientThatHasLeft(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := leaver{httptest.NewRecorder(), func() {}}
		if leaves {
			w.leave = cancel
		}
		a := &answer{ResponseWriter: w, between: true, apart: http.Header{}, request: (&http.Request{}).WithContext(ctx)}
		a.Header().Set("Link", "x")
		a.WriteHeader(http.StatusEarlyHints)
		clear(a.Header())
		a.Header().Set("X-End", "1")
		a.WriteHeader(http.StatusOK)
		if h := w.Header(); (h["Link"] != nil) != leaves || (h["X-End"] != nil) == leaves {
			t.Errorf("who leaves (%v) has a header of %v", leaves, h)
		}
	}
}

func TestWhatIsNoRequestToAnUpstream(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{}, hourly(5))
	for request, want := range map[string]int{
		"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n":                                 501,
		"GET x:opaque HTTP/1.1\r\nHost: h\r\n\r\n":                                                      400,
		"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 200, // RFC 9112 6.3: the length is not heeded
		"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx":                  400,
	} {
		c := s.dial()
		c.write(request)
		if got := c.response(); got.StatusCode != want {
			t.Errorf("%q: %d, want %d", request, got.StatusCode, want)
		}
	}
	if n := s.charged(); n != 1 {
		t.Errorf("%v were charged, want the one that was passed on", n)
	}
}

// OPTIONS of the server itself is counted and passed on as it is, and answered by nobody else.
func TestOptionsOfTheServer(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Target", r.Method+" "+r.RequestURI)
	}, options{}, hourly(1))
	for i, want := range []int{200, 429} {
		c := s.dial()
		c.write("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")
		if got := c.response(); got.StatusCode != want || (got.Header.Get("X-Target") == "OPTIONS *") != (want == 200) || got.Header["Ratelimit"] == nil {
			t.Errorf("request %d: %d %v, want %d", i, got.StatusCode, got.Header, want)
		}
	}
	if n := s.served.Load(); n != 1 {
		t.Errorf("the upstream saw %d, want one", n)
	}
	s.result("answered", 1)
	s.result("limited", 1)
}

// Rules that count certain answers see the upstream's status, and what stands for none.
func TestCountWhenByTheUpstreamsStatus(t *testing.T) {
	rule := limit.RuleSpec{Name: "failures", CountWhen: `int(attr("response.status")) in [401, 502]`, Rates: []limit.RateSpec{{Limit: 2, Per: time.Hour}}}
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/dead":
			panic(http.ErrAbortHandler)
		case "/denied":
			w.WriteHeader(401)
		}
	}, options{}, rule)
	for i, step := range []struct {
		target string
		want   int
	}{{"/", 200}, {"/denied", 401}, {"/", 200}, {"/", 200}, {"/dead", 502}, {"/", 429}} {
		if got := s.send("POST", step.target, "x"); got.status != step.want {
			t.Errorf("request %d, %s: %+v, want %d", i, step.target, got, step.want)
		}
		s.reaches(float64(i+1), "spillgate_proxy_requests_total") // an answer is there before it is counted
	}
}

func TestConfigMistakesAreTold(t *testing.T) {
	node := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{}, hourly(5))
	at := node.proxy.cfg.Upstream
	for want, cfg := range map[string]Config{
		"Upstream: is missing":                          {},
		"Timeout: -1ns is negative":                     {Upstream: at, Timeout: -1},
		"ClientTimeout: -1ns is negative":               {Upstream: at, ClientTimeout: -1},
		"Capacity.Name: is missing":                     {Upstream: at, Capacity: CapacityConfig{Header: "X"}},
		"neither Header nor Latency":                    {Upstream: at, Capacity: CapacityConfig{Name: "api"}},
		"both set":                                      {Upstream: at, Capacity: CapacityConfig{Name: "api", Header: "X", Latency: 1}},
		`Capacity.Name: "a b" is no name of a capacity`: {Upstream: at, Capacity: CapacityConfig{Name: "a b", Header: "X"}},
		`namespace: there are no rules for "elsewhere"`: {Upstream: at, Namespace: "elsewhere"},
		"Latency -1ns, TTL 0s: a time is negative":      {Upstream: at, Capacity: CapacityConfig{Name: "api", Latency: -1}},
	} {
		if _, err := New(node.proxy.api, node.node, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want %s", err, want)
		}
	}
	if _, err := New(node.proxy.api, nil, Config{Upstream: at, Capacity: CapacityConfig{Name: "api", Header: "X"}}); err == nil {
		t.Error("a capacity without who is told of it was taken")
	}
}

// Many at once, over connections that serve on: each gets its own answer, and no more
// are admitted than may be.
func TestManyAtOnce(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	}, options{}, hourly(400))
	over(t, func(t *testing.T, c *http.Client) {
		before := s.charged()
		var admitted atomic.Int64
		var workers sync.WaitGroup
		for worker := range 8 {
			workers.Go(func() {
				for i := range 60 {
					body := strings.Repeat(fmt.Sprintf("%d.%d ", worker, i), i*20)
					resp, err := c.Post(s.url, "text/plain", strings.NewReader(body))
					if err != nil {
						t.Errorf("worker %d, request %d: %v", worker, i, err)
						return
					}
					text, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					switch {
					case err != nil:
						t.Errorf("worker %d, request %d: %v", worker, i, err)
					case resp.StatusCode == 200 && string(text) == body:
						admitted.Add(1)
					case resp.StatusCode != 429 || !strings.Contains(string(text), "quota-exceeded"):
						t.Errorf("worker %d, request %d: %d with %d bytes, of %d", worker, i, resp.StatusCode, len(text), len(body))
					}
				}
			})
		}
		workers.Wait()
		if n := s.charged() - before; n != float64(admitted.Load()) || s.charged() > 400 {
			t.Errorf("%d were answered, %v charged, %v in all; want no more than 400", admitted.Load(), n, s.charged())
		}
	})
	if s.charged() != 400 || s.served.Load() != 400 {
		t.Errorf("%v were charged, %d served, want 400", s.charged(), s.served.Load())
	}
}
