package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

func TestCheck(t *testing.T) {
	b := newBench(t, acme())
	url := b.listen(t) + "/v1/check"
	const body = `{"namespace":"acme","attributes":{"user":"u1","path":"/x","unread":"is accepted"}}`
	for left := 2; left >= 0; left-- {
		r := send(t, "POST", url, body)
		if r.status != 200 || r.body["allowed"] != true || r.body["remaining"] != float64(left) || r.body["zone"] != "normal" {
			t.Fatalf("check = %d %s, want 200, allowed with %d left", r.status, r.text, left)
		}
	}
	r := send(t, "POST", url, body)
	if r.status != 200 {
		t.Fatalf("denied check has status %d, want 200: clients must not retry the limiter", r.status)
	}
	id, _ := r.body["decision_id"].(string)
	want := `{"allowed":false,"decision_id":"` + id + `","status":429,"rule":"api-per-user","policy":"minute","limit":3,"remaining":0,` +
		`"retry_after_ms":45000,"zone":"hard","basis":{"local":3,"merged":0,"age_ms":-1,"regions":1},"headers":{` +
		`"Retry-After":"45","RateLimit-Policy":"\"api-per-user.minute\";q=3;w=60","RateLimit":"\"api-per-user.minute\";r=0;t=45"}}` + "\n"
	if len(id) != idLength || r.text != want {
		t.Errorf("denied check:\n%swant\n%s", r.text, want)
	}
	if got := r.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type = %q", got)
	}
	if r := send(t, "POST", url, `{"attributes":{"user":"u2"}}`, "Content-Type", "application/json; charset=utf-8"); r.body["allowed"] != true {
		t.Errorf("another user without namespace = %s, want allowed", r.text)
	}
	for _, c := range []struct {
		result string
		want   float64
	}{{"allow", 4}, {"deny", 1}} {
		if got := b.metric(t, "spillgate_decisions_total", "namespace", "acme", "rule", "api-per-user", "result", c.result); got != c.want {
			t.Errorf("decisions %s = %v, want %v", c.result, got, c.want)
		}
	}
	if got := b.metric(t, "spillgate_decision_cost_total", "namespace", "acme", "rule", "api-per-user"); got != 4 {
		t.Errorf("cost = %v, want 4", got)
	}
	if got := b.metric(t, "spillgate_decision_duration_seconds", "transport", "http"); got != 5 {
		t.Errorf("durations = %v, want 5", got)
	}
}

// heard is a limiter that has heard of others.
type heard struct {
	*limitertest.Limiter
	basis limit.Basis
	bound limit.Bound
}

func (h heard) CheckOrWait(now time.Time, req *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	d := h.Limiter.Check(now, req)
	d.Basis = h.basis
	if req.Bounds {
		req.Bound = h.bound
	}
	return d, nil
}

func TestCheckTellsItsBasis(t *testing.T) {
	for age, want := range map[time.Duration]string{
		-1: `"age_ms":-1`, 0: `"age_ms":0`, 999 * time.Microsecond: `"age_ms":0`, 1500 * time.Millisecond: `"age_ms":1500`,
	} {
		b := newBench(t, acme())
		b.api = b.over(t, heard{b.limiter, limit.Basis{Local: 7, Merged: 11, Age: age, Regions: 3}, limit.Bound{}})
		r := send(t, "POST", b.listen(t)+"/v1/check", `{"attributes":{"user":"u1"}}`)
		if want := `"basis":{"local":7,"merged":11,` + want + `,"regions":3}`; !strings.Contains(r.text, want) {
			t.Errorf("an age of %v: %s, want %s", age, r.text, want)
		}
	}
}

// Nothing is told of the bounds while they are not known; none is another thing.
func TestCheckTellsHowFarTheLimitMayBeExceeded(t *testing.T) {
	for want, bound := range map[string]limit.Bound{
		`"regions":3}`: {},
		`"regions":3,"error_bound":0,"error_bound_surge":0}`:    {Known: true},
		`"regions":3,"error_bound":12,"error_bound_surge":340}`: {Now: 12, Surge: 340, Known: true},
	} {
		b := newBench(t, acme())
		b.api = b.over(t, heard{b.limiter, limit.Basis{Regions: 3}, bound})
		for path, body := range map[string]string{"/v1/check": `{"attributes":{"user":"u1"}}`, "/v1/check/batch": `{"checks":[{"attributes":{"user":"u1"}}]}`} {
			if r := send(t, "POST", b.listen(t)+path, body); !strings.Contains(r.text, want) {
				t.Errorf("%s of %+v: %s, want %s", path, bound, r.text, want)
			}
		}
	}
}

