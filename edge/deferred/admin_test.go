package deferred

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// An operator sees what is dead and why, has it wait once more, or forgets it.
func TestAdmin(t *testing.T) {
	t.Parallel()
	j := newJet(t)
	q := j.queue(j.connect(), Config{Tries: 1})
	h := front(q, nil, 0).Admin()
	stop := work(t, q, does(500))
	one, two := put(t, q, "acme", time.Time{}), put(t, q, "acme", time.Time{})
	becomes(t, q, one, Dead)
	becomes(t, q, two, Dead)
	stop()

	var list struct{ Dead []Letter }
	w := get(h, call("GET", "/admin/v1/deferred/dead?limit=1", ""))
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 || len(list.Dead) != 1 || !strings.Contains(list.Dead[0].Reason, "500") {
		t.Fatalf("%d %s, want one letter", w.Code, w.Body)
	}
	ids := map[string]bool{list.Dead[0].ID: true}
	var next struct{ Dead []Letter }
	w = get(h, call("GET", "/admin/v1/deferred/dead?from="+itoa(list.Dead[0].Next), ""))
	if err := json.Unmarshal(w.Body.Bytes(), &next); err != nil || len(next.Dead) != 1 {
		t.Fatalf("%d %s, want the other letter", w.Code, w.Body)
	}
	if ids[next.Dead[0].ID] = true; !ids[one] || !ids[two] {
		t.Errorf("letters %v, want %s and %s", ids, one, two)
	}
	for _, tt := range []struct {
		method, target string
		status         int
		says           string
	}{
		{"GET", "/admin/v1/deferred", 200, `{"dead":2,"waiting":0}`},
		{"GET", "/admin/v1/deferred/" + one, 200, `"state":"dead"`},
		{"GET", "/admin/v1/deferred/" + NewID(), 404, "no such"},
		{"GET", "/admin/v1/deferred/x", 404, "no such"},
		{"GET", "/admin/v1/deferred/dead?from=x", 400, `from=\"x\"`},
		{"GET", "/admin/v1/deferred/dead?limit=0", 400, "from 1 to 1000"},
		{"GET", "/admin/v1/deferred/dead?limit=1001", 400, "from 1 to 1000"},
		{"GET", "/admin/v1/deferred/waiting?tennant=acme", 400, `unknown parameter \"tennant\": there is tenant, from, limit`},
		{"GET", "/admin/v1/deferred/waiting?tenant=a;b", 400, "the query cannot be read"},
		{"GET", "/admin/v1/deferred?tenant=acme", 400, "there is none here"},
		{"PUT", "/admin/v1/deferred/dead", 405, `"field":"method"`},
		{"GET", "/admin/v1/deferred/dead/a/b", 404, `"field":"path"`},
		{"DELETE", "/admin/v1/deferred/dead/" + one, 204, ""},
		{"DELETE", "/admin/v1/deferred/dead/" + one, 404, "among the dead"},
		{"DELETE", "/admin/v1/deferred/dead/*", 404, "no such"},
		{"POST", "/admin/v1/deferred/dead/" + two + "/revive", 200, `"id":"`},
		{"POST", "/admin/v1/deferred/dead/" + two + "/revive", 200, `"id":"`}, // the same
		{"POST", "/admin/v1/deferred/dead/" + one + "/revive", 404, "among the dead"},
		{"GET", "/admin/v1/deferred", 200, `{"dead":0,"waiting":1}`},
	} {
		if w := get(h, call(tt.method, tt.target, "")); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("%s %s: %d %s, want %d and %s", tt.method, tt.target, w.Code, w.Body, tt.status, tt.says)
		}
	}
	if w := get(NewFront(nil, FrontConfig{}).Admin(), call("GET", "/admin/v1/deferred", "")); w.Code != 503 {
		t.Errorf("before JetStream has answered: %d %s, want 503", w.Code, w.Body)
	}
	j.server.Shutdown()
	proc.Until(t, 30*time.Second, func() error {
		if w := get(h, call("GET", "/admin/v1/deferred", "")); w.Code != 503 || !strings.Contains(w.Body.String(), "NATS is not connected") {
			return fmt.Errorf("without JetStream: %d %s, want 503 that says why", w.Code, w.Body)
		}
		return nil
	})
}

// An operator sees of whom requests wait, and which, by pages.
func TestAdminListsWhatWaits(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	h := front(q, nil, 0).Admin()
	if w := get(h, call("GET", "/admin/v1/deferred/tenants", "")); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"of":0,"tenants":[]}` {
		t.Errorf("while none wait: %d %s", w.Code, w.Body)
	}
	first := put(t, q, "a", time.Time{})
	for range 3 {
		put(t, q, "b c", time.Time{})
	}
	second := put(t, q, "a", time.Time{})
	if _, err := q.js.Publish(t.Context(), q.subject("foreign"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	var tenants struct {
		Tenants []Tenant
		Of      int
	}
	w := get(h, call("GET", "/admin/v1/deferred/tenants", ""))
	if err := json.Unmarshal(w.Body.Bytes(), &tenants); err != nil || tenants.Of != 3 || len(tenants.Tenants) != 2 ||
		tenants.Tenants[0].Tenant != "b c" || tenants.Tenants[0].Waiting != 3 || tenants.Tenants[1].Waiting != 2 || time.Since(tenants.Tenants[0].Oldest) > time.Minute {
		t.Errorf("%d %s, want those of whom the most wait first", w.Code, w.Body)
	}
	if w = get(h, call("GET", "/admin/v1/deferred/tenants?limit=1", "")); strings.Count(w.Body.String(), `"oldest"`) != 1 {
		t.Errorf("%d %s, want one", w.Code, w.Body)
	}
	ask := func(query string) (list struct{ Waiting []Waiting }) {
		t.Helper()
		w := get(h, call("GET", "/admin/v1/deferred/waiting?"+query, ""))
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
			t.Fatalf("%s: %d %s, %v", query, w.Code, w.Body, err)
		}
		return list
	}
	if all := ask(""); len(all.Waiting) != 5 || all.Waiting[0].ID != first || all.Waiting[4].ID != second {
		t.Errorf("%+v, want all, the oldest first", all)
	}
	one := ask("tenant=a&limit=1")
	if len(one.Waiting) != 1 || one.Waiting[0].ID != first || one.Waiting[0].Method != "PUT" || one.Waiting[0].URI != "/a" || one.Waiting[0].Bytes != 4 {
		t.Fatalf("%+v, want the first of a", one)
	}
	if next := ask("tenant=a&from=" + itoa(one.Waiting[0].Next)); len(next.Waiting) != 1 || next.Waiting[0].ID != second {
		t.Errorf("%+v, want the second of a", next)
	}
	if of := ask("tenant=b%20c"); len(of.Waiting) != 3 {
		t.Errorf("%+v, want those of b c", of)
	}
	if none := ask("tenant=nobody"); none.Waiting == nil || len(none.Waiting) != 0 {
		t.Errorf("%+v, want an empty list", none)
	}
	for _, query := range []string{"waiting?limit=0", "waiting?limit=1001", "waiting?from=x", "tenants?limit=101"} {
		if w := get(h, call("GET", "/admin/v1/deferred/"+query, "")); w.Code != 400 {
			t.Errorf("%s: %d %s, want 400", query, w.Code, w.Body)
		}
	}
}

func itoa(n uint64) string { b, _ := json.Marshal(n); return string(b) }
