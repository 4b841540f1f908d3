package httpapi

import (
	"net/http/httptest"
	"testing"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// The admin listener explains, over the real node; others do not.
func TestExplain(t *testing.T) {
	b := newBench(t)
	doc := acme()
	doc.Rules = append(doc.Rules, limit.RuleSpec{Name: "posts", Priority: 5, Match: limit.MatchSpec{Methods: []string{"POST"}}, Rates: doc.Rules[0].Rates})
	b.api = b.over(t, limitertest.Node(t, doc))
	admin := httptest.NewServer(b.api.Admin(b.registryAnew()))
	t.Cleanup(admin.Close)
	const call = `{"attributes":{"user":"u1","method":"GET"}}`
	public := b.listen(t)
	for range 3 {
		send(t, "POST", public+"/v1/check", call)
		send(t, "POST", admin.URL+"/v1/explain", call)
	}
	r := send(t, "POST", admin.URL+"/v1/explain", call)
	want := `{
  "allowed": false,
  "rule": "api-per-user",
  "policy": "api-per-user.minute",
  "rules": [
    {
      "name": "api-per-user",
      "priority": 0,
      "mode": "enforce",
      "applies": true,
      "key": "user=u1",
      "rates": [
        {
          "policy": "api-per-user.minute",
          "algorithm": "fixed_window",
          "scope": "global",
          "consistency": "adaptive",
          "on_partition": "share",
          "verdict": "limit",
          "limit": 3,
          "ceiling": 3,
          "window": "1m",
          "local": 3,
          "merged": 0,
          "remaining": 0,
          "retry_after_ms": 45000,
          "age_ms": -1,
          "seen": true
        }
      ]
    },
    {
      "name": "posts",
      "priority": 5,
      "mode": "enforce",
      "applies": false,
      "miss": {
        "field": "match.methods",
        "detail": "method is \"GET\"; want POST"
      }
    }
  ]
}
`
	if r.status != 200 || r.text != want {
		t.Errorf("%d %s\nwant\n%s", r.status, r.text, want)
	}
	if r := send(t, "POST", public+"/v1/explain", call); r.status != 404 {
		t.Errorf("the public listener answers %d", r.status)
	}
	if r := send(t, "GET", admin.URL+"/v1/explain", ""); r.status != 405 {
		t.Errorf("GET = %d, want 405", r.status)
	}
	wantProblem(t, send(t, "GET", admin.URL+"/v1/explane", ""), 404, "path", "/v1/explane")
	r = send(t, "POST", admin.URL+"/admin/v1/capacity/api", "")
	if wantProblem(t, r, 405, "method", "by GET, HEAD, PUT, not by"); r.header.Get("Allow") != "GET, HEAD, PUT" {
		t.Errorf("Allow: %q", r.header.Get("Allow"))
	}
	if r := send(t, "POST", admin.URL+"/v1/explain", `{"atributes":{}}`); r.status != 400 {
		t.Errorf("a bad body = %d, want 400", r.status)
	}
	if r := send(t, "POST", admin.URL+"/v1/explain", `{"namespace":"nobody"}`); r.status != 404 {
		t.Errorf("an unknown namespace = %d, want 404", r.status)
	}
}
