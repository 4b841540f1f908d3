package httpapi

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// both tests over HTTP, over the fake and over a node.
func both(t *testing.T, doc limit.Document, test func(t *testing.T, b *bench, url string)) {
	t.Run("fake", func(t *testing.T) {
		b := newBench(t, doc)
		test(t, b, b.listen(t))
	})
	t.Run("node", func(t *testing.T) {
		b := &bench{now: testStart.Add(15 * time.Second)}
		b.api = b.over(t, limitertest.Node(t, doc))
		test(t, b, b.listen(t))
	})
}

// What is reported counts, above the limit too; what is given back does not.
func TestReport(t *testing.T) {
	both(t, rules(limit.RuleSpec{Name: "tokens", Key: []string{"user"}, NearLimitPercent: 90, Rates: []limit.RateSpec{{Name: "hour", Limit: 100, Per: time.Hour}}}),
		func(t *testing.T, b *bench, url string) {
			for i, step := range []struct{ path, body, want string }{
				{"/v1/report", `{"attributes":{"user":"u"}}`, `{"recorded":true,"rule":"tokens","policy":"hour","limit":100,"remaining":99}`},
				{"/v1/report", `{"attributes":{"user":"u"},"cost":91}`, `{"recorded":true,"rule":"tokens","policy":"hour","limit":100,"remaining":8,"near_limit":true}`},
				{"/v1/report", `{"attributes":{"user":"u"},"cost":-1}`, `{"recorded":true,"rule":"tokens","policy":"hour","limit":100,"remaining":9,"near_limit":true}`},
				{"/v1/report", `{"attributes":{"user":"u"},"cost":50}`, `{"recorded":true,"rule":"tokens","policy":"hour","limit":100,"remaining":0,"near_limit":true}`},
				{"/v1/report", `{"attributes":{"user":"u"},"cost":-40}`, `{"recorded":true,"rule":"tokens","policy":"hour","limit":100,"remaining":0,"near_limit":true}`},
				{"/v1/report", `{"attributes":{"user":"u"},"cost":-9007199254740992}`, `{"recorded":true,"rule":"tokens","policy":"hour","limit":100,"remaining":100}`},
				{"/v1/report", `{"attributes":{"path":"/"},"cost":5}`, `{"recorded":false}`},
				{"/v1/report", `{"attributes":{"path":"/"},"cost":-5}`, `{"recorded":false}`},
			} {
				if r := send(t, "POST", url+step.path, step.body); r.status != 200 || r.text != step.want+"\n" {
					t.Errorf("%d: %s: %d %swant %s", i, step.body, r.status, r.text, step.want)
				}
			}
			for kind, want := range map[string]float64{"charge": 4, "give_back": 4} {
				if got := b.metric(t, "spillgate_reports_total", "namespace", "acme", "kind", kind); got != want {
					t.Errorf("reports of kind %s: %v, want %v", kind, got, want)
				}
			}
		})
}

