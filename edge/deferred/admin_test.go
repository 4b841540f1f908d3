package deferred

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// An operator sees what is dead and why, has it wait once more, or forgets it.
func TestAdmin(t *testing.T) {
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
		{"DELETE", "/admin/v1/deferred/dead/" + one, 204, ""},
		{"DELETE", "/admin/v1/deferred/dead/" + one, 404, "among the dead"},
		{"DELETE", "/admin/v1/deferred/dead/*", 404, "no such"},
		{"POST", "/admin/v1/deferred/dead/" + two + "/revive", 200, `"id":"`},
		{"POST", "/admin/v1/deferred/dead/" + two + "/revive", 404, "among the dead"},
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
	if w := get(h, call("GET", "/admin/v1/deferred", "")); w.Code != 503 {
		t.Errorf("without JetStream: %d %s, want 503", w.Code, w.Body)
	}
}

func itoa(n uint64) string { b, _ := json.Marshal(n); return string(b) }
