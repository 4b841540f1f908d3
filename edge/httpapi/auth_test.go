package httpapi

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func TestAuth(t *testing.T) {
	b := newBench(t, perClient(1))
	url := b.listen(t)
	ask := func(target string, header ...string) reply {
		t.Helper()
		return send(t, "GET", url+target, "", append(header, "X-Forwarded-Uri", "/api/x?q=1", "X-Forwarded-For", "192.0.2.1")...)
	}
	r := ask("/v1/auth")
	if r.status != 200 || r.text != "" || r.header.Get("RateLimit") != `"per-client.minute";r=0;t=45` ||
		r.header.Get("RateLimit-Policy") != `"per-client.minute";q=1;w=60` || r.header.Get("Retry-After") != "" {
		t.Fatalf("first = %d %v %q", r.status, r.header, r.text)
	}
	r = ask("/v1/auth/acme", "X-Forwarded-Method", "DELETE")
	if r.status != 429 || r.header.Get("Retry-After") != "45" || r.header.Get("Cache-Control") != "no-store" ||
		r.header.Get("Content-Type") != "application/problem+json" || r.header.Get("X-RateLimit-Status") != "" {
		t.Fatalf("second = %d %v", r.status, r.header)
	}
	instance, _ := r.body["instance"].(string)
	want := `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
		`"detail":"1 per 1m are used up","violated-policies":["per-client.minute"],"instance":"` + instance + `","retry_after":45}` + "\n"
	if r.text != want || len(instance) != len("/v1/decisions/")+idLength {
		t.Errorf("denial:\n%swant\n%s", r.text, want)
	}
	r = ask("/v1/auth?deny_status=403")
	if r.status != 403 || r.header.Get("X-RateLimit-Status") != "429" || r.header.Get("Retry-After") != "45" || r.body["status"] != 403.0 {
		t.Errorf("deny_status=403: %d %v %s", r.status, r.header, r.text)
	}
	if r := send(t, "HEAD", url+"/v1/auth", "", "X-Forwarded-Uri", "/api/x", "X-Forwarded-For", "192.0.2.1"); r.status != 429 || r.text != "" {
		t.Errorf("HEAD = %d %q, want 429 without a body", r.status, r.text)
	}
	if r := ask("/v1/auth?cost=0", "X-Forwarded-For", "192.0.2.2"); r.status != 429 {
		t.Errorf("the right-most address counts: %d", r.status)
	}
	// Whatever a proxy writes between, it is one client: the path has one key.
	for _, target := range []string{"//api/x", "/%61pi/y", "/x/../api/y", "http://shop.example/api/z?a=b"} {
		r := send(t, "POST", url+"/v1/auth", "ignored", "X-Original-URI", target, "X-Forwarded-For", "192.0.2.1")
		if r.status != 429 {
			t.Errorf("X-Original-URI %s = %d, want 429", target, r.status)
		}
	}
	if r := send(t, "GET", url+"/v1/auth", "", "X-Forwarded-Uri", "/other", "X-Forwarded-For", "192.0.2.1"); r.status != 200 || len(r.header["Ratelimit"]) != 0 {
		t.Errorf("no rule applies: %d %v, want 200 without fields", r.status, r.header)
	}
}

// A client of Connect is told in its own JSON, where the proxy passes on what it is told.
func TestAuthDeniesCallsOfConnect(t *testing.T) {
	b := newBench(t, perClient(1))
	url := b.listen(t)
	for i, c := range []struct {
		target, kind string
		header       []string
		text         string // "": a problem
	}{
		{"/v1/auth", "", nil, ""}, // which passes
		{"/v1/auth", "application/json", []string{"Content-Type", "application/json", "Connect-Protocol-Version", "1", "X-Forwarded-Method", "POST"}, `{"code":"resource_exhausted","message":"1 per 1m are used up"}`},
		{"/v1/auth", "application/json", []string{"Content-Type", "application/proto", "Connect-Protocol-Version", "1", "X-Forwarded-Method", "POST"}, `{"code":"resource_exhausted","message":"1 per 1m are used up"}`},
		{"/v1/auth", "application/problem+json", []string{"Content-Type", "application/connect+proto", "Connect-Protocol-Version", "1", "X-Forwarded-Method", "POST"}, ""},
		{"/v1/auth", "application/problem+json", []string{"Content-Type", "application/json", "Connect-Protocol-Version", "1", "X-Forwarded-Method", "PUT"}, ""},
		{"/v1/auth?deny_status=403", "application/problem+json", []string{"Content-Type", "application/json", "Connect-Protocol-Version", "1", "X-Forwarded-Method", "POST"}, ""},
	} {
		r := send(t, "GET", url+c.target, "", append(c.header, "X-Forwarded-Uri", "/api/x", "X-Forwarded-For", "192.0.2.1")...)
		if i > 0 && (r.header.Get("Content-Type") != c.kind || r.header.Get("Retry-After") != "45" || c.text != "" && (r.status != 429 || r.text != c.text)) {
			t.Errorf("request %d: %d %v %s", i, r.status, r.header, r.text)
		}
	}
}

func TestAuthCostZeroIsAPeek(t *testing.T) {
	b := newBench(t, perClient(1))
	url := b.listen(t)
	for i, step := range []struct {
		target          string
		status, charged int
	}{{"?cost=0", 200, 0}, {"?cost=0", 200, 0}, {"?cost=1", 200, 1}, {"?cost=0", 429, 1}} {
		r := send(t, "GET", url+"/v1/auth"+step.target, "", "X-Forwarded-Uri", "/api/x", "X-Forwarded-For", "192.0.2.1")
		if r.status != step.status || b.limiter.Charged() != uint64(step.charged) {
			t.Errorf("step %d, %s = %d, %d charged; want %d, %d", i, step.target, r.status, b.limiter.Charged(), step.status, step.charged)
		}
	}
}

func TestAuthMistakes(t *testing.T) {
	b := newBench(t, perClient(1))
	url := b.listen(t)
	for _, c := range []struct {
		query, field, says string
	}{
		{"deny_status=200", "deny_status", "400 to 599"},
		{"deny_status=", "deny_status", "400 to 599"},
		{"deny_status=4%303", "deny_status", "400 to 599"},
		{"deny_status=403&deny_status=403", "deny_status", "stands twice"},
		{"deny_satus=403", `"deny_satus"`, "deny_status, cost and fail"},
		{"cost=-1", "cost", "is negative"},
		{"cost=9007199254740993", "cost", "above 2^53"},
		{"cost=", "cost", "not a whole number"},
		{"cost=1&&cost=2", "cost", "stands twice"},
		{"fail=maybe", "fail", "neither open nor closed"},
		{"fail=open&fail=open", "fail", "stands twice"},
	} {
		wantProblem(t, send(t, "GET", url+"/v1/auth?"+c.query, "", "X-Forwarded-Uri", "/api/x"), 400, c.field, c.says)
	}
	for _, h := range [][]string{
		{"X-Forwarded-Uri", "/api/x", "X-Original-Uri", "/harmless"},
		{"X-Original-Uri", "/api/x", "X-Original-Uri", "/harmless"},
		{"X-Forwarded-Method", "GET", "X-Original-Method", "POST"},
	} {
		r := send(t, "GET", url+"/v1/auth", "", h...)
		wantProblem(t, r, 400, http.CanonicalHeaderKey(h[2]), "differs from")
	}
	if r := send(t, "GET", url+"/v1/auth", "", "X-Forwarded-Uri", "/api/x", "X-Original-Uri", "/api/x"); r.status != 200 {
		t.Errorf("headers that agree = %d %s, want 200", r.status, r.text)
	}
	if got := b.limiter.Checks(); got != 1 {
		t.Errorf("the limiter was asked %d times, want 1", got)
	}
}

func TestAuthUntrustedPeer(t *testing.T) {
	b := newBench(t, perClient(1))
	var logged bytes.Buffer
	api, err := New(b.limiter, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil)), Metrics: NewMetrics(b.registryAnew()), Now: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	b.api = api
	url := b.listen(t)
	for range 3 {
		// Nobody is trusted: neither path nor address are taken, so no rule applies.
		if r := send(t, "GET", url+"/v1/auth", "", "X-Forwarded-Uri", "/api/x", "X-Forwarded-For", "192.0.2.1"); r.status != 200 {
			t.Errorf("auth = %d %s, want 200", r.status, r.text)
		}
	}
	if got := b.metric(t, "spillgate_http_forwarded_ignored_total"); got != 3 {
		t.Errorf("ignored = %v, want 3", got)
	}
	if got := strings.Count(logged.String(), "not in trusted_proxies"); got != 1 {
		t.Errorf("logged %d times, want once a minute:\n%s", got, logged.String())
	}
}

// A proxy that is believed and tells no path is told of, where a rule reads the path.
func TestProxiesThatTellNoPathAreTold(t *testing.T) {
	of := func(change func(*limit.RuleSpec)) limit.Document {
		doc := perClient(9)
		doc.Rules[0].Match.Path = nil
		change(&doc.Rules[0])
		return doc
	}
	key := of(func(r *limit.RuleSpec) { r.Key = append(r.Key, "path") })
	cost := of(func(r *limit.RuleSpec) { r.Cost.ByRoute = map[string]uint64{"/dear": 5} })
	free := of(func(*limit.RuleSpec) {})
	for name, c := range map[string]struct {
		rules  limit.Document
		peer   string
		header string
		want   int
	}{
		"none":                        {perClient(9), "127.0.0.1:9", "X-Uri", 2},
		"one in the key":              {key, "127.0.0.1:9", "X-Uri", 2},
		"one by which it costs":       {cost, "127.0.0.1:9", "X-Uri", 2},
		"none that is read":           {free, "127.0.0.1:9", "X-Uri", 0},
		"nginx's":                     {perClient(9), "127.0.0.1:9", "X-Original-Uri", 0},
		"Caddy's":                     {perClient(9), "127.0.0.1:9", "X-Forwarded-Uri", 0},
		"of whom nobody believes any": {perClient(9), "192.0.2.1:9", "X-Uri", 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.rules)
			var logged bytes.Buffer
			api, err := New(b.limiter, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil)), TrustedProxies: Loopback, Now: func() time.Time { return b.now }})
			if err != nil {
				t.Fatal(err)
			}
			for _, later := range []time.Duration{0, 0, 59 * time.Second, time.Second} {
				b.now = b.now.Add(later)
				r := httptest.NewRequest("GET", "/v1/auth", nil)
				r.RemoteAddr = c.peer
				r.Header[c.header] = []string{"/api/x"}
				api.ServeHTTP(httptest.NewRecorder(), r)
			}
			if got := strings.Count(logged.String(), "without their path"); got != c.want {
				t.Errorf("logged %d times, want %d, once a minute:\n%s", got, c.want, logged.String())
			}
		})
	}
}

// Requests without a client's address are limited as one client, and the operator is
// told so, once.
func TestClientsWithoutAnAddressAreTold(t *testing.T) {
	b := newBench(t, perClient(1))
	var logged bytes.Buffer
	api, err := New(b.limiter, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil)), Now: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(client string) int {
		r := httptest.NewRequest("GET", "/v1/auth", nil)
		r.RemoteAddr = "@"
		r.Header.Set("X-Forwarded-Uri", "/api/x")
		if client != "" {
			r.Header.Set("X-Forwarded-For", client)
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w.Code
	}
	if got := ask("192.0.2.1"); got != 200 || logged.Len() > 0 {
		t.Errorf("a client that the proxy names: %d, and logged %q; want 200 and nothing", got, logged.String())
	}
	for i, want := range []int{200, 429, 429} {
		if got := ask(""); got != want {
			t.Errorf("request %d of nobody who is named: %d, want %d", i, got, want)
		}
	}
	if got := strings.Count(logged.String(), "client_ip=unix"); got != 1 {
		t.Errorf("logged %d times, want once:\n%s", got, logged.String())
	}
}

func TestAuthShow(t *testing.T) {
	rates := func(limits ...uint64) (specs []limit.RateSpec) {
		for i, n := range limits {
			specs = append(specs, limit.RateSpec{Limit: n, Per: []time.Duration{time.Minute, time.Hour}[i], Algorithm: "fixed_window"})
		}
		return specs
	}
	doc := func(rules ...limit.RuleSpec) limit.Document {
		for i := range rules {
			rules[i].Group = rules[i].Name // all apply
		}
		return limit.Document{Namespace: "acme", Rules: rules}
	}
	show := func(s string) limit.OnLimitSpec { return limit.OnLimitSpec{ShowHeaders: s} }
	all := limit.RuleSpec{Name: "all", Rates: rates(10, 100), OnLimit: show("all")}
	for _, c := range []struct {
		name          string
		doc           limit.Document
		times, status int
		want          string // RateLimit
		policies      int    // violated
	}{
		{"tightest", doc(limit.RuleSpec{Name: "r", Rates: rates(10, 100)}), 1, 200, `"r.1m";r=9;t=45`, 0},
		{"all", doc(all), 1, 200, `"all.1m";r=9;t=45, "all.1h";r=99;t=3585`, 0},
		{"all, one denies", doc(all), 11, 429, `"all.1m";r=0;t=45, "all.1h";r=90;t=3585`, 1},
		{"none", doc(limit.RuleSpec{Name: "n", Rates: rates(1), OnLimit: show("none")}), 1, 200, ``, 0},
		{"none, denied", doc(limit.RuleSpec{Name: "n", Rates: rates(1), OnLimit: show("none")}), 2, 429, ``, 0},
		{"a hidden rule is tighter than all", doc(all, limit.RuleSpec{Name: "n", Rates: rates(2), OnLimit: show("none")}), 1, 200,
			`"all.1m";r=9;t=45, "all.1h";r=99;t=3585`, 0},
		{"a hidden rule is tighter", doc(limit.RuleSpec{Name: "r", Rates: rates(10)}, limit.RuleSpec{Name: "n", Rates: rates(2), OnLimit: show("none")}), 1, 200,
			`"r.1m";r=9;t=45`, 0},
		{"a hidden rule denies", doc(all, limit.RuleSpec{Name: "n", Rates: rates(1), OnLimit: show("none")}), 2, 429, ``, 0},
		{"a shadow rule would deny", doc(limit.RuleSpec{Name: "r", Rates: rates(10)}, limit.RuleSpec{Name: "s", Rates: rates(1), Mode: "shadow"}), 2, 200,
			`"r.1m";r=8;t=45`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.doc)
			url := b.listen(t)
			var r reply
			for range c.times {
				r = send(t, "GET", url+"/v1/auth", "")
			}
			violated, _ := r.body["violated-policies"].([]any)
			if r.status != c.status || r.header.Get("RateLimit") != c.want || len(violated) != c.policies {
				t.Errorf("auth = %d, RateLimit %q, %s; want %d, %q, %d policies", r.status, r.header.Get("RateLimit"), r.text, c.status, c.want, c.policies)
			}
			if c.status == 429 && r.header.Get("Retry-After") != "45" {
				t.Errorf("Retry-After = %q, want 45", r.header.Get("Retry-After"))
			}
		})
	}
}

func TestAuthRuleStatusAndResults(t *testing.T) {
	doc := limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{
		{Name: "free", Priority: 9, Match: limit.MatchSpec{Has: []string{"header.X-Free"}}, Allow: true},
		{Name: "soft", Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}, Margin: limit.MarginSpec{SoftPercent: 100},
			OnLimit: limit.OnLimitSpec{Status: 503}},
	}}
	b := newBench(t, doc)
	url := b.listen(t) + "/v1/auth?deny_status=401"
	for i, want := range []int{200, 200, 401} {
		if r := send(t, "GET", url, ""); r.status != want {
			t.Errorf("request %d = %d, want %d", i, r.status, want)
		} else if want == 401 && r.header.Get("X-RateLimit-Status") != "503" {
			t.Errorf("X-RateLimit-Status = %q, want the rule's 503", r.header.Get("X-RateLimit-Status"))
		}
	}
	if r := send(t, "GET", url, "", "X-Free", "1"); r.status != 200 || r.header.Get("RateLimit") != "" {
		t.Errorf("a rule that allows = %d %v, want 200 without fields", r.status, r.header)
	}
	for _, c := range [][3]string{{"soft", "allow", ""}, {"soft", "soft", ""}, {"soft", "deny", ""}, {"free", "allow", ""}} {
		if got := b.metric(t, "spillgate_decisions_total", "rule", c[0], "result", c[1]); got != 1 {
			t.Errorf("decisions of %s, %s = %v, want 1", c[0], c[1], got)
		}
	}
}

// A deny list has no quota: no fields, no Retry-After, and 403.
func TestDenyList(t *testing.T) {
	b := newBench(t, limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{
		{Name: "blocked", Group: "lists", Match: limit.MatchSpec{CIDR: []string{"10.6.0.0/16"}}, Deny: true},
		{Name: "all", Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}}},
	}})
	url := b.listen(t)
	r := send(t, "POST", url+"/v1/check", `{"attributes":{"client_ip":"::ffff:10.6.0.1"}}`, "Content-Type", "application/json")
	id, _ := r.body["decision_id"].(string)
	if want := `{"allowed":false,"decision_id":"` + id + `","status":403,"rule":"blocked","zone":"hard"}` + "\n"; r.text != want {
		t.Errorf("check:\n%swant\n%s", r.text, want)
	}
	if got := b.metric(t, "spillgate_decisions_total", "rule", "blocked", "result", "deny"); got != 1 {
		t.Errorf("denials of the list = %v, want 1", got)
	}

	b = newBench(t, limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{{Name: "blocked", Deny: true}}})
	r = send(t, "GET", b.listen(t)+"/v1/auth", "")
	want := `{"type":"about:blank","title":"Forbidden","status":403,"detail":"this request is not served"}` + "\n"
	if r.status != 403 || r.text != want || r.header.Get("Retry-After") != "" || r.header.Get("RateLimit") != "" {
		t.Errorf("auth = %d %v\n%swant 403 without fields\n%s", r.status, r.header, r.text, want)
	}
}

// TestCurl sends what a user types; a curl that is missing is a failure, as
// the README's commands are curl's.
func TestCurl(t *testing.T) {
	b := newBench(t, perClient(1))
	url := b.listen(t)
	curl := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("curl", append([]string{"-sS", "--max-time", "10"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("curl %v: %v\n%s(install it: apt-get install curl)", args, err, out)
		}
		return string(out)
	}
	got := curl("-H", "Content-Type: application/json", "-d", `{"attributes":{"client_ip":"192.0.2.9","path":"/api/x"}}`, url+"/v1/check")
	if !strings.Contains(got, `"allowed":true`) {
		t.Errorf("check = %s", got)
	}
	got = curl("-i", "-H", "X-Forwarded-For: 192.0.2.9", "-H", "X-Forwarded-Uri: /api/y", url+"/v1/auth")
	if !strings.HasPrefix(got, "HTTP/1.1 429 Too Many Requests\r\n") || !strings.Contains(got, "\r\nRetry-After: 45\r\n") {
		t.Errorf("auth = %s", got)
	}
}

// What each request may bring about is logged once a minute.
func TestSeldom(t *testing.T) {
	var last atomic.Int64
	for _, c := range []struct {
		after int64
		want  bool
	}{{0, true}, {1, false}, {59, false}, {60, true}, {119, false}, {120, true}} {
		if got := seldom(&last, time.Unix(1_000_000+c.after, 0)); got != c.want {
			t.Errorf("%d s later: %t, want %t", c.after, got, c.want)
		}
	}
}
