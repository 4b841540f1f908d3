package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// What is denied as the edge cannot hear of others is told apart from a limit that is
// used up: by status, problem type, fields and metric.
func TestCutOff(t *testing.T) {
	b := newBench(t)
	n := limitertest.Node(t, limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{
		{Name: "logins", OnPartition: "closed", Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}}},
	}})
	n.Flush(b.now) // it asks its region, and is never answered
	b.now = b.now.Add(2 * time.Second)
	b.api = b.over(t, n)
	url := b.listen(t)

	r := send(t, "POST", url+"/v1/check", `{"attributes":{"user":"u"}}`, "Content-Type", "application/json")
	if basis, _ := r.body["basis"].(map[string]any); r.status != 200 || r.body["allowed"] != false || basis["cut_off"] != true || r.body["remaining"] != 0.0 || r.body["retry_after_ms"] != 1000.0 {
		t.Errorf("check = %d %s", r.status, r.text)
	}
	for _, path := range []string{"/v1/auth", "/v1/auth?deny_status=403", "/v1/auth?fail=open"} {
		r := send(t, "GET", url+path, "")
		if r.status != 503 || r.body["type"] != reducedCapacity || r.header.Get("Retry-After") == "" || r.header.Get("RateLimit") != "" || r.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s = %d %v %s", path, r.status, r.header, r.text)
		}
	}
	if got := b.metric(t, "spillgate_decisions_total", "rule", "logins", "result", "cut_off"); got != 4 {
		t.Errorf("cut_off counts %v, want 4", got)
	}
	if got := b.metric(t, "spillgate_decisions_total", "rule", "logins", "result", "deny"); got != 0 {
		t.Errorf("deny counts %v, want 0", got)
	}

	served := false
	w := httptest.NewRecorder()
	b.api.Middleware("", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if served || w.Code != 503 || !strings.Contains(w.Body.String(), reducedCapacity) {
		t.Errorf("middleware: served %v, %d %s", served, w.Code, w.Body)
	}
}