func TestCheckWithoutRule(t *testing.T) {
	b := newBench(t, acme())
	r := send(t, "POST", b.listen(t)+"/v1/check", `{"attributes":{"path":"/nobody"}}`)
	if len(r.body) != 2 || r.body["allowed"] != true || r.body["decision_id"] == nil {
		t.Errorf("check = %s, want allowed and an id only", r.text)
	}
	if got := b.metric(t, "spillgate_decisions_total", "namespace", "acme", "result", "none"); got != 1 {
		t.Errorf("decisions without a rule = %v, want 1", got)
	}
}

// A caller passes on what a client wrote, who could miss a rule by it, or have a counter of
// his own: it is read as /v1/auth does.
func TestCheckReadsPathsAsOriginsDo(t *testing.T) {
	url := newBench(t, perClient(1000)).listen(t) + "/v1/check"
	for i, path := range []string{"/api/a", "//api/a", "/x/../api/a", "/%61pi/a", "/api/./a?b=c", "http://host/api/a"} {
		r := send(t, "POST", url, fmt.Sprintf(`{"attributes":{"client_ip":"192.0.2.1","path":%q}}`, path))
		if r.body["rule"] != "per-client" || r.body["remaining"] != float64(999-i) {
			t.Errorf("%s: %s, want the rule of /api/** and its one counter", path, r.text)
		}
	}
	if r := send(t, "POST", url, `{"attributes":{"client_ip":"192.0.2.1","path":"/other/../x"}}`); r.body["rule"] != nil {
		t.Errorf("/other/../x: %s, want no rule", r.text)
	}
}

// Some clients write a method in lower case, and some programs take it so: it counts as what
// it is there.
func TestCheckReadsMethodsAsOriginsDo(t *testing.T) {
	url := newBench(t, limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{{
		Name: "posts", Key: []string{"user"}, Match: limit.MatchSpec{Methods: []string{"POST"}}, Rates: []limit.RateSpec{{Limit: 1000, Per: time.Hour}},
	}}}).listen(t) + "/v1/check"
	for i, method := range []string{"POST", "post", "Post"} {
		r := send(t, "POST", url, fmt.Sprintf(`{"attributes":{"user":"u","method":%q}}`, method))
		if r.body["rule"] != "posts" || r.body["remaining"] != float64(999-i) {
			t.Errorf("%s: %s, want the rule of POST and its one counter", method, r.text)
		}
	}
}

func TestCheckCostAndPeek(t *testing.T) {
	b := newBench(t, acme())
	url := b.listen(t) + "/v1/check"
	steps := []struct {
		name, body string
		allowed    bool
		charged    uint64
	}{
		{"two at once", `{"attributes":{"user":"u"},"cost":2}`, true, 2},
		{"two more are too many", `{"attributes":{"user":"u"},"cost":2}`, false, 2},
		{"a peek", `{"attributes":{"user":"u"},"peek":true}`, true, 2},
		{"cost 0 is a peek", `{"attributes":{"user":"u"},"cost":0}`, true, 2},
		{"cost 0 with peek false is a peek", `{"cost":0,"attributes":{"user":"u"},"peek":false}`, true, 2},
		{"a peek at two", `{"attributes":{"user":"u"},"cost":2,"peek":true}`, false, 2},
		{"the last one", `{"attributes":{"user":"u"},"peek":false}`, true, 3},
	}
	for _, s := range steps {
		r := send(t, "POST", url, s.body)
		if r.body["allowed"] != s.allowed || b.limiter.Charged() != s.charged {
			t.Errorf("%s: %s, charged %d; want allowed %v, charged %d", s.name, r.text, b.limiter.Charged(), s.allowed, s.charged)
		}
	}
}

