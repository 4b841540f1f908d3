package httpapi

import (
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// The admin listener tells why a request was denied, by the id of a reply or of a
// problem; others tell nothing, and what was admitted is not remembered.
func TestDecisions(t *testing.T) {
	b := newBench(t, acme(), limit.Document{Namespace: "shut", Rules: []limit.RuleSpec{{Name: "closed", Deny: true}}})
	admin := httptest.NewServer(b.api.Admin(b.registryAnew()))
	t.Cleanup(admin.Close)
	public := b.listen(t)
	id := func(r reply) string {
		if in, _ := r.body["instance"].(string); in != "" {
			return strings.TrimPrefix(in, "/v1/decisions/")
		}
		id, _ := r.body["decision_id"].(string)
		return id
	}
	const call = `{"namespace":"acme","attributes":{"user":"u1"}}`
	admitted := id(send(t, "POST", public+"/v1/check", call))
	for range 2 {
		send(t, "POST", public+"/v1/check", call)
	}
	denied := id(send(t, "POST", public+"/v1/check", call))
	want := `{
  "decision_id": "` + denied + `",
  "at": "2026-01-01T00:00:15Z",
  "allowed": false,
  "reason": "3 per 1m are used up",
  "namespace": "acme",
  "rule": "api-per-user",
  "policy": "api-per-user.minute",
  "cost": 1,
  "limit": 3,
  "window": "1m",
  "remaining": 0,
  "retry_after_ms": 45000,
  "basis": {
    "local": 3,
    "merged": 0,
    "age_ms": -1,
    "regions": 1
  }
}
`
	for _, id := range []string{denied, strings.ToLower(denied)} {
		if r := send(t, "GET", admin.URL+"/v1/decisions/"+id, ""); r.status != 200 || r.text != want {
			t.Errorf("%s: %d %s\nwant\n%s", id, r.status, r.text, want)
		}
	}
	shut := id(send(t, "POST", public+"/v1/check", `{"namespace":"shut"}`))
	if r := send(t, "GET", admin.URL+"/v1/decisions/"+shut, ""); r.status != 200 || r.body["rule"] != "closed" || r.body["limit"] != nil {
		t.Errorf("a rule that denies: %d %s", r.status, r.text)
	}
	for what, c := range map[string]struct {
		id     string
		status int
	}{
		"admitted": {admitted, 404}, "unknown": {strings.Repeat("0", idLength), 404},
		"short": {"01ARYZ6S41", 400}, "no id": {strings.Repeat("U", idLength), 400},
	} {
		if r := send(t, "GET", admin.URL+"/v1/decisions/"+c.id, ""); r.status != c.status || r.body["field"] != "id" {
			t.Errorf("%s: %d %s, want %d", what, r.status, r.text, c.status)
		}
	}
	if r := send(t, "GET", public+"/v1/decisions/"+denied, ""); r.status != 404 {
		t.Errorf("the public listener answers %d", r.status)
	}
}

// The problem that a denied client gets names what can be asked for.
func TestDecisionsOfProblems(t *testing.T) {
	b := newBench(t, perClient(1))
	admin := httptest.NewServer(b.api.Admin(b.registryAnew()))
	t.Cleanup(admin.Close)
	url := b.listen(t) + "/v1/auth"
	ask := func() reply {
		return send(t, "GET", url, "", "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Uri", "/api/x")
	}
	ask()
	instance, _ := ask().body["instance"].(string)
	if r := send(t, "GET", admin.URL+instance, ""); r.status != 200 || r.body["rule"] != "per-client" || r.body["reason"] != "1 per 1m are used up" {
		t.Errorf("%s: %d %s", instance, r.status, r.text)
	}
}

// Memory for denials is bounded: the latest are found, and what came first goes first.
func TestDenialsAreBounded(t *testing.T) {
	var k denials
	d := &limit.Decision{Rule: &limit.Rule{}}
	var ids []string
	for i := range 4 * len(k) * denialsKept {
		at := testStart.Add(time.Duration(i) * time.Second)
		id := appendID(nil, at, rand.Uint64(), rand.Uint64())
		k.keep(id, at, d)
		ids = append(ids, string(id))
	}
	for i := range k {
		if n := len(k[i].list); n != denialsKept {
			t.Errorf("shard %d keeps %d, want %d", i, n, denialsKept)
		}
	}
	found := 0
	for i, id := range ids {
		e, ok := k.find(id)
		if ok {
			found++
		}
		if ok && !e.at.Equal(testStart.Add(time.Duration(i)*time.Second)) || !ok && i > len(ids)-denialsKept {
			t.Fatalf("denial %d of %d: %v, of %v", i, len(ids), ok, e.at)
		}
	}
	if found != len(k)*denialsKept {
		t.Errorf("%d are found, want %d", found, len(k)*denialsKept)
	}
}