// A report says that it was recorded where some rule counted it, or gave something back.
func TestReportSaysWhetherAnythingWasRecorded(t *testing.T) {
	hour := []limit.RateSpec{{Name: "hour", Limit: 100, Per: time.Hour}}
	keyed := func(name, key string) limit.RuleSpec {
		return limit.RuleSpec{Name: name, Group: name, Key: []string{key}, Rates: hour}
	}
	logins, free := keyed("logins", "login"), keyed("free", "guest")
	logins.CountWhen = "response.status == 401"
	free.Cost.ByRoute = map[string]uint64{"/free": 0}
	both(t, rules(keyed("tokens", "user"), logins, free), func(t *testing.T, b *bench, url string) {
		for i, step := range []struct {
			body     string
			recorded bool
			left     any
		}{
			{`{"attributes":{"user":"u"},"cost":-5}`, false, 100.0}, // there is nothing to give back
			{`{"attributes":{"user":"u"},"cost":8}`, true, 92.0},
			{`{"attributes":{"user":"u"},"cost":-5}`, true, 97.0},
			{`{"attributes":{"user":"u"},"cost":-5,"decision_id":""}`, true, 100.0}, // of the 3 that are left
			{`{"attributes":{"user":"u"},"cost":-5}`, false, 100.0},
			{`{"attributes":{"user":"u","response.status":"401"},"answered":true}`, false, 100.0}, // it counts all
			{`{"attributes":{"login":"l","response.status":"200"},"answered":true}`, false, 100.0},
			{`{"attributes":{"login":"l","response.status":"-1"},"answered":true}`, false, 100.0},
			{`{"attributes":{"login":"l","response.code":"OK"},"answered":true}`, false, 100.0}, // no status is told
			{`{"attributes":{"login":"l","response.status":"401"},"answered":true}`, true, 99.0},
			{`{"attributes":{"guest":"g","path":"/free"}}`, false, 100.0},
			{`{"attributes":{"guest":"g","path":"/paid"}}`, true, 99.0},
			{`{"attributes":{"user":"v","guest":"g","path":"/free"}}`, true, 99.0}, // by one of the two
			{`{"attributes":{"path":"/"},"cost":5}`, false, nil},
		} {
			r := send(t, "POST", url+"/v1/report", step.body)
			if r.status != 200 || r.body["recorded"] != step.recorded || r.body["remaining"] != step.left {
				t.Errorf("%d: %s: %d %s, want recorded %v, and %v left", i, step.body, r.status, r.text, step.recorded, step.left)
			}
		}
	})
}

// A check takes a slot, a report of -1 gives it back, and a lease that of a
// holder that never comes back.
func TestConcurrencyOverHTTP(t *testing.T) {
	slots := limit.RuleSpec{Name: "slots", Key: []string{"user"}, Rates: []limit.RateSpec{slotsOf(2, 30*time.Second)}}
	both(t, rules(slots), func(t *testing.T, b *bench, url string) {
		const body = `{"attributes":{"user":"u"}`
		acquire := func(want bool) {
			t.Helper()
			if r := send(t, "POST", url+"/v1/check", body+"}"); r.body["allowed"] != want {
				t.Fatalf("check: %s, want allowed %v", r.text, want)
			} else if !want && r.body["retry_after_ms"] != 1000.0 {
				t.Fatalf("check: %s, want to be told to come back in a second, not when a lease ends", r.text)
			}
		}
		acquire(true)
		acquire(true)
		acquire(false)
		if r := send(t, "POST", url+"/v1/report", body+`,"cost":-1}`); r.body["remaining"] != 1.0 {
			t.Fatalf("release: %s, want one left", r.text)
		}
		acquire(true)
		acquire(false)
		b.now = b.now.Add(31 * time.Second)
		acquire(true)
		acquire(true)
		acquire(false)
	})
}