func TestCheckMistakes(t *testing.T) {
	many := strings.Builder{}
	for i := range maxAttributes + 1 {
		fmt.Fprintf(&many, `"a%d":"",`, i)
	}
	cases := []struct {
		name, body string
		status     int
		field      string
		says       string
	}{
		{"empty", ``, 400, "body", "is empty"},
		{"only spaces", " \n", 400, "body", "is empty"},
		{"not JSON", `hello`, 400, "body", `"h" at byte 0`},
		{"an array", `[]`, 400, "check", "is an array"},
		{"null", `null`, 400, "check", "is null"},
		{"cut short", `{"attributes":{"user":"u1"`, 400, "body", "ends at byte 26"},
		{"cut in a string", `{"attributes":{"user":"u1`, 400, "body", "ends at byte"},
		{"cut in a number", `{"cost":-`, 400, "body", "ends at byte"},
		{"trailing comma", `{"cost":1,}`, 400, "body", `"}" at byte 10`},
		{"second value", `{"cost":1}{}`, 400, "body", "the end of the body"},
		{"no colon", `{"cost" 1}`, 400, "body", `":"`},
		{"leading zero", `{"cost":01}`, 400, "body", `"," or "}"`},
		{"bad literal", `{"peek":tru}`, 400, "body", "a value"},
		{"control character", "{\"namespace\":\"a\tb\"}", 400, "body", "control characters"},
		{"bad escape", `{"namespace":"\x"}`, 400, "body", "an escape"},
		{"lone surrogate", `{"namespace":"\ud800"}`, 400, "body", "Unicode"},
		{"not UTF-8", "{\"attributes\":{\"user\":\"\xff\"}}", 400, "body", "is not UTF-8 at byte 23"},
		{"unknown field", `{"attribute":{}}`, 400, `"attribute"`, "namespace, attributes, cost and peek"},
		{"wrong case", `{"Cost":1}`, 400, `"Cost"`, "is not a field"},
		{"unknown nested", `{"x":[{"y":[1,2.5e3,true,null,"\u00e9"]}]}`, 400, `"x"`, "is not a field"},
		{"deep nesting", `{"x":` + strings.Repeat("[", 40000), 400, "body", "deeper than"},
		{"duplicate field", `{"cost":1,"cost":2}`, 400, "cost", "stands twice"},
		{"duplicate attribute", `{"attributes":{"user":"a","user":"b"}}`, 400, "attributes.user", "stands twice"},
		{"duplicate header in another case", `{"attributes":{"header.X-User-Id":"a","header.x-user-id":"b"}}`, 400, "attributes.header.x-user-id", `is the same as "header.X-User-Id"`},
		{"duplicate attribute, escaped", `{"attributes":{"user":"a","\u0075ser":"b"}}`, 400, "attributes.user", "stands twice"},
		{"too many attributes", `{"attributes":{` + many.String() + `"z":""}}`, 400, "attributes", "more than 64"},
		{"number as attribute", `{"attributes":{"user":7}}`, 400, "attributes.user", "is a number (attributes are strings"},
		{"null as attribute", `{"attributes":{"user":null}}`, 400, "attributes.user", "is null"},
		{"attributes a string", `{"attributes":"u1"}`, 400, "attributes", "is a string"},
		{"namespace a number", `{"namespace":1}`, 400, "namespace", "is a number"},
		{"cost a string", `{"cost":"1"}`, 400, "cost", "is a string"},
		{"negative cost", `{"cost":-3}`, 400, "cost", `"-3" is negative (send a whole number from 0 to 2^53)`},
		{"no address", `{"attributes":{"client_ip":"999.1.2.3"}}`, 400, "attributes.client_ip", `"999.1.2.3" is not an IP address (send the address alone, such as 192.0.2.1`},
		{"address and port", `{"attributes":{"client_ip":"192.0.2.1:80"}}`, 400, "attributes.client_ip", "is not an IP address"},
		{"fraction", `{"cost":1.5}`, 400, "cost", "is not a whole number"},
		{"exponent", `{"cost":1e3}`, 400, "cost", "is not a whole number"},
		{"cost too high", `{"cost":9007199254740993}`, 400, "cost", "is above 2^53"},
		{"cost beyond 64 bits", `{"cost":99999999999999999999999}`, 400, "cost", "is above 2^53"},
		{"peek a number", `{"peek":1}`, 400, "peek", "is a number"},
		{"unknown namespace", `{"namespace":"acmee"}`, 404, "namespace", `no rules for "acmee"`},
		{"too large", `{"attributes":{"user":"` + strings.Repeat("x", maxCheckBody) + `"}}`, 413, "body", "is larger than 64 KiB"},
	}
	b := newBench(t, acme())
	url := b.listen(t) + "/v1/check"
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { wantProblem(t, send(t, "POST", url, c.body), c.status, c.field, c.says) })
	}
	wantProblem(t, send(t, "POST", url, `{}`, "Content-Type", "application/x-www-form-urlencoded"), 415, "Content-Type", "send application/json")
	r := send(t, "PUT", url, `{}`)
	wantProblem(t, r, 405, "method", "use POST")
	if got := r.header.Get("Allow"); got != "POST" {
		t.Errorf("Allow = %q, want POST", got)
	}
	if b.limiter.Checks() != 0 {
		t.Errorf("the limiter was asked %d times by malformed calls, want 0", b.limiter.Checks())
	}
	if got, want := b.metric(t, "spillgate_decisions_total", "result", "error"), float64(len(cases)+1); got != want {
		t.Errorf("undecided calls = %v, want %v", got, want)
	}
}

