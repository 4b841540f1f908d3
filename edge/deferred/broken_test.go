package deferred

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Behind the reverse proxy an upstream breaks off: where it gave no answer the letter says that,
// and no status of its own, and where it gave half of one the request is done, and says why.
func TestAnswersThatBreakOff(t *testing.T) {
	for _, c := range []struct {
		says   string // of the upstream, before it closes
		state  State
		status int
		reason string
	}{
		{"", Dead, 0, "given up after 2 tries: the upstream gave no answer: http_response_incomplete"},
		{"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", Dead, 502, "given up after 2 tries: the upstream answered 502"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", Done, 200, errBroken.Error()},
		{"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfull", Done, 200, ""},
	} {
		upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, c.says)
			_ = conn.(*net.TCPConn).CloseWrite()
			conn.Close()
		})
		rule := limit.RuleSpec{Name: "per-client", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Second}}}
		rule.OnLimit.Defer = limit.DeferSpec{For: time.Hour, Methods: all}
		j := newJet(t)
		q := j.queue(j.connect(), Config{Tries: 2})
		r := &Request{ID: NewID(), Tenant: "t", Client: "192.0.2.1:4711", Expires: time.Now().Add(time.Hour), HTTP: call("PUT", "http://api.example/a", "hello"), Body: []byte("hello")}
		if err := q.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		work(t, q, front(q, behind(t, upstream, rule), 0).Send)
		if s := becomes(t, q, r.ID, c.state); s.Status != c.status || s.Reason != c.reason {
			t.Errorf("%q: %s with %d, %q; want %d, %q", strings.SplitN(c.says, "\r\n", 2)[0], s.State, s.Status, s.Reason, c.status, c.reason)
		}
	}
}