// A report that names the check which it is about proves that this edge admitted it: once,
// and not of what was denied or admitted elsewhere.
func TestReportsKnowTheirDecisions(t *testing.T) {
	strict := acme()
	strict.Rules[0].Rates[0].Consistency, strict.Rules[0].Rates[0].Limit = "strict", 5
	b := newBench(t, strict)
	other := newBench(t, strict)
	url, elsewhere := b.listen(t), other.listen(t)
	const body = `{"attributes":{"user":"u"}`
	answered := func(url, text string) string {
		id, _ := send(t, "POST", url+"/v1/check", text).body["decision_id"].(string)
		return id
	}
	idOf := func(url string) string { return answered(url, body+`}`) }
	ours := idOf(url)
	for _, c := range []struct {
		name, id string
		want     bool
	}{
		{"none", "", false},
		{"ours", ours, true},
		{"ours again", ours, false},
		{"ours in lower case", strings.ToLower(idOf(url)), true},
		{"another edge's", idOf(elsewhere), false},
		{"that of a peek", answered(url, body+`,"peek":true}`), false},
		{"that of another user", answered(url, `{"attributes":{"user":"v"}}`), false},
		{"that of another cost", answered(url, body+`,"cost":2}`), false},
		{"that of one that was denied", answered(url, body+`,"cost":5}`), false},
	} {
		text := body + `,"cost":-1`
		if c.id != "" {
			text += `,"decision_id":"` + c.id + `"`
		}
		if r := send(t, "POST", url+"/v1/report", text+"}"); r.status != 200 || b.limiter.Ours != c.want {
			t.Errorf("%s: %s, taken for ours: %t, want %t", c.name, r.text, b.limiter.Ours, c.want)
		}
	}
	ran := b.limiter.Boot(testStart) + 1234567*time.Nanosecond // when it is spent
	counts := func(b *bench, id string, rules []*limit.Rule, boot time.Duration, clock time.Time) bool {
		t.Helper()
		spent := b.api.ids.spentAt(id, 7, rules, boot, clock)
		if spent != 0 && spent != ran.Truncate(time.Microsecond) && boot-spent > time.Minute {
			t.Errorf("spent after %v, taken to be after %v", ran, spent)
		}
		return spent != 0
	}
	// Whatever slices keep for longer, what has left its window is free already.
	for _, algorithm := range []string{"", "sliding_window", "sliding_log"} {
		late := acme()
		late.Rules[0].Rates[0].Consistency, late.Rules[0].Rates[0].Algorithm = "strict", algorithm
		b := newBench(t, late)
		rules := b.limiter.Rules().Rules()
		window := rules[0].Rates[0].Window
		for _, age := range []time.Duration{window - time.Millisecond, window} {
			id := string(b.api.ids.append(nil, ran, testStart, 7))
			if got, want := counts(b, id, rules, ran+age, testStart.Add(age)), age < window; got != want {
				t.Errorf("%q: given back after %v of %v: taken for ours: %t", algorithm, age, window, got)
			}
			id = string(b.api.ids.append(nil, ran, testStart, 7))
			if got, want := counts(b, id, rules, ran+age, testStart.Add(age-30*time.Second)), age < window; got != want {
				t.Errorf("%q: given back after %v of %v, the clock set back meanwhile: taken for ours: %t", algorithm, age, window, got)
			}
		}
	}
	// Those that were given back are kept for as long as they count, and no longer.
	rules := b.limiter.Rules().Rules()
	id := func(at time.Duration) string {
		return string(b.api.ids.append(nil, at, testStart.Add(at-ran), 7))
	}
	used := id(ran)
	for i, want := range []bool{true, false} {
		if got := counts(b, used, rules, ran, testStart); got != want {
			t.Errorf("given back for the %d. time: %t", i+1, got)
		}
	}
	for len(b.api.ids.spent.until) < mostSpent {
		counts(b, id(ran), rules, ran, testStart)
	}
	if counts(b, id(ran), rules, ran, testStart) || len(b.api.ids.spent.until) != mostSpent || counts(b, used, rules, ran, testStart) {
		t.Errorf("%d ids remembered, that all count; another one is taken all the same", len(b.api.ids.spent.until))
	}
	later := ran + 5*b.limiter.Rules().Rules()[0].Rates[0].Window
	if !counts(b, id(later), rules, later, testStart.Add(later-ran)) || len(b.api.ids.spent.until) != mostSpent {
		t.Errorf("%d ids remembered, none of which counts; another one is not taken", len(b.api.ids.spent.until))
	}
	if counts(b, id(ran), rules, later, testStart.Add(later-ran)) {
		t.Error("an id whose charge has left the window is taken to free a right")
	}
}

