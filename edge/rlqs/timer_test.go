package rlqs

import (
	"fmt"
	"testing"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
	"github.com/spillgate/spillgate/test/alone"
)

// A limit holds behind data planes that report by their timer alone, as Envoys do, and let all
// pass once an assignment has expired; and once they have reported twice it is used.
func TestTimers(t *testing.T) {
	alone.Mark(t)
	for _, interval := range []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, time.Minute} {
		for _, c := range []struct {
			name string
			rate limit.RateSpec
			rps  []float64
		}{
			{"one", fixed(1000, 10*time.Second), []float64{300}},
			{"many", fixed(1000, 10*time.Second), []float64{100, 100, 100, 100}},
			{"unequal", fixed(1000, 10*time.Second), []float64{300, 30, 3}},
			{"less than the limit", fixed(1000, 10*time.Second), []float64{40, 30}},
			{"just the limit", fixed(1000, 10*time.Second), []float64{100}},
			{"a minute", fixed(6000, time.Minute), []float64{300, 30}},
			{"a token bucket", limit.RateSpec{Algorithm: "token_bucket", Capacity: 200, Refill: limit.Flow{Units: 100, Per: time.Second}}, []float64{100, 100, 100}},
		} {
			t.Run(fmt.Sprint(interval, "/", c.name), func(t *testing.T) {
				w := newWorld(t, Config{}, perUser(c.rate))
				asked := 0.0
				for i, rps := range c.rps {
					w.join(string(rune('a'+i)), rps, dataplane.Settings{Interval: interval, ByTimer: true, NoAssignment: denyAll, ExpiredFor: time.Hour, Fallback: allowAll})
					asked += rps
				}
				window, most := c.rate.Per, c.rate.Limit
				if c.rate.Capacity > 0 { // of a bucket: what may come in 10 s
					window, most = 10*time.Second, c.rate.Capacity+10*c.rate.Refill.Units
				}
				w.run(2*interval, nil)
				w.run(window-w.now.Sub(start)%window, nil)
				const windows = 12
				began := w.admitted()
				for i := range windows {
					before, held := w.admitted(), w.held()
					w.run(window, nil)
					if got := uint64(w.admitted() - before); got > most+held {
						t.Errorf("window %d: %d admitted, of %d and %d that were held when it began", i, got, most, held)
					}
				}
				of := min(float64(most-c.rate.Capacity), asked*window.Seconds())
				got := float64(w.admitted()-began) / windows / of
				t.Logf("%.2f of what may be is admitted", got)
				if got > 1.02 || got < 0.8 && interval == time.Second || got < 0.5 {
					t.Errorf("%.2f of what may be is admitted", got)
				}
			})
		}
	}
}

// An assignment that waited until it had ended is told nobody again: to its data plane, which
// has it no more, it would be one with all its tokens.
func TestExtensionsAreInTime(t *testing.T) {
	w := newWorld(t, Config{}, perUser(fixed(1000, time.Hour)))
	p := w.join("a", 1, dataplane.Settings{Interval: time.Minute, ByTimer: true, NoAssignment: denyAll, ExpiredFor: time.Hour, Fallback: denyAll})
	w.run(2*time.Second, nil)
	p.stuck, p.rps = true, 1000
	w.run(6*time.Second, nil) // all that it has is spent, and has ended
	p.stuck = false
	w.run(10*time.Second, func() {
		if used, admitted := w.used(), uint64(w.admitted()); used < admitted {
			t.Fatalf("at %v %d were admitted, and %d are charged", w.now.Sub(start), admitted, used)
		}
	})
}

// An assignment goes on while its data plane, which reports seldom, spends nothing of it: it
// is charged nothing more.
func TestAssignmentsGoOn(t *testing.T) {
	w := newWorld(t, Config{}, perUser(fixed(1000, time.Hour)))
	p := w.join("a", 1, dataplane.Settings{Interval: time.Minute, ByTimer: true, NoAssignment: denyAll})
	w.run(2*time.Second, nil)
	p.rps = 0
	used := w.used()
	w.run(55*time.Second, func() {
		if p.Strategy(w.now, user).GetTokenBucket() == nil {
			t.Fatalf("at %v its assignment has ended", w.now.Sub(start))
		}
	})
	if got := w.used(); got != used {
		t.Errorf("%d are charged, %d at first", got, used)
	}
}

var allowAll = &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: typev3.RateLimitStrategy_ALLOW_ALL}}
