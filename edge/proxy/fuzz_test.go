package proxy

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// inspector is an upstream in memory that looks at what it is sent.
type inspector struct {
	canned
	asked *http.Request
}

func (i *inspector) RoundTrip(r *http.Request) (*http.Response, error) {
	i.asked = r
	return i.canned.RoundTrip(r)
}

// Whatever a client sends, no handler panics, the upstream is asked what it was meant to
// be, and by whom, and what it was not asked has counted nothing.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET //a/%2e%2e/b?q=%zz;x HTTP/1.1\r\nHost: h:80\r\nX-Forwarded-For: 192.0.2.9\r\nConnection: x-forwarded-for, close\r\n\r\n",
		"POST http://u:p@else/x HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", "OPTIONS * HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n", "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n",
		"GET http://%C3%A4/ HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", "GET x:y HTTP/1.1\r\nHost: h\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nforwarded: for=x\r\nX_Real_IP: x\r\n\r\n",
	} {
		f.Add(text)
	}
	node := limitertest.Node(f, limit.Document{Namespace: "site", Defaults: limit.Defaults{Scope: "edge"}, Rules: []limit.RuleSpec{hourly(1 << 40)}})
	api, err := httpapi.New(node, httpapi.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return // net/http answers it
		}
		r.RemoteAddr = "192.0.2.1:1"
		counter := NewMetrics(nil)
		p, err := New(api, nil, Config{Upstream: mustURL(t, "http://upstream.example/base"), MaxBody: 1000, Metrics: counter})
		if err != nil {
			t.Fatal(err)
		}
		upstream := &inspector{}
		p.transport = upstream
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		asked := upstream.asked
		if asked == nil {
			if w.Code < 400 || w.Header()["Ratelimit"] != nil && w.Code != 400 {
				t.Errorf("%q: %d %v, and the upstream was not asked", text, w.Code, w.Header())
			}
			return
		}
		if asked.URL.Host != "upstream.example" || asked.URL.Scheme != "http" || asked.URL.User != nil || !strings.HasPrefix(asked.URL.RequestURI(), "/base") {
			t.Errorf("%q: the upstream was asked for %v", text, asked.URL)
		}
		if asked.Host != r.Host || !httpguts.ValidHostHeader(asked.Host) {
			t.Errorf("%q: the upstream was asked for the host %q", text, asked.Host)
		}
		if !slices.Equal(asked.Header["X-Forwarded-For"], []string{"192.0.2.1"}) || len(asked.Header["Forwarded"]) != 1 || !strings.HasPrefix(asked.Header["Forwarded"][0], "for=192.0.2.1;") {
			t.Errorf("%q: the upstream was told %v", text, asked.Header)
		}
		for name := range asked.Header {
			if name != "X-Forwarded-For" && name != "X-Forwarded-Host" && name != "X-Forwarded-Proto" && name != "Forwarded" && claims(name) {
				t.Errorf("%q: the upstream was told %s", text, name)
			}
		}
		if up := asked.Header.Get("Upgrade"); up != "" && !httpapi.MayUpgrade(asked.Header) {
			t.Errorf("%q: the upstream may switch to %s", text, up)
		}
	})
}
