package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// overDelays runs a test over a bucket of one, drained by one a second, whose
// rule has requests wait for room. The fake knows no max_delay.
func overDelays(t *testing.T, test func(t *testing.T, b *bench)) {
	rule := perAddress("bucket", limit.RateSpec{Algorithm: "token_bucket", Capacity: 1, Refill: limit.Flow{Units: 1, Per: time.Second}})
	rule.MaxDelay = 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		b := &bench{}
		b.api = b.over(t, limitertest.Node(t, rules(rule)))
		b.api.cfg.Now = time.Now
		test(t, b)
	})
}

func (b *bench) authHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.api.auth(w, r, "") })
}

// A rule that delays has middleware and /v1/auth hold requests back as long as
// they are told to wait.
func TestMaxDelayHoldsRequestsBack(t *testing.T) {
	overDelays(t, func(t *testing.T, b *bench) {
		for name, handler := range map[string]http.Handler{"middleware": b.api.Middleware("", teapot), "auth": b.authHandler()} {
			time.Sleep(time.Minute) // virtual: the bucket is full
			begun := time.Now()
			for i := range 5 {
				if status, _ := get(t.Context(), handler); status >= 429 {
					t.Errorf("%s: request %d: %d", name, i, status)
				}
			}
			if took := time.Since(begun); took != 4*time.Second {
				t.Errorf("%s: five requests, one after the other, took %v, want 4s", name, took)
			}
		}
	})
}

// Whoever gives up waiting for room gives it back.
func TestWhoeverGivesUpADelayIsNotCharged(t *testing.T) {
	overDelays(t, func(t *testing.T, b *bench) {
		for name, handler := range map[string]http.Handler{"middleware": b.api.Middleware("", teapot), "auth": b.authHandler()} {
			time.Sleep(time.Minute) // virtual: the bucket is full
			get(t.Context(), handler)
			for range 10 {
				ctx, leave := context.WithTimeout(t.Context(), 10*time.Millisecond)
				if status, _ := get(ctx, handler); status != 503 {
					t.Errorf("%s: gave up with %d, want 503", name, status)
				}
				leave()
			}
			if _, took := get(t.Context(), handler); took > time.Second {
				t.Errorf("%s: ten gave up, and the next waits %v, want at most 1s", name, took)
			}
		}
	})
}

// What a surface does between Admit and Wait does not put off the request's turn.
func TestTurnIsAnInstant(t *testing.T) {
	overDelays(t, func(t *testing.T, b *bench) {
		get(t.Context(), b.api.Middleware("", teapot))
		begun := time.Now()
		visit, admission := b.api.Admit(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), "")
		turn, waits := visit.Turn()
		if admission != Admitted || !waits || turn.Sub(begun) != time.Second {
			t.Fatalf("admission %v, waits %v, its turn after %v; want that in 1s", admission, waits, turn.Sub(begun))
		}
		time.Sleep(400 * time.Millisecond) // virtual
		if err := visit.Wait(t.Context()); err != nil || time.Since(begun) != time.Second {
			t.Errorf("it waited until %v, %v; want 1s", time.Since(begun), err)
		}
		visit.Serve(teapot, httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	})
}

// deadlines is an answer of which the last deadline is known.
type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.last = t
	return nil
}

// A turn that comes later than a server has answers written is answered all the same.
func TestLongTurnsAreAnswered(t *testing.T) {
	rule := perAddress("queue", limit.RateSpec{Algorithm: "leaky_bucket", Queue: true, Capacity: 2, Outflow: limit.Flow{Units: 1, Per: 10 * time.Minute}, Scope: "edge"})
	synctest.Test(t, func(t *testing.T) {
		b := &bench{}
		b.api = b.over(t, limitertest.Node(t, rules(rule)))
		b.api.cfg.Now = time.Now
		for i := range 2 {
			w := &deadlines{ResponseRecorder: httptest.NewRecorder(), last: time.Now().Add(writeTimeout)}
			b.authHandler().ServeHTTP(w, httptest.NewRequest("GET", "/v1/auth", http.NoBody))
			if w.Code != http.StatusOK || time.Now().After(w.last) {
				t.Errorf("request %d: %d, written %v after its deadline", i, w.Code, time.Since(w.last))
			}
		}
	})
}
