package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// What asks once more for a request that waits is no client: its denials are counted apart,
// and take no place among those that clients may ask about.
func TestReplaysAreNoClients(t *testing.T) {
	b := newBench(t, perClient(1))
	b.api.cfg.Replayed = func(r *http.Request) bool { return r.Header.Get("X-Replay") != "" }
	h := b.api.Middleware("", http.NotFoundHandler())
	remembered := func() (n int) {
		for i := range b.api.denials {
			n += len(b.api.denials[i].list)
		}
		return n
	}
	ask := func(replay string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/api/x", nil)
		if replay != "" {
			r.Header.Set("X-Replay", replay)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	ask("")
	ask("")
	for range 10 {
		if w := ask("1"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || w.Body.Len() > 0 {
			t.Fatalf("%d %v %s, want 429, when to come again, and no more", w.Code, w.Header(), w.Body)
		}
	}
	for result, want := range map[string]float64{"allow": 1, "deny": 1, "replay_deny": 10} {
		if got := b.metric(t, "spillgate_decisions_total", "result", result); got != want {
			t.Errorf("decisions with the result %s: %v, want %v", result, got, want)
		}
	}
	if n := remembered(); n != 1 {
		t.Errorf("%d denials are remembered, want the client's", n)
	}
}
