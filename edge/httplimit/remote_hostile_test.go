package httplimit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httplimit"
	"github.com/spillgate/spillgate/edge/limit"
)

// hereAndThere is middleware here, and the same over an edge elsewhere, of their own counts both.
func hereAndThere(tb testing.TB, rules ...limit.RuleSpec) (here, there http.Handler) {
	tb.Helper()
	at := time.Date(2026, 1, 1, 0, 0, 15, 0, time.UTC)
	cfg := httpapi.Config{RetryJitter: -1, Now: func() time.Time { return at }}
	embedded, err := httplimit.New(node(tb, rules...), "", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	api, err := httpapi.New(node(tb, rules...), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	limiter, err := client.NewHTTPOver(&http.Client{Transport: straight{api}}, "http://edge", client.Config{Timeout: time.Minute})
	if err != nil {
		tb.Fatal(err)
	}
	elsewhere, err := httplimit.Remote(limiter, httplimit.RemoteConfig{Headers: []string{"X-User-Id"}})
	if err != nil {
		tb.Fatal(err)
	}
	return embedded(ok), elsewhere(ok)
}

// straight asks a handler with no network between.
type straight struct{ http.Handler }

func (s straight) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

// send has a handler serve a request as it is on the wire.
func send(h http.Handler, text string) (r *http.Request, code int) {
	r, err := http.ReadRequest(bufio.NewReaderSize(strings.NewReader(text), 16))
	if err != nil {
		return nil, 0
	}
	r.RemoteAddr = "192.0.2.1:1"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return r, w.Code
}

// No request of a client switches its limit off: what no edge can be told of is refused, and
// whatever else is told is counted as here.
func TestRemoteHasNoWayAround(t *testing.T) {
	const end = " HTTP/1.1\r\nHost: a\r\n"
	for name, c := range map[string]struct {
		text string
		code int
	}{
		"a path of 59 KiB":       {"GET /" + strings.Repeat("a", 59<<10) + end + "\r\n", 429},
		"a path of 70 KiB":       {"GET /" + strings.Repeat("a", 70<<10) + end + "\r\n", 414},
		"a query of 70 KiB":      {"GET /?" + strings.Repeat("a", 70<<10) + end + "\r\n", 429},
		"a header of 70 KiB":     {"GET /" + end + "X-User-Id: " + strings.Repeat("a", 70<<10) + "\r\n\r\n", 431},
		"12 KiB of <":            {"GET /" + end + "X-User-Id: " + strings.Repeat("<", 12<<10) + "\r\n\r\n", 429},
		"31 KiB of quotes":       {"GET /" + end + "X-User-Id: " + strings.Repeat(`"`, 31<<10) + "\r\n\r\n", 431},
		"a method of 70 KiB":     {strings.Repeat("A", 70<<10) + " /" + end + "\r\n", 431},
		"a byte that is no text": {"GET /" + end + "X-User-Id: \xff\r\n\r\n", 400},
		"another header":         {"GET /" + end + "X-Other: \xff" + strings.Repeat("a", 70<<10) + "\r\n\r\n", 429},
		"escapes":                {"GET /%ff%00" + end + "\r\n", 429},
	} {
		t.Run(name, func(t *testing.T) {
			_, there := hereAndThere(t, hourly("ip", 2, "client_ip"))
			for range 2 {
				if _, code := send(there, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); code != http.StatusTeapot {
					t.Fatalf("within the limit %d", code)
				}
			}
			if _, code := send(there, c.text); code != c.code {
				t.Errorf("%d, want %d", code, c.code)
			}
		})
	}
}

// Who hangs up before the edge has answered is not served: he would be uncounted.
func TestRemoteServesNobodyWhoIsGone(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	fault := answers{reply: client.Reply{Allowed: true, Undecided: true}, err: &client.Fault{Op: "check", Err: errors.New("canceled")}}
	limited, err := httplimit.Remote(fault, httplimit.RemoteConfig{})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	limited(ok).ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d, want 503", w.Code)
	}
}

// Whatever bytes a client writes, an edge elsewhere decides as one here, or the request is
// refused as no edge can be told of it.
func FuzzRemote(f *testing.F) {
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://h:1/x?y#z HTTP/1.0\r\nX-User-Id: u\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: b\r\n\r\n",
		"POST //a/../%2e;b HTTP/1.1\r\nHost: A:80\r\nX-User-Id: \xff<>\r\n\r\n", "GET http:x\xff HTTP/1.1\r\nHost: [::1]\r\nX-User-Id:\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: A:80\xc4\r\nX-User-Id:\xa0 <>\r\n\r\n", // one letter over both
	} {
		f.Add(text)
	}
	narrow := hourly("narrow", 1, "header.X-User-Id", "path", "host", "method")
	narrow.Match = limit.MatchSpec{Path: []string{"/x", "/a/**"}}
	f.Fuzz(func(t *testing.T, text string) {
		here, there := hereAndThere(t, narrow, hourly("ip", 2, "client_ip"))
		for n := range 4 {
			r, want := send(here, text)
			_, got := send(there, text)
			switch {
			case r == nil || got == want:
			case got == 400 && !(utf8.ValidString(r.URL.Opaque) && utf8.ValidString(r.Host) && utf8.ValidString(r.Header.Get("X-User-Id"))):
			case (got == 414 || got == 431) && len(text) > 10<<10:
			default:
				t.Fatalf("request %d: %d, want %d", n+1, got, want)
			}
		}
	})
}

// Whatever stands at an edge's address, and answers: a request is served where it says that
// it is allowed, in so many words, and else is denied as such or for want of a limiter,
// with a problem that can be read, and nobody waits for longer than his request lasts.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		`{"allowed":true}`, `{"allowed":true,"delay_ms":9223372036854775807}`, `{"allowed":false,"status":99,"policy":"p","decision_id":"\"","headers":{"Retry-After":"soon"}}`,
		`{"allowed":false,"status":1e9}`, `{"allowed":null}`, `{"allowed":false,"basis":{"cut_off":true,"age_ms":-9}}`, `{"detail":"x","field":"namespace"}`, "<html>", "", `[true]`, `{"allowed":true}{`,
	} {
		for _, status := range []uint16{200, 400, 404, 503, 302} {
			f.Add(status, text)
		}
	}
	f.Fuzz(func(t *testing.T, status uint16, text string) {
		said := 200 + int(status)%400
		edge := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(said)
			io.WriteString(w, text)
		})
		limiter, err := client.NewHTTPOver(&http.Client{Transport: straight{edge}}, "http://edge", client.Config{Timeout: time.Minute, FailClosed: true})
		if err != nil {
			t.Fatal(err)
		}
		limited, err := httplimit.Remote(limiter, httplimit.RemoteConfig{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		w := httptest.NewRecorder()
		limited(ok).ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		var reply struct {
			Allowed *bool `json:"allowed"`
		}
		allowed := said == 200 && json.Unmarshal([]byte(text), &reply) == nil && reply.Allowed != nil && *reply.Allowed
		served := w.Code == http.StatusTeapot && w.Body.Len() == 0 // a denial says why
		if served && !allowed || !served && (w.Code < 400 || w.Code > 599 || !json.Valid(w.Body.Bytes())) {
			t.Fatalf("%d %q: %d %s", said, text, w.Code, w.Body)
		}
	})
}