// wantProblem checks a problem+json answer.
func wantProblem(tb testing.TB, r reply, status int, field, says string) {
	tb.Helper()
	detail, _ := r.body["detail"].(string)
	if r.status != status || r.body["status"] != float64(status) || r.body["field"] != field || !strings.Contains(detail, says) {
		tb.Errorf("answer = %d %s, want %d, field %q, saying %q", r.status, r.text, status, field, says)
	}
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		tb.Errorf("Content-Type = %q, want a problem", got)
	}
	if len(detail) > 400 {
		tb.Errorf("the message repeats too much of what was sent: %d bytes", len(detail))
	}
}

func TestCheckChunkedBodyTooLarge(t *testing.T) {
	b := newBench(t, acme())
	// A reader of unknown length is sent in chunks, without Content-Length.
	req, err := http.NewRequest("POST", b.listen(t)+"/v1/check", struct{ *strings.Reader }{strings.NewReader(strings.Repeat(" ", maxCheckBody+1))})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status = %d, want 413", resp.StatusCode)
	}
}

func TestNamespaceNeeded(t *testing.T) {
	other := acme()
	other.Namespace = "other"
	b := newBench(t, acme(), other)
	url := b.listen(t)
	wantProblem(t, send(t, "POST", url+"/v1/check", `{}`), 400, "namespace", "is missing, and the rules have several")
	wantProblem(t, send(t, "GET", url+"/v1/auth", ``), 400, "namespace", "is missing")
	wantProblem(t, send(t, "GET", url+"/v1/auth/nobody", ``), 404, "namespace", "there are no rules")
	if r := send(t, "GET", url+"/v1/auth/other", ``); r.status != 200 {
		t.Errorf("auth = %d %s, want 200", r.status, r.text)
	}
}

func TestBatch(t *testing.T) {
	b := newBench(t, acme())
	url := b.listen(t) + "/v1/check/batch"
	r := send(t, "POST", url, `{"checks":[{"attributes":{"user":"u1"},"cost":3},{"attributes":{"user":7},"x":1},
		{"attributes":{"user":"u1"}},{"namespace":"nobody"},"huh",{"attributes":{"user":"u2"}},{}]}`)
	if r.status != 200 {
		t.Fatalf("batch = %d %s", r.status, r.text)
	}
	results := r.body["results"].([]any)
	want := []string{"true", "attributes.user", "false", "namespace", "check", "true", "true"}
	if len(results) != len(want) {
		t.Fatalf("batch has %d results, want %d: %s", len(results), len(want), r.text)
	}
	for i, item := range results {
		m := item.(map[string]any)
		got := fmt.Sprint(m["allowed"])
		if e, ok := m["error"].(map[string]any); ok {
			got = e["field"].(string)
		}
		if got != want[i] {
			t.Errorf("result %d = %v, want %s", i, m, want[i])
		}
	}
	if got := b.metric(t, "spillgate_decisions_total", "result", "error"); got != 3 {
		t.Errorf("undecided calls = %v, want 3", got)
	}
	if r := send(t, "POST", url, `{"checks":[]}`); r.status != 200 || r.text != "{\"results\":[]}\n" {
		t.Errorf("empty batch = %d %s", r.status, r.text)
	}
}

