package httpapi

import (
	"encoding/json"
	"math"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// adminOf is the admin listener of a real node whose rule reads the capacity "api".
func adminOf(f *testing.F) (ask func(method, path, body string) *httptest.ResponseRecorder) {
	rule := limit.RuleSpec{
		Name: "user", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}},
		Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 50, While: "capacity.api < 70%"}},
	}
	node := limitertest.Node(f, limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{rule}})
	api, err := New(node, Config{})
	if err != nil {
		f.Fatal(err)
	}
	handler := api.Admin(prometheus.NewRegistry())
	return func(method, path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		return w
	}
}

// FuzzExplain: whatever is asked is explained, or refused as a mistake, in JSON.
func FuzzExplain(f *testing.F) {
	for _, text := range []string{"", "{}", `{"namespace":"acme","attributes":{"user":"u\u0000","path":"//%2e"},"cost":9007199254740992}`, `{"attributes":{"client_ip":"::1"},"peek":true}`} {
		f.Add(text)
	}
	ask := adminOf(f)
	f.Fuzz(func(t *testing.T, text string) {
		if w := ask("POST", "/v1/explain", text); !json.Valid(w.Body.Bytes()) || w.Code != 200 && (w.Code < 400 || w.Code >= 500) {
			t.Fatalf("%q: %d %s", text, w.Code, w.Body)
		}
	})
}

// FuzzCapacity: a capacity is a number that there is, or refused; what was taken is told.
func FuzzCapacity(f *testing.F) {
	for _, text := range []string{"0.7", "70%", " 1e308% ", "-0", "NaN", "1_0", "0x1p-2", "1e400%", "∞"} {
		f.Add(text, "30s")
	}
	f.Add("1", "9223372036854775807ns")
	f.Add("1", "9.2ns")
	ask := adminOf(f)
	f.Fuzz(func(t *testing.T, text, ttl string) {
		if used, err := PartInUse(text); err == nil && (math.IsNaN(used) || math.IsInf(used, 0)) {
			t.Fatalf("PartInUse(%q) = %v", text, used)
		}
		w := ask("PUT", "/admin/v1/capacity/api?ttl="+url.QueryEscape(ttl), text)
		switch {
		case w.Code == 204:
			lasts, _ := time.ParseDuration(ttl)
			short := ttl != "" && lasts < time.Minute // it may have run out
			if told := ask("GET", "/admin/v1/capacity/api", ""); told.Code != 200 && !(short && told.Code == 404) || !json.Valid(told.Body.Bytes()) {
				t.Fatalf("%q for %q was taken, and is told as %d %s", text, ttl, told.Code, told.Body)
			}
		case w.Code < 400 || w.Code >= 500 || !json.Valid(w.Body.Bytes()):
			t.Fatalf("%q for %q: %d %s", text, ttl, w.Code, w.Body)
		}
	})
}
