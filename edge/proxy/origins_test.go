package proxy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/edge/httpapi"
)

const (
	page   = "https://app.example"
	allows = "Access-Control-Allow-Origin"
	shows  = "Access-Control-Expose-Headers"
)

// ofPages is an upstream that lets the page's origin read what it answers.
func ofPages(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") == page {
		w.Header().Set(allows, page)
		w.Header().Set(shows, "X-Total")
	}
	if r.Method == http.MethodOptions {
		w.Header().Set("Access-Control-Allow-Methods", "GET")
		w.WriteHeader(http.StatusNoContent)
	}
}

// A page of an origin that is named reads a denial, and by what it is one.
func TestPagesReadDenials(t *testing.T) {
	for _, tt := range []struct {
		origins      httpapi.Origins
		from         string
		allow, creds string
	}{
		{nil, page, "", ""},
		{httpapi.Origins{"https://b.example", page}, page, page, "true"},
		{httpapi.Origins{page}, "https://app.example.evil", "", ""},
		{httpapi.Origins{page}, "null", "", ""},
		{httpapi.Origins{"*"}, page, "*", ""},
		{httpapi.Origins{"*"}, "null", "*", ""},
	} {
		s := newSite(t, ofPages, options{cfg: Config{Origins: tt.origins}}, hourly(1))
		fields := []string{"Origin", tt.from}
		ask := append([]string{"Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "x-key"}, fields...)
		if got := s.send("GET", "/", "", fields...); got.status != http.StatusOK || got.header.Get("RateLimit") == "" {
			t.Fatalf("%v: %d %v, want the upstream's 200", tt.origins, got.status, got.header)
		} else if shown := strings.Contains(strings.Join(got.header.Values(shows), ", "), "RateLimit"); shown != (tt.allow != "" && tt.from == page) {
			t.Errorf("%v, %s: of the upstream's answer is shown %q", tt.origins, tt.from, got.header.Values(shows))
		}
		got := s.send("GET", "/", "", fields...)
		if h := got.header; got.status != http.StatusTooManyRequests || h.Get(allows) != tt.allow || h.Get("Access-Control-Allow-Credentials") != tt.creds ||
			strings.Contains(h.Get(shows), "Retry-After") != (tt.allow != "") || h.Get("Retry-After") == "" || got.body == "" {
			t.Errorf("%v, %s: the denial is %d %v", tt.origins, tt.from, got.status, got.header)
		}
		if varies := got.header.Get("Vary") == "Origin"; varies != (len(tt.origins) > 0 && tt.origins[0] != "*") {
			t.Errorf("%v: varies by %q", tt.origins, got.header.Get("Vary"))
		}
		// What the upstream lets pages do it alone says: a preflight that is denied is no leave.
		got = s.send("OPTIONS", "/", "", ask...)
		if h := got.header; got.status != http.StatusTooManyRequests || h.Get("Access-Control-Allow-Methods") != "" || h.Get("Access-Control-Allow-Headers") != "" {
			t.Errorf("%v, %s: the preflight's denial is %d %v", tt.origins, tt.from, got.status, h)
		}
		if got := s.send("GET", "/", "", "Origin", page, "Origin", "https://b.example"); got.header.Get(allows) != "" { // two are none
			t.Errorf("%v: of two origins %q may read it", tt.origins, got.header.Get(allows))
		}
		if n := s.served.Load(); n != 1 {
			t.Errorf("%v: the upstream saw %d, want the one that had room", tt.origins, n)
		}
		if n := s.metric("spillgate_proxy_requests_total", "result", "limited"); n != 3 {
			t.Errorf("%v: %v are limited, want 3", tt.origins, n)
		}
	}
}

// What is admitted is the upstream's to let be read; a fault in its place is the edge's own.
func TestPagesReadFaults(t *testing.T) {
	cfg := Config{Origins: httpapi.Origins{page}, MaxBody: 10}
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			panic(http.ErrAbortHandler)
		}
	}, options{cfg: cfg}, hourly(100))
	for _, tt := range []struct {
		target, body string
		status       int
		own          bool
	}{
		{"/", "", http.StatusOK, false},
		{"/broken", "", http.StatusBadGateway, true},
		{"/", "eleven byte", http.StatusRequestEntityTooLarge, true},
	} {
		got := s.send("POST", tt.target, tt.body, "Origin", page)
		if got.status != tt.status || (got.header.Get(allows) == page) != tt.own {
			t.Errorf("%s: %d %v", tt.target, got.status, got.header)
		}
	}
	if got := s.send("OPTIONS", "/broken", "", "Origin", page, "Access-Control-Request-Method", "PUT"); got.status != http.StatusBadGateway {
		t.Errorf("a preflight that the upstream does not answer: %d, want no leave from here", got.status)
	}
	if err := (&Config{Upstream: s.proxy.cfg.Upstream, Origins: httpapi.Origins{"app.example"}}).Validate(); err == nil || !strings.Contains(err.Error(), "Origins") {
		t.Errorf("of an origin without a scheme: %v", err)
	}
}
