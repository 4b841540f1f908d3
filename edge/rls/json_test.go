package rls_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rls"
)

// TestReferencesHTTP: what the reference serves beside gRPC.
func TestReferencesHTTP(t *testing.T) {
	limiter := limitertest.New(t, limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{minutely("user", 2, "user")}})
	api, err := httpapi.New(limiter, httpapi.Config{RetryJitter: -1, Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	var notReady error
	srv := httptest.NewServer(rls.New(api).HTTP(func() error { return notReady }, api))
	defer srv.Close()
	ask := func(method, path, body string) (code int, text string, header http.Header) {
		t.Helper()
		req, err := http.NewRequest(method, srv.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b), resp.Header
	}
	const user = `{"domain":"acme","descriptors":[{"entries":[{"key":"user","value":"u"}]}]`
	for i, tt := range []struct {
		method, body string
		code         int
		says         string
	}{
		{"POST", user + "}", 200, `"overallCode":"OK"`},
		{"POST", user + `,"hitsAddend":1}`, 200, `"name":"user.minute"`},
		{"POST", user + "}", 429, `"code":"OVER_LIMIT"`},
		{"POST", user + `,"hits_addend":1}`, 429, `"overallCode":"OVER_LIMIT"`},
		{"POST", `{"domain":"other","descriptors":[{"entries":[{"key":"user"}]}]}`, 200, `"overallCode":"OK"`},
		{"POST", `{"domain":"acme"}`, 400, "descriptors: there are none"},
		{"POST", user, 400, "body: is no envoy.service.ratelimit.v3.RateLimitRequest"},
		{"POST", user + `,"hits":1}`, 400, "hits"},
		{"POST", strings.Repeat(" ", 64<<10+1), 413, "body: is larger than"},
		{"POST", `{"domain":"acme","descriptors":[{}` + strings.Repeat(",{}", 21_000) + "]}", 400, "body: has 21002 messages in it"},
		{"GET", "", 405, "POST is"},
	} {
		code, text, header := ask(tt.method, "/json", tt.body)
		var object map[string]any
		if code != tt.code || !strings.Contains(strings.ReplaceAll(text, `": "`, `":"`), tt.says) || json.Unmarshal([]byte(text), &object) != nil {
			t.Errorf("step %d: %d %s, want %d and %s", i+1, code, text, tt.code, tt.says)
		}
		if want := map[int]string{429: "45"}[code]; header.Get("Retry-After") != want {
			t.Errorf("step %d: Retry-After %q, want %q", i+1, header.Get("Retry-After"), want)
		}
	}
	if code, text, _ := ask("GET", "/healthcheck", ""); code != 200 || text != "OK" {
		t.Errorf("healthcheck: %d %q, want 200 OK", code, text)
	}
	notReady = errors.New("draining")
	if code, text, _ := ask("GET", "/healthcheck", ""); code != 500 || !strings.Contains(text, "draining") {
		t.Errorf("healthcheck of one that is not ready: %d %q, want 500 and why", code, text)
	}
	if code, text, _ := ask("POST", "/v1/check", `{"attributes":{"user":"v"}}`); code != 200 || !strings.Contains(text, `"allowed":true`) {
		t.Errorf("the other paths: %d %s", code, text)
	}
	limiter.DropRules()
	if code, text, _ := ask("POST", "/json", user+"}"); code != 503 || !strings.Contains(text, "no rules") {
		t.Errorf("without rules: %d %s, want 503", code, text)
	}
}
