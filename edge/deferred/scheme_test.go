package deferred

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// A request that came over TLS is said to have, as it is done later, and if it is revived: an
// upstream that wants TLS would send it elsewhere, and it would be taken for done.
func TestSchemeIsKept(t *testing.T) {
	for scheme, state := range map[string]*tls.ConnectionState{"http": nil, "https": {}} {
		t.Run(scheme, func(t *testing.T) {
			j := newJet(t)
			q := j.queue(j.connect(), Config{Tries: 1})
			says := make(chan string, 10)
			var failed atomic.Bool
			f := front(q, site(t, 500*time.Millisecond, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				says <- r.Header.Get("X-Forwarded-Proto") + " " + r.Header.Get("Forwarded")
				if r.Header.Get(IdempotencyKey) != "" && failed.CompareAndSwap(false, true) { // the one that waited
					w.WriteHeader(http.StatusBadGateway)
				}
			})), 0)
			work(t, q, f.Send)
			var told struct{ ID string }
			for range 2 {
				r := call("PUT", scheme+"://api.example/a", "x")
				r.TLS = state
				_ = json.Unmarshal(get(f, r).Body.Bytes(), &told) // the upstream's is empty
			}
			becomes(t, q, told.ID, Dead)
			again, err := q.Revive(t.Context(), told.ID)
			if err != nil {
				t.Fatal(err)
			}
			becomes(t, q, again, Done)
			want := scheme + ` for=192.0.2.7;host="api.example";proto=` + scheme
			for _, which := range []string{"first", "one that waited", "revived one"} {
				if got := <-says; got != want {
					t.Errorf("the upstream is told %q of the %s, want %q", got, which, want)
				}
			}
		})
	}
}

// What an edge of an earlier version kept says no scheme, and came over http as far as is known.
func TestSchemeOfOldMessages(t *testing.T) {
	r := request("acme")
	r.HTTP.TLS = &tls.ConnectionState{}
	m, err := r.message("x")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := requestOf(m.Header, m.Data); err != nil || got.HTTP.TLS == nil {
		t.Errorf("%+v, %v; want one that came over TLS", got, err)
	}
	m.Header.Del(headerScheme)
	if got, err := requestOf(m.Header, m.Data); err != nil || got.HTTP.TLS != nil {
		t.Errorf("%+v, %v; want one that did not come over TLS", got, err)
	}
}