// A slot is released once for each decision, however often that is reported.
func TestSlotsAreReleasedOnceForADecision(t *testing.T) {
	slots := func(most uint64) limit.RuleSpec {
		return limit.RuleSpec{Name: "slots", Key: []string{"user"}, Rates: []limit.RateSpec{{Algorithm: "concurrency", Limit: most, Lease: time.Minute}}}
	}
	both(t, rules(slots(4)), func(t *testing.T, b *bench, url string) {
		acquire := func(user string, want bool) (id string) {
			t.Helper()
			r := send(t, "POST", url+"/v1/check", `{"attributes":{"user":"`+user+`"}}`)
			if r.body["allowed"] != want {
				t.Fatalf("a slot: %s, want allowed %t", r.text, want)
			}
			id, _ = r.body["decision_id"].(string)
			return id
		}
		release := func(user, id string, recorded bool, left float64) {
			t.Helper()
			text := `{"attributes":{"user":"` + user + `"},"cost":-1`
			if id != "" {
				text += `,"decision_id":"` + id + `"`
			}
			if r := send(t, "POST", url+"/v1/report", text+"}"); r.body["recorded"] != recorded || r.body["remaining"] != left {
				t.Errorf("released for %q: %s, want recorded %t with %v left", id, r.text, recorded, left)
			}
		}
		first, second := acquire("u", true), acquire("u", true)
		acquire("u", true)
		acquire("u", true)
		acquire("u", false)
		release("u", first, true, 1)
		release("u", first, false, 1)
		release("u", strings.ToLower(first), false, 1)
		release("v", second, false, 4) // nothing is counted of him
		release("u", second, true, 2)
		release("u", second, false, 2)
		release("u", "", true, 3) // who names no decision is believed
		release("u", "", true, 4)
	})
	// Beside another limit a negative cost gives back to that, in parts if it is wanted.
	window := limit.RuleSpec{Name: "window", Group: "window", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 10, Per: time.Hour}}}
	both(t, rules(slots(20), window), func(t *testing.T, b *bench, url string) {
		id, _ := send(t, "POST", url+"/v1/check", `{"attributes":{"user":"u"},"cost":5}`).body["decision_id"].(string)
		for i := range 3 {
			r := send(t, "POST", url+"/v1/report", `{"attributes":{"user":"u"},"cost":-1,"decision_id":"`+id+`"}`)
			if r.body["recorded"] != true || r.body["remaining"] != float64(6+i) {
				t.Errorf("given back in parts: %s, want %d left", r.text, 6+i)
			}
		}
	})
	trial := window
	trial.Mode = "shadow"
	if !takesSlot(newBench(t, rules(slots(4), trial)).limiter.Rules().Rules()) || takesSlot(newBench(t, rules(slots(4), window)).limiter.Rules().Rules()) {
		t.Error("a trial beside slots makes cost of them, or a limit does not")
	}
	// So many ids are remembered, and who comes beyond them is released all the same.
	b := newBench(t, rules(slots(4)))
	all, now := b.limiter.Rules().Rules(), testStart
	for range mostSpent + 10 {
		if !b.api.ids.releases(string(appendID(nil, now, rand.Uint64(), rand.Uint64())), all, now) {
			t.Fatal("an id that is new is taken for one that was reported")
		}
	}
	if got := len(b.api.ids.released.until); got != mostSpent {
		t.Errorf("%d ids remembered, want %d", got, mostSpent)
	}
	now = now.Add(2 * time.Minute) // all of those leases are over
	id := string(appendID(nil, now, rand.Uint64(), rand.Uint64()))
	if !b.api.ids.releases(id, all, now) || b.api.ids.releases(id, all, now) || len(b.api.ids.released.until) != mostSpent {
		t.Errorf("%d ids remembered, and none of another that came when they could be forgotten", len(b.api.ids.released.until))
	}
}

