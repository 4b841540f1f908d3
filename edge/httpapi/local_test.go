package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/edge/httpapi"
)

func TestLocalKeepsPagesOut(t *testing.T) {
	served := 0
	h := httpapi.Local(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	for _, tt := range []struct {
		name, host, field, value, refused string
	}{
		{"an address", "127.0.0.1:6070", "", "", ""},
		{"an address of version 6", "[::1]:6070", "", "", ""},
		{"one without a port", "::1", "", "", ""},
		{"a name of this machine's", "LOCALHOST:6070", "", "", ""},
		{"with a dot", "localhost.", "", "", ""},
		{"another address, which is forwarded", "10.0.0.5", "", "", ""},
		{"HTTP/1.0", "", "", "", ""},
		{"a name that was made to lead here", "evil.example", "", "", `host "evil.example" is neither an address nor localhost`},
		{"one that only begins so", "localhost.evil.example:6070", "", "", "is neither an address"},
		{"one that is written as an address", "127.0.0.1.evil.example", "", "", "is neither an address"},
		{"a long one", strings.Repeat("x", 5000), "", "", "is neither an address"},
		{"its own page", "127.0.0.1:6070", "Origin", "http://127.0.0.1:6070", ""},
		{"a page of elsewhere", "127.0.0.1:6070", "Origin", "http://evil.example", `origin "http://evil.example" is not this listener's`},
		{"a page of another port", "127.0.0.1:6070", "Origin", "http://127.0.0.1:3000", "is not this listener's"},
		{"a page of no origin", "127.0.0.1:6070", "Origin", "null", "is not this listener's"},
		{"no origin that could be read", "127.0.0.1:6070", "Origin", "http://%zz", "is not this listener's"},
		{"a picture in a page", "127.0.0.1:6070", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Site is cross-site"},
		{"one in a page of another port", "localhost:6070", "Sec-Fetch-Site", "same-site", "Sec-Fetch-Site is same-site"},
		{"a person who wrote the address", "127.0.0.1:6070", "Sec-Fetch-Site", "none", ""},
		{"a link in its own page", "127.0.0.1:6070", "Sec-Fetch-Site", "same-origin", ""},
	} {
		r := httptest.NewRequest("POST", "/admin/v1/x", nil)
		if r.Host = tt.host; tt.field != "" {
			r.Header.Set(tt.field, tt.value)
		}
		served = 0
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if tt.refused == "" {
			if w.Code != http.StatusOK || served != 1 {
				t.Errorf("%s: %d %s, want that it is served", tt.name, w.Code, w.Body)
			}
			continue
		}
		var problem struct {
			Status int
			Detail string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || w.Code != http.StatusForbidden || problem.Status != w.Code || served != 0 || !strings.Contains(problem.Detail, tt.refused) || len(problem.Detail) > 300 {
			t.Errorf("%s: %d %s, want 403: %s", tt.name, w.Code, w.Body, tt.refused)
		}
	}
}
