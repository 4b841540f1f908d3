//go:build !race

// The race detector makes sync.Pool forget at random, so allocations are
// counted without it; ./test/run runs these tests both ways.

package edge

import (
	"net/http"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// One rate takes another path through Check than several do, and each algorithm
// folds in its own way. The requests come faster than the limits allow, so that
// denials are among them.
func TestCheckAllocatesNothing(t *testing.T) {
	window := limit.RateSpec{Limit: 50, Per: time.Second}
	for _, tt := range []struct {
		name  string
		rates []limit.RateSpec
	}{
		{"one rate", []limit.RateSpec{window}},
		{"three rates", []limit.RateSpec{
			window,
			{Name: "minute", Limit: 10_000, Per: time.Minute},
			{Name: "fixed", Limit: 1000, Per: time.Second, Algorithm: "fixed_window"},
		}},
		{"sliding_window", []limit.RateSpec{{Limit: 50, Per: time.Second, Algorithm: "sliding_window"}}},
		{"sliding_log", []limit.RateSpec{{Limit: 50, Per: time.Second, Algorithm: "sliding_log"}}},
		{"token_bucket", []limit.RateSpec{{Algorithm: "token_bucket", Capacity: 50, Refill: limit.Flow{Units: 50, Per: time.Second}}}},
		{"leaky_bucket", []limit.RateSpec{{Algorithm: "leaky_bucket", Capacity: 50, Outflow: limit.Flow{Units: 50, Per: time.Second}}}},
		{"queue", []limit.RateSpec{{Algorithm: "leaky_bucket", Capacity: 50, Outflow: limit.Flow{Units: 50, Per: time.Second}, Queue: true}}},
		{"bucket and window", []limit.RateSpec{
			window, {Name: "burst", Algorithm: "token_bucket", Capacity: 50, Refill: limit.Flow{Units: 50, Per: time.Second}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(tt.rates...))
			ns := n.Rules().Only()
			header := http.Header{"X-Whatever": {"1"}}
			user, ok := ns.Slot("user")
			if !ok {
				t.Fatal("the namespace has no slot for user")
			}
			now := start
			pooled := func(step time.Duration) limit.Decision {
				now = now.Add(step)
				req := ns.NewRequest()
				req.SetHTTP("GET", "/x", "h", "192.0.2.1", header)
				req.Set("user", "u")
				d := n.Check(now, req)
				req.Release()
				return d
			}
			for i := range 20000 { // through many windows, so that every slice was there once
				pooled(7 * time.Millisecond)
				if i%100 == 0 {
					settleFrames(n, now)
				}
			}
			settleFrames(n, now)
			kept := ns.NewRequest()
			defer kept.Release()
			again := func(step time.Duration) limit.Decision {
				now = now.Add(step)
				kept.Reset()
				kept.SetSlot(user, "u")
				return n.Check(now, kept)
			}
			again(time.Millisecond)
			for _, way := range []struct {
				name string
				ask  func(time.Duration) limit.Decision
			}{{"NewRequest to Release", pooled}, {"Reset and SetSlot", again}} {
				const checks = 100 // a run, so that what allocates only now and then shows too
				allowed, denied := 0, 0
				if got := testing.AllocsPerRun(50, func() {
					for range checks {
						if way.ask(3 * time.Millisecond).Allowed {
							allowed++
						} else {
							denied++
						}
					}
				}); got != 0 {
					t.Errorf("%s: %d calls of Check allocate %v times, want 0", way.name, checks, got)
				}
				if allowed == 0 || denied == 0 {
					t.Errorf("%s: %d allowed and %d denied, want some of both", way.name, allowed, denied)
				}
			}
		})
	}
}

// A key that has exceptions is decided without allocations, too.
func TestExceptionsAllocateNothing(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1 << 40, Per: time.Hour}, limit.RateSpec{Name: "burst", Limit: 10, Per: time.Minute}))
	exceptAll(t, n, start, resetOf(7, "u"), limit.Exception{Kind: limit.KeyGrant, Rate: "burst", Amount: 5, Until: start.Add(time.Hour), Key: []string{"u"}})
	for i := range 50 {
		check(n, start, []string{"u", "other"}[i%2])
	}
	for _, user := range []string{"u", "other"} {
		if got := testing.AllocsPerRun(100, func() { check(n, start, user) }); got != 0 {
			t.Errorf("%s: %v allocations a request, want none", user, got)
		}
	}
}

// Nothing is looked for again, nor kept, that no reading of a path changes.
func TestReadingsAllocateNothing(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1 << 40, Per: time.Hour}))
	others := []string{"/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i"}
	if got := testing.AllocsPerRun(100, func() {
		req := readAs(n, "u", "/a", others...)
		n.Check(start, req)
		req.Release()
	}); got != 0 {
		t.Errorf("%v allocations a request, want none", got)
	}
}
