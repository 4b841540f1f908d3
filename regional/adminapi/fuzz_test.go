package adminapi

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// FuzzRequest: whatever is asked about is told, or refused in a few words, as JSON where the
// path is of the API; and asking changes nothing.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/admin/v1/rules/api/truth?namespace=acme", "")
	f.Add("GET", "/admin/v1/rules/a%2fb%00/truth?namespace=%zz;&namespace="+strings.Repeat("%ff", 500), "")
	f.Add("PUT", "/admin/v1/rules/api/truth", "{}")
	f.Add("GET", "/admin/v1/rules//truth", "")
	f.Add("HEAD", "/readyz?verbose=%00", "x")
	f.Add("GET", "//admin/v1/../v1/drift", "")
	f.Add("POST", "/admin/v1/namespaces/acme/keys/get", `{"rule": "api", "key": {"user": "u1"}}`)
	f.Add("GET", "/admin/v1/keys/top?by=%00&limit=-1&namespace=acme", "")
	f.Add("PUT", "/admin/v1/capacity/%2e%2e?ttl=1ns", "70%")
	f.Add("CONNECT", "/admin/v1/regions", "")
	subject := overspent(f)
	set, problems := limit.Compile(limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{{Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Name: "burst", Limit: 10, Per: time.Second}}}}})
	if set == nil {
		f.Fatal(problems)
	}
	keyer, err := deltasync.NewKeyer([]byte(testSecret))
	if err != nil {
		f.Fatal(err)
	}
	keys := NewKeybook(KeybookConfig{Keys: subject, Keyer: &keyer, Rules: func() *limit.Set { return set }, Log: slog.New(slog.DiscardHandler)})
	handler := New(Config{Subject: subject, Connected: func() bool { return true }, Metrics: prometheus.NewRegistry(), Keys: keys})
	known := func() string {
		b, err := json.Marshal([]any{subject.Truth("", "api"), subject.HasRules()})
		if err != nil {
			f.Fatal(err)
		}
		return string(b)
	}
	before := known()
	f.Fuzz(func(t *testing.T, method, target, body string) {
		if strings.Contains(target, "debug") { // a profile takes as long as it is told to
			return
		}
		r, err := http.NewRequest(method, "http://h", strings.NewReader(body))
		if err != nil {
			return
		}
		if r.URL, err = r.URL.Parse(target); err != nil {
			return
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		kind := w.Header().Get("Content-Type")
		if w.Code >= 500 || strings.HasSuffix(kind, "json") != json.Valid(w.Body.Bytes()) && method != http.MethodHead && w.Body.Len() > 0 {
			t.Fatalf("%s %q: %d %s %s", method, target, w.Code, kind, w.Body)
		}
		if kind == "application/problem+json" && w.Body.Len() > 1024 {
			t.Fatalf("%s %q: %d bytes of what is wrong", method, target, w.Body.Len())
		}
		if after := known(); after != before {
			t.Fatalf("%s %q has changed what is told: %s, and before %s", method, target, after, before)
		}
	})
}