func TestBatchRefused(t *testing.T) {
	b := newBench(t, acme())
	url := b.listen(t) + "/v1/check/batch"
	item := `{"attributes":{"user":"u1"}}`
	full := strings.Repeat(item+",", maxBatch-1) + item
	for _, c := range []struct {
		name, body  string
		status      int
		field, says string
	}{
		{"101", `{"checks":[` + full + "," + item + `]}`, 400, "checks", "more than 100"},
		{"broken at its end", `{"checks":[` + full + `}`, 400, "body", `"," or "]"`},
		{"no checks", `{}`, 400, "checks", "is missing"},
		{"checks an object", `{"checks":{}}`, 400, "checks", "is an object"},
		{"checks twice", `{"checks":[],"checks":[]}`, 400, "checks", "stands twice"},
		{"other field", `{"cheques":[]}`, 400, `"cheques"`, "is not a field of a batch"},
		{"a bare array", `[]`, 400, "body", `"{"`},
		{"too large", `{"checks":[` + strings.Repeat(" ", maxBatchBody) + `]}`, 413, "body", "is larger than 1024 KiB"},
	} {
		t.Run(c.name, func(t *testing.T) { wantProblem(t, send(t, "POST", url, c.body), c.status, c.field, c.says) })
	}
	if b.limiter.Checks() != 0 {
		t.Errorf("a refused batch asked the limiter %d times, want 0", b.limiter.Checks())
	}
	if r := send(t, "POST", url, `{"checks":[`+full+`]}`); r.status != 200 || len(r.body["results"].([]any)) != maxBatch {
		t.Errorf("batch of 100 = %d %.200s", r.status, r.text)
	}
}

func TestNotReady(t *testing.T) {
	b := newBench(t)
	url := b.listen(t)
	for _, r := range []reply{
		send(t, "POST", url+"/v1/check", `{}`),
		send(t, "POST", url+"/v1/check/batch", `{"checks":[]}`),
		send(t, "GET", url+"/v1/auth", ``),
		send(t, "GET", url+"/v1/auth?fail=closed", ``),
	} {
		if r.status != 503 || r.header.Get("Retry-After") != "1" || r.body["detail"] != "no rules are loaded yet" {
			t.Errorf("answer = %d %v %s, want 503 with Retry-After", r.status, r.header, r.text)
		}
	}
	if r := send(t, "GET", url+"/v1/auth?fail=open", ``); r.status != 200 || r.header.Get("X-Spillgate-Undecided") != "no-rules" {
		t.Errorf("fail=open = %d %v, want 200, and told as undecided", r.status, r.header)
	}
	b.limiter.SetRules(t, acme())
	if r := send(t, "POST", url+"/v1/check", `{}`); r.status != 200 {
		t.Errorf("after the rules came: %d %s", r.status, r.text)
	}
	// Rules that came without the namespace that is asked for are no fault of any client's.
	if r := send(t, "GET", url+"/v1/auth/gone?fail=open", ``); r.status != 200 || r.header.Get("X-Spillgate-Undecided") != "setup" {
		t.Errorf("fail=open without rules = %d %v, want 200, and told as undecided", r.status, r.header)
	}
	if r := send(t, "GET", url+"/v1/auth/gone", ``); r.status != 404 || r.header.Get("X-Spillgate-Undecided") != "" {
		t.Errorf("without rules = %d %v, want 404", r.status, r.header)
	}
}

// broken panics where it is asked.
type broken struct{ Limiter }

func (broken) CheckOrWait(time.Time, *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	panic("planted")
}

