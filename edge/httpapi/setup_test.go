package httpapi

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// testStart is the start of a minute.
var testStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// acme has one rule: 3 a minute for each user, in fixed windows.
func acme() limit.Document {
	return limit.Document{
		Namespace: "acme",
		Rules: []limit.RuleSpec{{
			Name: "api-per-user", Key: []string{"user"},
			Rates: []limit.RateSpec{{Name: "minute", Limit: 3, Per: time.Minute, Algorithm: "fixed_window"}},
		}},
	}
}

// perClient limits each client_ip on /api/**, with all header profiles that
// change nothing of each other.
func perClient(limitTo uint64, headers ...string) limit.Document {
	return limit.Document{
		Namespace: "acme",
		Rules: []limit.RuleSpec{{
			Name: "per-client", Key: []string{"client_ip"}, Match: limit.MatchSpec{Path: []string{"/api/**"}},
			Rates:   []limit.RateSpec{{Name: "minute", Limit: limitTo, Per: time.Minute, Algorithm: "fixed_window"}},
			OnLimit: limit.OnLimitSpec{Headers: headers},
		}},
	}
}

// bench is an API over a fake limiter, on a clock that stands still.
type bench struct {
	api      *API
	limiter  *limitertest.Limiter
	registry *prometheus.Registry
	now      time.Time
	rand     float64
}

func newBench(tb testing.TB, docs ...limit.Document) *bench {
	tb.Helper()
	b := &bench{limiter: limitertest.New(tb, docs...), now: testStart.Add(15 * time.Second)}
	b.api = b.over(tb, b.limiter)
	return b
}

// over is an API with the bench's clock over another limiter.
func (b *bench) over(tb testing.TB, limiter Limiter) *API {
	tb.Helper()
	api, err := New(limiter, Config{
		TrustedProxies: Proxies{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("10.0.0.0/8")},
		Metrics:        NewMetrics(b.registryAnew()),
		Now:            func() time.Time { return b.now },
		Rand:           func() float64 { return b.rand },
	})
	if err != nil {
		tb.Fatal(err)
	}
	return api
}

// registryAnew gives the bench a registry of its own again.
func (b *bench) registryAnew() *prometheus.Registry {
	b.registry = prometheus.NewRegistry()
	return b.registry
}

// listen serves the API on loopback.
func (b *bench) listen(tb testing.TB) string {
	tb.Helper()
	srv := httptest.NewServer(b.api)
	tb.Cleanup(srv.Close)
	return srv.URL
}

type reply struct {
	status int
	header http.Header
	text   string
	body   map[string]any // nil where the text is no JSON object
}

// send makes a real request. header is pairs of name and value.
func send(tb testing.TB, method, url, body string, header ...string) reply {
	tb.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	r := reply{status: resp.StatusCode, header: resp.Header, text: string(text)}
	if json.Unmarshal(text, &r.body) != nil {
		r.body = nil
	}
	return r
}

// metric is the value of a counter with these labels (name, value, ...), 0
// where there is none.
func (b *bench) metric(tb testing.TB, name string, labels ...string) float64 {
	tb.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			same := true
			for i := 0; i < len(labels); i += 2 {
				same = same && have[labels[i]] == labels[i+1]
			}
			if same {
				if h := m.GetHistogram(); h != nil {
					return float64(h.GetSampleCount())
				}
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