// What a proxy's backend answered is reported after the fact.
func TestReportOfResponses(t *testing.T) {
	rule := limit.RuleSpec{Name: "logins", Key: []string{"user"}, CountWhen: `attr("response.status") == "401"`, Rates: []limit.RateSpec{{Limit: 2, Per: time.Hour}}}
	both(t, rules(rule), func(t *testing.T, b *bench, url string) {
		for i, step := range []struct {
			status string
			left   float64
		}{{"200", 2}, {"401", 1}, {"200", 1}, {"401", 0}} {
			if r := send(t, "POST", url+"/v1/check", `{"attributes":{"user":"u"}}`); r.body["allowed"] != true {
				t.Fatalf("login %d: %s", i, r.text)
			}
			r := send(t, "POST", url+"/v1/report", `{"attributes":{"user":"u","response.status":"`+step.status+`"},"answered":true}`)
			if r.body["recorded"] != (step.status == "401") || r.body["remaining"] != step.left {
				t.Errorf("after %s: %s, want %v left, and recorded only what counts", step.status, r.text, step.left)
			}
		}
		if r := send(t, "POST", url+"/v1/check", `{"attributes":{"user":"u"}}`); r.body["allowed"] != false {
			t.Errorf("after two failures: %s", r.text)
		}
		if got := b.metric(t, "spillgate_reports_total", "namespace", "acme", "kind", "answered"); got != 4 {
			t.Errorf("%v reports of answers, want 4", got)
		}
	})
}

