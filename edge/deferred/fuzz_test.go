package deferred

import (
	"bufio"
	"context"
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
		if n := front.held.Load(); n != 0 {
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
