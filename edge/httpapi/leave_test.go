package httpapi

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// Whoever fills a queue and leaves it with all but the last, again and again, has nobody
// come out sooner or together with others: the handler, and who asks for a proxy, is
// called at the outflow.
func TestWhoLeavesTheQueueLetsNobodyOvertake(t *testing.T) {
	for name, auth := range map[string]bool{"middleware": false, "auth": true} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, rules(perAddress("queue", queueOf(20, time.Second))), func(t *testing.T, b *bench) {
				began := time.Now()
				var mu sync.Mutex // guards served
				served := map[time.Duration]int{}
				serve := func(http.ResponseWriter, *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					served[time.Since(began)]++
				}
				h := b.api.Middleware("", http.HandlerFunc(serve))
				if auth {
					h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if status, _ := get(r.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.api.auth(w, r, "") })); status == 200 {
							serve(w, r)
						}
					})
				}
				var wg sync.WaitGroup
				ask := func(ctx context.Context) {
					wg.Go(func() { get(ctx, h) })
					synctest.Wait()
				}
				ask(t.Context())
				for round := range 4 {
					ctx, leave := context.WithCancel(t.Context())
					for range 4 {
						ask(ctx)
					}
					ask(t.Context())
					leave()
					synctest.Wait()
					if round == 1 {
						time.Sleep(2500 * time.Millisecond) // virtual
					}
				}
				wg.Wait()
				if want := map[time.Duration]int{0: 1, 5 * time.Second: 1, 10 * time.Second: 1, 15 * time.Second: 1, 20 * time.Second: 1}; !maps.Equal(served, want) {
					t.Errorf("served by time: %v, want %v", served, want)
				}
			})
		})
	}
}

// Who has no time to wait, and leaves at once, was the last: the next one has its place.
// The fake knows no max_delay.
func TestWhoCannotWaitLeavesNoEmptyPlace(t *testing.T) {
	rule := perAddress("bucket", limit.RateSpec{Algorithm: "token_bucket", Capacity: 1, Refill: limit.Flow{Units: 1, Per: time.Second}})
	rule.MaxDelay = 10 * time.Second
	for name, rule := range map[string]limit.RuleSpec{"queue": perAddress("queue", queueOf(3, time.Second)), "max_delay": rule} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{}
				b.api = b.over(t, limitertest.Node(t, rules(rule)))
				b.api.cfg.Now = time.Now
				h := b.api.Middleware("", teapot)
				get(t.Context(), h)
				for range 9 {
					short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					if status, took := get(short, h); status != 503 || took != 0 {
						t.Errorf("with too short a deadline: %d after %v, want 503 at once", status, took)
					}
					cancel()
				}
				if status, took := get(t.Context(), h); status != 418 || took != time.Second {
					t.Errorf("after all had left: %d after %v, want it served after a second", status, took)
				}
			})
		})
	}
}