func TestReportMistakes(t *testing.T) {
	b := newBench(t, acme())
	url := b.listen(t) + "/v1/report"
	cases := []struct {
		name, body string
		status     int
		field      string
		says       string
	}{
		{"empty", ``, 400, "body", "is empty"},
		{"second value", `{"cost":1}{}`, 400, "body", "the end of the body"},
		{"peek", `{"peek":true}`, 400, `"peek"`, "is not a field of a report"},
		{"cost 0", `{"cost":0}`, 400, "cost", "of 0 records nothing"},
		{"cost -0", `{"cost":-0}`, 400, "cost", "of 0 records nothing"},
		{"fraction", `{"cost":-1.5}`, 400, "cost", "is not a whole number"},
		{"cost too high", `{"cost":-9007199254740993}`, 400, "cost", "is above 2^53"},
		{"cost a string", `{"cost":"1"}`, 400, "cost", "1 to 2^53, or its negative to give back"},
		{"answered a string", `{"answered":"yes"}`, 400, "answered", "is a string"},
		{"answered by nothing", `{"attributes":{"user":"u1"},"answered":true}`, 400, "attributes", "say nothing of the response"},
		{"answered and given back", `{"attributes":{"response.status":"401"},"answered":true,"cost":-1}`, 400, "cost", "gives back"},
		{"answered by what is absent", `{"attributes":{"user":"u1","response.status":""},"answered":true}`, 400, "attributes", "say nothing of the response"},
		{"status in words", `{"attributes":{"user":"u1","response.status":"abc"},"answered":true}`, 400, "attributes.response.status", `"abc" is not a whole number (send its number, such as "401"`},
		{"status with a fraction", `{"attributes":{"user":"u1","response.status":"401.5"},"answered":true}`, 400, "attributes.response.status", "is not a whole number"},
		{"id in words", `{"attributes":{"user":"u1"},"cost":-100,"decision_id":"zzz"}`, 400, "decision_id", `"zzz" is no id of a decision (send that of the reply to the check`},
		{"id of another alphabet", `{"attributes":{"user":"u1"},"decision_id":"01KDVS3R00ABCDEFGHIJKLMNOP"}`, 400, "decision_id", "is no id of a decision"},
		{"id a number", `{"decision_id":7}`, 400, "decision_id", "is a number"},
		{"header in another case", `{"attributes":{"header.X-User-Id":"a","header.x-user-id":"b"}}`, 400, "attributes.header.x-user-id", "is the same as"},
		{"unknown namespace", `{"namespace":"acmee"}`, 404, "namespace", `no rules for "acmee"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { wantProblem(t, send(t, "POST", url, c.body), c.status, c.field, c.says) })
	}
	if r := send(t, "GET", url, ""); r.status != 405 {
		t.Errorf("GET: %d", r.status)
	}
	if got, want := b.metric(t, "spillgate_reports_total", "kind", "error"), float64(len(cases)); got != want {
		t.Errorf("%v reports that failed, want %v", got, want)
	}
	b.limiter.DropRules()
	if r := send(t, "POST", url, `{}`); r.status != 503 {
		t.Errorf("without rules: %d %s", r.status, r.text)
	}
	if b.limiter.Charged() != 0 {
		t.Errorf("%d charged by reports with mistakes", b.limiter.Charged())
	}
}

// Each algorithm's denial, and its fields, in words and numbers that fit it.
func TestWordsOfDenials(t *testing.T) {
	flow := limit.Flow{Units: 5, Per: time.Second}
	for _, c := range []struct {
		rule           limit.RuleSpec
		takes          int
		detail, policy string
		quota          string
	}{
		{perAddress("r", limit.RateSpec{Name: "x", Limit: 2, Per: 2 * time.Second}), 2, "2 per 2s are used up", `;q=2;w=2`, `;r=0;t=3`},
		{perAddress("r", limit.RateSpec{Name: "x", Algorithm: "token_bucket", Capacity: 10, Refill: flow}), 10,
			"a bucket of 10, refilled by 5 per 1s, is empty", `;q=10;w=2`, `;r=0;t=1`},
		{perAddress("r", limit.RateSpec{Name: "x", Algorithm: "token_bucket", Capacity: 10, Initial: 15, Refill: flow}), 15,
			"a bucket of 10, refilled by 5 per 1s, is empty", `;q=15;w=2`, `;r=0;t=1`},
		{perAddress("r", limit.RateSpec{Name: "x", Algorithm: "leaky_bucket", Capacity: 3, Outflow: limit.Flow{Units: 1, Per: 400 * time.Millisecond}}), 3,
			"a bucket of 3, drained by 1 per 400ms, is full", `;q=3`, `;r=0;t=1`},
		{perAddress("r", limit.RateSpec{Name: "x", Algorithm: "leaky_bucket", Capacity: 4, Outflow: limit.Flow{Units: 1, Per: time.Hour}, Queue: true}), 1,
			"", `;q=4;w=14400`, `;r=3;t=14400`},
		{perAddress("r", slotsOf(2, 30*time.Second)), 2, "2 at a time are under way", `;q=2;qu="concurrent-requests"`, `;r=0`},
		{limit.RuleSpec{Name: "r", Key: []string{"client_ip"}, MinGap: 200 * time.Millisecond}, 1, "requests are 200ms apart at the least", `;q=1`, `;r=0;t=1`},
	} {
		c.rule.OnLimit.Headers = []string{"draft-11", "x-ratelimit", "ietf-06"}
		both(t, rules(c.rule), func(t *testing.T, b *bench, url string) {
			for i := range c.takes {
				r := send(t, "GET", url+"/v1/auth", "")
				if r.status != 200 {
					t.Fatalf("request %d: %d %s", i, r.status, r.text)
				}
				if got := r.header.Get("X-Ratelimit-Limit"); got != r.header.Get("Ratelimit-Limit") || got == "" || got == "0" {
					t.Errorf("X-RateLimit-Limit %q, RateLimit-Limit %q", got, r.header.Get("Ratelimit-Limit"))
				}
			}
			r := send(t, "GET", url+"/v1/auth?cost=0", "")
			if c.detail != "" {
				r = send(t, "GET", url+"/v1/auth", "")
				if r.status != 429 || r.body["detail"] != c.detail || r.header.Get("Retry-After") < "1" || r.header.Get("X-Ratelimit-Retry-After") < "1" {
					t.Errorf("denied with %d %s%v, want %q", r.status, r.text, r.header, c.detail)
				}
			}
			name := `"r.` + b.api.limiter.Rules().Rules()[0].Rates[0].Name + `"`
			if got := r.header.Get("Ratelimit-Policy"); got != name+c.policy {
				t.Errorf("RateLimit-Policy: %s, want %s", got, name+c.policy)
			}
			if got := r.header.Get("Ratelimit"); got != name+c.quota {
				t.Errorf("RateLimit: %s, want %s", got, name+c.quota)
			}
		})
	}
}
