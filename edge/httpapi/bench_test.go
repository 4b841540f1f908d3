package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// settled answers every request alike, so that what is measured is the
// surface alone.
type settled struct {
	Limiter
	decision limit.Decision
}

func (s *settled) CheckOrWait(time.Time, *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	return s.decision, nil
}

// sink is a response writer that keeps its header map, as net/http's does for
// one request, and counts nothing of its own.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

// settledAPI is an API whose every decision is the given one, by the rule of
// perClient.
func settledAPI(tb testing.TB, d limit.Decision) *API {
	tb.Helper()
	b := newBench(tb, perClient(600))
	rule := b.limiter.Rules().Rules()[0]
	d.Rule, d.Rate, d.Limit = rule, rule.Rates[0], 600
	api, err := New(&settled{b.limiter, d}, Config{TrustedProxies: Proxies{netip.MustParsePrefix("10.0.0.0/8")}, Metrics: NewMetrics(b.registryAnew())})
	if err != nil {
		tb.Fatal(err)
	}
	return api
}

var allowed = limit.Decision{Allowed: true, Zone: limit.ZoneNormal, Remaining: 559, Cost: 1, Basis: limit.Basis{Local: 41, Regions: 3}}

// TestAuthAllocatesOnlyItsHeaders goes round the pools, which drop some of what
// they are given under -race.
func TestAuthAllocatesOnlyItsHeaders(t *testing.T) {
	api := settledAPI(t, allowed)
	set := api.limiter.Rules()
	req := set.Only().NewRequest()
	defer req.Release()
	var x exchange
	h, r := http.Header{}, proxied("u1")
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := FillHTTP(req, r, api.cfg.TrustedProxies); err != nil {
			t.Fatal(err)
		}
		api.ask(t.Context(), &x, api.viewOf(set), req, api.cfg.Now())
		x.fields.set(h)
	}); n != 2 {
		t.Errorf("an allowed auth request allocates %v times, want 2: the fields' text and the slice of their values", n)
	}
	if h.Get("RateLimit") == "" {
		t.Errorf("no RateLimit in %v", h)
	}
}

func BenchmarkAuth(b *testing.B) {
	for name, d := range map[string]limit.Decision{"allowed": allowed, "denied": {Zone: limit.ZoneHard, RetryAfter: 17 * time.Second}} {
		b.Run(name, func(b *testing.B) {
			api, r := settledAPI(b, d), proxied("u1")
			w := &sink{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				api.ServeHTTP(w, r)
			}
		})
	}
}

const benchBody = `{"namespace":"acme","attributes":{"user":"u1","client_ip":"2001:db8::1","method":"GET","path":"/api/x"},"cost":1,"peek":false}`

func BenchmarkCheck(b *testing.B) {
	api := settledAPI(b, allowed)
	w := &sink{header: http.Header{}}
	body := strings.NewReader(benchBody)
	r, err := http.NewRequest("POST", "http://edge.example/v1/check", io.NopCloser(body))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(benchBody)
		api.ServeHTTP(w, r)
	}
}

func BenchmarkBatch100(b *testing.B) {
	api := settledAPI(b, allowed)
	text := `{"checks":[` + strings.Repeat(benchBody+",", maxBatch-1) + benchBody + `]}`
	w := &sink{header: http.Header{}}
	body := strings.NewReader(text)
	r, err := http.NewRequest("POST", "http://edge.example/v1/check/batch", io.NopCloser(body))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(text)
		api.ServeHTTP(w, r)
	}
}

// TestRuleLabelsAreBounded meets more rules than have a label.
func TestRuleLabelsAreBounded(t *testing.T) {
	doc := limit.Document{Namespace: "acme"}
	for i := range maxRuleLabels + 5 {
		name := fmt.Sprintf("r%d", i)
		doc.Rules = append(doc.Rules, limit.RuleSpec{
			Name: name, Match: limit.MatchSpec{Path: []string{"/" + name}},
			Rates: []limit.RateSpec{{Limit: 9, Per: time.Minute}},
		})
	}
	b := newBench(t, doc)
	url := b.listen(t) + "/v1/check"
	for _, i := range []int{0, maxRuleLabels - 1, maxRuleLabels, maxRuleLabels + 4} {
		send(t, "POST", url, fmt.Sprintf(`{"attributes":{"path":"/r%d"}}`, i))
	}
	for rule, want := range map[string]float64{"r0": 1, fmt.Sprintf("r%d", maxRuleLabels-1): 1, "other": 2, fmt.Sprintf("r%d", maxRuleLabels): 0} {
		if got := b.metric(t, "spillgate_decisions_total", "rule", rule, "result", "allow"); got != want {
			t.Errorf("decisions of %s = %v, want %v", rule, got, want)
		}
	}
	// The same rules, read again, have the same labels.
	b.limiter.SetRules(t, doc)
	send(t, "POST", url, `{"attributes":{"path":"/r0"}}`)
	if got := b.metric(t, "spillgate_decisions_total", "rule", "r0", "result", "allow"); got != 2 {
		t.Errorf("decisions of r0 after a reload = %v, want 2", got)
	}
}
