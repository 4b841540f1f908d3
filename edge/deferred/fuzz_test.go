package deferred

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// Whatever a client sends, no handler panics or hangs, a request is counted once, or not at
// all, and no more waits than who was told so: of that the memory is given back.
func FuzzFront(f *testing.F) {
	for _, text := range []string{
		"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
		"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nIdempotency-Key: \"k\"\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\nabc",
		"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\nExpect: 100-continue\r\n\r\nabc",
		"DELETE //a/%2e%2e?%zz;x HTTP/1.0\r\nConnection: x, close\r\nX: y\r\nUser-Agent:\r\nUser-Agent: b\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n",
		"GET /.well-known/spillgate/deferred/../x HTTP/1.1\r\nHost: h\r\n\r\n", "GET /.well-known/spillgate/deferred/00000000000000000000000000000000 HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET http://u:p@else/x HTTP/1.1\r\nHost: \xff\r\nX-Forwarded-For: \x80\r\nCookie: \xff\xfe\r\n\r\n", "G<T / HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET http:J/u HTTP/1.1\r\nHost: h\r\n\r\n", // was kept, and could not be read again
	} {
		f.Add(text)
	}
	j := newJet(f)
	q := j.queue(j.connect(), Config{Bytes: 4 << 20})
	rule := limit.RuleSpec{Name: "all", Rates: []limit.RateSpec{{Limit: 1, Per: 24 * time.Hour}}}
	rule.OnLimit.Defer = limit.DeferSpec{For: time.Hour, Methods: all}
	node, err := edge.Local(rule)
	if err != nil {
		f.Fatal(err)
	}
	denied := 0
	api, err := httpapi.New(node, httpapi.Config{Replayed: Replayed, Denied: func(r *http.Request, req *limit.Request, d *limit.Decision) {
		denied++
		Denied(r, req, d)
	}})
	if err != nil {
		f.Fatal(err)
	}
	reached := 0
	front := front(q, api.Middleware("", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ })), 1000)
	get(front, call("GET", "/", "")) // uses the limit up
	reached = 0
	f.Fuzz(func(t *testing.T, text string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return // net/http answers it
		}
		r.RemoteAddr = "192.0.2.1:1"
		denied = 0
		w := httptest.NewRecorder()
		hangs := time.AfterFunc(20*time.Second, func() { panic("the front hangs") })
		front.ServeHTTP(w, r)
		hangs.Stop()
		asks := strings.HasPrefix(r.URL.Path, StatusPath)
		if reached > 0 || denied > 1 || (denied == 0) != asks {
			t.Errorf("%q: counted %d times, and %d reached the upstream", text, denied, reached)
		}
		if n := front.held.Taken(); n != 0 {
			t.Errorf("%q: %d bytes are held, of nobody", text, n)
		}
		waiting, dead, err := q.Depth(context.Background())
		if err != nil || dead != 0 || waiting != 0 && w.Code != http.StatusAccepted || waiting != 1 && w.Code == http.StatusAccepted {
			t.Errorf("%q: status %d, and %d wait, %d are dead, %v", text, w.Code, waiting, dead, err)
		}
		switch {
		case asks && w.Code >= 400 && w.Code != http.StatusInternalServerError, !asks && w.Code == http.StatusTooManyRequests:
			return
		case w.Code != http.StatusAccepted:
			t.Fatalf("%q: status %d %s", text, w.Code, w.Body)
		}
		m, err := q.waiting.GetLastMsgForSubject(context.Background(), q.subject("*"))
		if err != nil {
			t.Fatal(err)
		}
		kept, err := requestOf(m.Header, m.Data)
		if err != nil || kept.HTTP.Method != r.Method || kept.Client != r.RemoteAddr || len(kept.Body) > 1000 {
			t.Errorf("%q: kept is %+v, %v", text, kept, err)
		}
		statuses, err := q.js.Stream(context.Background(), "KV_"+q.bucket)
		if err == nil {
			err = statuses.Purge(context.Background())
		}
		if err == nil {
			err = q.waiting.Purge(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever an operator's tool asks, it is told what is wrong with that, or is answered, in JSON;
// and letters go only where it names them.
func FuzzAdmin(f *testing.F) {
	id := NewID()
	for _, target := range []string{"", "/", "/tenants?limit=1", "/waiting?tenant=a&from=2&limit=3", "/waiting?tenant=*", "/dead?from=18446744073709551615&limit=+1", "/dead?limit=%zz",
		"/dead/" + id, "/dead/" + id + "/revive", "/dead/*/revive", "/dead/%3e", "/" + id, "/../deferred", "/x.y>", "/dead/" + strings.ToUpper(id)} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			f.Add(method, target)
		}
	}
	j := newJet(f)
	q := j.queue(j.connect(), Config{})
	h := front(q, nil, 0).Admin()
	r := request("a")
	m, err := r.message(q.grave(r.ID))
	if err != nil {
		f.Fatal(err)
	}
	if _, err := q.js.PublishMsg(f.Context(), m); err != nil {
		f.Fatal(err)
	}
	put(f, q, "a", time.Time{})
	f.Fuzz(func(t *testing.T, method, target string) {
		if strings.Contains(target, r.ID) { // which nobody knows
			return
		}
		r, err := http.NewRequest(method, "http://localhost/admin/v1/deferred"+target, nil)
		if err != nil {
			return
		}
		w := get(h, r)
		if w.Code >= 500 || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" && w.Code != http.StatusNoContent && w.Code/100 != 3 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %q: %d %s", method, target, w.Code, w.Body)
		}
		if waiting, dead, err := q.Depth(context.Background()); err != nil || waiting != 1 || dead != 1 {
			t.Errorf("%s %q: %d %s; then %d wait and %d are dead, %v", method, target, w.Code, w.Body, waiting, dead, err)
		}
	})
}
