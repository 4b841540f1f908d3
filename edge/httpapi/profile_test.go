package httpapi

import (
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/spillgate/spillgate/edge/limit"
)

func TestEveryProfileIsWritten(t *testing.T) {
	if len(profiles) != len(limit.HeaderProfiles) {
		t.Errorf("%d profiles are written, limit.HeaderProfiles has %d", len(profiles), len(limit.HeaderProfiles))
	}
	for _, name := range limit.HeaderProfiles {
		if _, ok := profiles[name]; !ok {
			t.Errorf("profile %q is allowed in rules and not written", name)
		}
	}
}

func TestProfiles(t *testing.T) {
	for _, c := range []struct {
		profiles       []string
		allowed, after map[string]string
	}{
		{[]string{"draft-11"}, map[string]string{"Ratelimit": `"per-client.minute";r=0;t=45`, "Ratelimit-Policy": `"per-client.minute";q=1;w=60`},
			map[string]string{"Ratelimit": `"per-client.minute";r=0;t=45`, "Ratelimit-Policy": `"per-client.minute";q=1;w=60`}},
		{[]string{"x-ratelimit"}, map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1767225660"},
			map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Retry-After": "45", "X-Ratelimit-Reset": "1767225660"}},
		{[]string{"github"}, map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Used": "1", "X-Ratelimit-Reset": "1767225660"},
			map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Used": "1", "X-Ratelimit-Reset": "1767225660"}},
		{[]string{"ietf-06"}, map[string]string{"Ratelimit-Limit": "1", "Ratelimit-Remaining": "0", "Ratelimit-Reset": "45"},
			map[string]string{"Ratelimit-Limit": "1", "Ratelimit-Remaining": "0", "Ratelimit-Reset": "45"}},
		{[]string{"envoy"}, map[string]string{"X-Ratelimit-Limit": `1, 1;w=60;name="per-client.minute"`, "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "45"},
			map[string]string{"X-Ratelimit-Limit": `1, 1;w=60;name="per-client.minute"`, "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "45"}},
		{[]string{"none"}, nil, nil},
		{[]string{"x-ratelimit", "github"}, map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Used": "1", "X-Ratelimit-Reset": "1767225660"},
			map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Retry-After": "45", "X-Ratelimit-Used": "1", "X-Ratelimit-Reset": "1767225660"}},
	} {
		t.Run(strings.Join(c.profiles, "+"), func(t *testing.T) {
			b := newBench(t, perClient(1, c.profiles...))
			url := b.listen(t) + "/v1/auth"
			for i, want := range []map[string]string{c.allowed, c.after} {
				r := send(t, "GET", url, "", "X-Forwarded-Uri", "/api/x")
				if status := []int{200, 429}[i]; r.status != status {
					t.Errorf("request %d = %d, want %d", i, r.status, status)
				}
				if got := r.header.Get("Retry-After"); (got != "") != (i == 1) {
					t.Errorf("request %d: Retry-After = %q", i, got)
				}
				for name, v := range r.header {
					if strings.Contains(name, "Ratelimit") && (len(v) != 1 || want[name] != v[0]) {
						t.Errorf("request %d: %s = %q, want %q", i, name, v, want[name])
					}
				}
				for name := range want {
					if len(r.header[name]) == 0 {
						t.Errorf("request %d: no %s", i, name)
					}
				}
			}
		})
	}
}

// fieldsOf are the fields of one answer about a single rate.
func fieldsOf(tb testing.TB, spec limit.RateSpec, profile string, d limit.Decision, now time.Time) http.Header {
	tb.Helper()
	doc := perClient(1, profile)
	doc.Rules[0].Rates = []limit.RateSpec{spec}
	b := newBench(tb, doc)
	set := b.limiter.Rules()
	d.Rule = set.Rules()[0]
	d.Rate = d.Rule.Rates[0]
	d.Limit = d.Rate.Limit
	x := exchange{answer: answer{decision: d, now: now}}
	if !d.Allowed {
		x.answer.retry = b.api.retrySeconds(d.RetryAfter)
	}
	h := http.Header{}
	x.fields.write(b.api.viewOf(set), &x.answer)
	x.fields.set(h)
	return h
}

// TestDraft11IsStructured parses what we send with another's parser.
func TestDraft11IsStructured(t *testing.T) {
	for _, c := range []struct {
		name   string
		spec   limit.RateSpec
		d      limit.Decision
		q, w   int64 // w 0: absent
		r, sec int64
	}{
		{"sliding, admitted", limit.RateSpec{Limit: 600, Per: time.Minute}, limit.Decision{Allowed: true, Remaining: 599}, 600, 60, 599, 60},
		{"sliding, denied", limit.RateSpec{Limit: 600, Per: time.Minute}, limit.Decision{RetryAfter: 16400 * time.Millisecond}, 600, 60, 0, 17},
		{"a window of no whole seconds", limit.RateSpec{Limit: 9, Per: 1500 * time.Millisecond}, limit.Decision{Allowed: true, Remaining: 1}, 9, 0, 1, 2},
		{"a ban", limit.RateSpec{Limit: 0, Per: time.Hour}, limit.Decision{RetryAfter: 1}, 0, 3600, 0, 1},
		{"the largest limit", limit.RateSpec{Limit: 1 << 53, Per: time.Second}, limit.Decision{Allowed: true, Remaining: 1<<53 - 1}, maxStructuredInt, 1, maxStructuredInt, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := fieldsOf(t, c.spec, "draft-11", c.d, testStart)
			check := func(field string, want map[string]int64) {
				t.Helper()
				list, err := httpsfv.UnmarshalList(h[field])
				if err != nil || len(list) != 1 {
					t.Fatalf("%s %q: %d items, %v", field, h[field], len(list), err)
				}
				item := list[0].(httpsfv.Item)
				if name, ok := item.Value.(string); !ok || !strings.HasPrefix(name, "per-client.") {
					t.Errorf("%s: name is %#v, want a String", field, item.Value)
				}
				names := item.Params.Names()
				for name, v := range want {
					if v == 0 && name == "w" {
						if slices.Contains(names, "w") {
							t.Errorf("%s: has a w, want none", field)
						}
						continue
					}
					if got, _ := item.Params.Get(name); got != v {
						t.Errorf("%s: %s = %v, want %v", field, name, got, v)
					}
				}
			}
			check("Ratelimit-Policy", map[string]int64{"q": c.q, "w": c.w})
			check("Ratelimit", map[string]int64{"r": c.r, "t": c.sec})
		})
	}
}

func TestGithubResetIsNeverEarly(t *testing.T) {
	now := testStart.Add(300 * time.Millisecond)
	for _, wait := range []time.Duration{1, 700 * time.Millisecond, 701 * time.Millisecond, 5 * time.Second} {
		h := fieldsOf(t, limit.RateSpec{Limit: 1, Per: time.Minute}, "github", limit.Decision{RetryAfter: wait}, now)
		want := testStart.Unix() + int64(math.Ceil((300*time.Millisecond + wait).Seconds()))
		if got := h.Get("X-RateLimit-Reset"); got != strconv.FormatInt(want, 10) {
			t.Errorf("wait %v: reset %s, want %d", wait, got, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		wait         time.Duration
		jitter, rand float64
		want         uint64
	}{
		{0, 0, 0, 1},
		{1, 0, 0.99, 1},
		{time.Second, -1, 0.99, 1},
		{time.Second + 1, -1, 0.99, 2},
		{16400 * time.Millisecond, -1, 0.99, 17},
		{100 * time.Second, 0, 0, 100},
		{100 * time.Second, 0, 0.5, 105},
		{100 * time.Second, 0, 0.9999, 110},
		{100 * time.Second, 1, 0.5, 150},
		{600 * time.Second, 0, 0.9999, 660},
		{24 * time.Hour, 0, 0.5, 86430},
		{limit.MaxWindow, 0, 0.9999, uint64(limit.MaxWindow/time.Second) + 60},
	} {
		b := newBench(t, acme())
		api, err := New(b.limiter, Config{RetryJitter: c.jitter, Rand: func() float64 { return c.rand }})
		if err != nil {
			t.Fatal(err)
		}
		if got := api.retrySeconds(c.wait); got != c.want {
			t.Errorf("retrySeconds(%v), jitter %v, rand %v = %d, want %d", c.wait, c.jitter, c.rand, got, c.want)
		}
	}
}

func TestDecisionIDsSortByTime(t *testing.T) {
	last, seen := "", map[string]bool{}
	for i := range 1000 {
		id := string(appendID(nil, testStart.Add(time.Duration(i)*time.Millisecond), rand.Uint64(), rand.Uint64()))
		if len(id) != idLength || id <= last || seen[id] {
			t.Fatalf("id %q after %q", id, last)
		}
		for _, c := range id {
			if !strings.ContainsRune(crockford, c) {
				t.Fatalf("id %q has %q", id, c)
			}
		}
		last, seen[id] = id, true
	}
	if got := string(appendID(nil, time.UnixMilli(1469918176385), 1, 2))[:10]; got != "01ARYZ6S41" {
		t.Errorf("time part = %s, want 01ARYZ6S41 as the ULID specification has it", got)
	}
}

// Who waits for a slot is told a second, as somebody may release one, but no less than
// other limits take, nor than a penalty.
func TestWaitForSlots(t *testing.T) {
	slots, window := &limit.Rate{Lease: time.Minute}, &limit.Rate{}
	mild, hard := &limit.Rule{}, &limit.Rule{Penalty: limit.Penalty{For: time.Hour}}
	for _, tt := range []struct {
		d    limit.Decision
		want time.Duration
	}{
		{limit.Decision{Rule: mild, Rate: slots, RetryAfter: time.Minute}, time.Second},
		{limit.Decision{Rule: mild, Rate: slots, RetryAfter: 300 * time.Millisecond}, 300 * time.Millisecond},
		{limit.Decision{Rule: mild, Rate: slots, RetryAfter: time.Minute, Least: 30 * time.Second}, 30 * time.Second},
		{limit.Decision{Rule: hard, Rate: slots, RetryAfter: time.Minute}, time.Minute},
		{limit.Decision{Rule: mild, Rate: window, RetryAfter: time.Minute}, time.Minute},
	} {
		if got := waitOf(&tt.d); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.d, got, tt.want)
		}
	}
}

// Octokit waits where nothing is left, and gives up else.
func TestGithubLeavesNothingWhenDenied(t *testing.T) {
	for allowed, want := range map[bool]string{true: "2", false: "0"} {
		h := fieldsOf(t, limit.RateSpec{Limit: 5, Per: time.Minute}, "github", limit.Decision{Allowed: allowed, Remaining: 2, RetryAfter: time.Second}, testStart)
		if got := h.Get("X-RateLimit-Remaining"); got != want {
			t.Errorf("allowed %v: %s left, want %s", allowed, got, want)
		}
	}
}