func TestPanic(t *testing.T) {
	b := newBench(t, acme())
	b.api = b.over(t, broken{b.limiter})
	url := b.listen(t)
	if r := send(t, "POST", url+"/v1/check", `{}`); r.status != 500 || strings.Contains(r.text, "planted") {
		t.Errorf("check = %d %s, want 500 without the panic's words", r.status, r.text)
	}
	if r := send(t, "GET", url+"/v1/auth", ``); r.status != 500 {
		t.Errorf("auth = %d, want 500", r.status)
	}
	if r := send(t, "GET", url+"/v1/auth?fail=open", ``); r.status != 200 || r.header.Get("X-Spillgate-Undecided") != "fault" {
		t.Errorf("auth, fail=open = %d %v, want 200, and told as undecided", r.status, r.header)
	}
	if got := b.metric(t, "spillgate_http_panics_total"); got != 3 {
		t.Errorf("panics = %v, want 3", got)
	}
}

func TestNothingElse(t *testing.T) {
	b := newBench(t, acme())
	url := b.listen(t)
	for _, path := range []string{"/", "/metrics", "/debug/pprof/", "/v1", "/v1/check/", "/v1/auth/acme/x", "/v1/authx", "//v1/check"} {
		wantProblem(t, send(t, "GET", url+path, ``), 404, "path", "nothing is served at")
	}
}

// undecidedOf has the limiter leave one user's requests undecided for a while.
type undecidedOf struct {
	Limiter
	user string
}

func (u undecidedOf) CheckOrWait(now time.Time, req *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	if req.Get("user") != u.user {
		return u.Limiter.CheckOrWait(now, req)
	}
	return limit.Decision{}, func(context.Context) limit.Decision {
		d, _ := u.Limiter.CheckOrWait(now, req)
		return d
	}
}

// In a batch each has its reply at its place, be it that some wait for their first rights
// (strict_wait).
func TestBatchWaitsForWhatIsUndecided(t *testing.T) {
	b := newBench(t, acme())
	b.api = b.over(t, undecidedOf{b.limiter, "late"})
	got := send(t, "POST", b.listen(t)+"/v1/check/batch", `{"checks":[{"attributes":{"user":"late"},"cost":3},{"attributes":{"user":"u"}},{"attributes":{"user":"late"},"cost":1}]}`)
	results, _ := got.body["results"].([]any)
	var left []any
	for _, r := range results {
		left = append(left, r.(map[string]any)["remaining"])
	}
	if got.status != 200 || len(left) != 3 {
		t.Fatalf("%d %v", got.status, got.body)
	}
	alone := newBench(t, acme())
	want := send(t, "POST", alone.listen(t)+"/v1/check/batch", `{"checks":[{"attributes":{"user":"late"},"cost":3},{"attributes":{"user":"u"}},{"attributes":{"user":"late"},"cost":1}]}`)
	for i, r := range want.body["results"].([]any) {
		if w := r.(map[string]any)["remaining"]; w == nil || left[i] != w {
			t.Errorf("check %d: %v are left, want %v, as without a wait", i, left[i], w)
		}
	}
}

// A header among the attributes of a check may be the word of who is limited, and names no cost: who
// asks names that itself.
func TestHeadersOfAttributesNameNoCost(t *testing.T) {
	doc := acme()
	doc.Rules[0].Cost = limit.CostSpec{FromHeader: "X-Tokens", Default: 2}
	doc.Rules[0].Rates[0].Limit = 100
	url := newBench(t, doc).listen(t)
	left := 100
	for _, c := range []struct {
		path, text string
		cost       int
	}{
		{"/v1/check", `{"attributes":{"user":"u","header.X-Tokens":"0"}}`, 2},
		{"/v1/check", `{"attributes":{"user":"u","header.X-Tokens":"30"},"cost":5}`, 5},
		{"/v1/check/batch", `{"checks":[{"attributes":{"user":"u","header.X-Tokens":"1"}}]}`, 2},
		{"/v1/report", `{"attributes":{"user":"u","header.X-Tokens":"9"},"cost":3}`, 3},
	} {
		left -= c.cost
		send(t, "POST", url+c.path, c.text)
		if r := send(t, "POST", url+"/v1/check", `{"attributes":{"user":"u"},"cost":1,"peek":true}`); r.body["remaining"] != float64(left) {
			t.Errorf("%s %s: %v are left, want %d", c.path, c.text, r.body["remaining"], left)
		}
	}
}
