package adminapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// overspent is an aggregator of whose one edge a PoP spent 13 of 10.
func overspent(t testing.TB) *regional.Aggregator { return overspentOf(t, 0, 13, 6) }

// overspentOf is that of a rate of which so much was spent, so many seconds later.
func overspentOf(t testing.TB, of int, charges uint64, seconds int) *regional.Aggregator {
	t.Helper()
	set, problems := limit.Compile(limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{
		{Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Name: "burst", Limit: 10, Per: time.Second}, {Name: "hour", Limit: 1000, Per: time.Hour}}},
	}})
	if set == nil {
		t.Fatal(problems)
	}
	rate, now := set.Rules()[0].Rates[of], time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	agg, err := regional.New(regional.Config{Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: 1, Rules: set},
		memstore.New(memstore.Config{Now: func() time.Time { return now }}))
	if err != nil {
		t.Fatal(err)
	}
	agg.Tick(now)
	up := deltasync.Up{
		Kind: deltasync.KindEdge, Region: "eu", Pop: "fra", Name: "e1", Node: deltasync.NodeID("eu", "fra", "e1"), Incarnation: 1, Lanes: 1, Seq: 1, SentAt: now.UnixNano(),
		Sections: []deltasync.Section{{
			Shape:  deltasync.Shape{Generation: rate.Generation, Width: rate.Width, Slices: rate.Span, Limit: rate.Limit},
			Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{{Slice: rate.SliceAt(now.UnixNano()), Charges: charges}}}},
		}},
	}
	b, err := up.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	agg.Handle(context.Background(), now, deltasync.EdgeSubject("eu", 0, "fra", "e1"), b)
	for range seconds {
		now = now.Add(time.Second)
		agg.Tick(now)
	}
	return agg
}

func TestTruthOfARule(t *testing.T) {
	bare, err := regional.New(regional.Config{Region: "eu", Name: "a1"}, memstore.New(memstore.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	over := overspent(t)
	for _, c := range []struct {
		name, path string
		subject    Subject
		status     int
		has        string
	}{
		{"a rule", "/admin/v1/rules/api/truth", over, 200, `"over_admitted":3`},
		{"in its namespace", "/admin/v1/rules/api/truth?namespace=acme", over, 200, `"caused_by_pop":[{"name":"fra","over_admitted":3}]`},
		{"in another", "/admin/v1/rules/api/truth?namespace=b", over, 404, `in namespace \"b\"`},
		{"no rule", "/admin/v1/rules/apy/truth", over, 404, `there is no rule \"apy\"`},
		{"no rules", "/admin/v1/rules/api/truth", bare, 404, "set rules.path"},
		{"regions", "/admin/v1/regions", over, 200, `{"region":"us","state":"never_heard","one_way_ms":0,`},
		{"alone", "/admin/v1/regions", bare, 200, `{"regions":[{"region":"eu","state":"self",`},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			New(Config{Subject: c.subject, Connected: func() bool { return true }, Metrics: prometheus.NewRegistry()}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, c.path, nil))
			if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.has) {
				t.Errorf("GET %s = %d %s, want %d with %s", c.path, rec.Code, rec.Body, c.status, c.has)
			}
			kind := "application/json"
			if c.status != http.StatusOK {
				kind = "application/problem+json"
			}
			if got := rec.Header().Get("Content-Type"); got != kind || !json.Valid(rec.Body.Bytes()) {
				t.Errorf("GET %s: %s, %s, want %s", c.path, got, rec.Body, kind)
			}
		})
	}
	var got truth
	rec := httptest.NewRecorder()
	New(Config{Subject: over, Connected: func() bool { return true }, Metrics: prometheus.NewRegistry()}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/admin/v1/rules/api/truth", nil))
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Region != "eu" || len(got.Rates) != 2 || got.Rates[0].Rate != "burst" || got.Rates[0].WindowMS != 1000 || got.Rates[0].Worst == nil || got.Rates[0].Worst.Ratio != 0.3 || got.Rates[1].Worst != nil {
		t.Errorf("truth %+v, want burst, 30 %% over, and hour, never", got)
	}
}
