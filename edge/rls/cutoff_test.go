package rls_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rls"
)

// What is denied as the edge cannot hear of others holds against a proxy that lets pass what
// fails, and is told apart from a limit that is used up: by field, body, metadata and metric,
// and over HTTP by status. A limit that is used up beside it is the one that is told.
func TestCutOff(t *testing.T) {
	closed := minutely("logins", 5, "login")
	closed.OnPartition = "closed"
	used := minutely("user", 1, "user")
	node := limitertest.Node(t, limit.Document{Namespace: domain, Rules: []limit.RuleSpec{closed, used}})
	node.Flush(at.Add(-2 * time.Second)) // it asks its region, and is never answered
	b := benchOver(t, node)

	out := b.ask(of("login=l"))
	h, m := header(out), out.DynamicMetadata.AsMap()
	if code(out) != "1 1" || h["X-Spillgate-Cut-Off"] != "true" || h["Retry-After"] != "1" || m["cut_off"] != true || m["decision_id"] == "" ||
		!strings.Contains(string(out.RawBody), "temporary-reduced-capacity") {
		t.Errorf("%s, fields %v, metadata %v, body %s", code(out), h, m, out.RawBody)
	}
	b.ask(of("user=u"))
	out = b.ask(of("login=l"), of("user=u"))
	if h, m := header(out), out.DynamicMetadata.AsMap(); code(out) != "1 11" || h["X-Spillgate-Cut-Off"] != "" || h["Retry-After"] != "45" || m["cut_off"] != false {
		t.Errorf("beside one that is used up: %s, fields %v, metadata %v", code(out), h, m)
	}

	for result, want := range map[string]float64{"cut_off": 2, "deny": 1} {
		if got := b.counted("spillgate_decisions_total", "result", result); got != want {
			t.Errorf("the metric counts %v as %s, want %v", got, result, want)
		}
	}

	api, err := httpapi.New(node, httpapi.Config{Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]int{
		`{"entries":[{"key":"login","value":"l"}]}`: http.StatusServiceUnavailable,
		`{"entries":[{"key":"user","value":"u"}]}`:  http.StatusTooManyRequests,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/json", strings.NewReader(`{"domain":"`+domain+`","descriptors":[`+body+`]}`))
		rls.New(api).HTTP(api.Ready, api).ServeHTTP(w, r)
		if w.Code != want || w.Header().Get("Retry-After") == "" {
			t.Errorf("/json %s: %d %v %s, want %d", body, w.Code, w.Header(), w.Body, want)
		}
	}
}

// holds is a limiter that waits for rights that never come.
type holds struct{ *limitertest.Limiter }

func (h holds) CheckOrWait(now time.Time, req *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	d := h.Check(now, req)
	return d, func(ctx context.Context) limit.Decision {
		<-ctx.Done()
		d.Allowed = false
		return d
	}
}

// A strict limit holds however soon Envoy gives up: it is answered before.
func TestAnswersInTime(t *testing.T) {
	b := benchOver(t, holds{limitertest.New(t, limit.Document{Namespace: domain, Rules: []limit.RuleSpec{minutely("user", 1, "user")}})})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	out, err := b.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*rlv3.RateLimitDescriptor{of("user=u")}})
	if err != nil || code(out) != "1 1" {
		t.Errorf("%v, %v, want it over its limit", out, err)
	}
}
