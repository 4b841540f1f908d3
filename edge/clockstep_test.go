package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A clock that is set forward, or back by less than a window, frees nobody
// before it is time, and one that is set back locks nobody out for longer than
// the step or a window, whichever is shorter, beside the window that a limit
// lasts anyhow: counts that lie ahead of the clock count until it has passed
// them, or are left out as out of all reach.
func TestClockSteps(t *testing.T) {
	const window = time.Minute
	for name, spec := range map[string]limit.RateSpec{
		"fixed_window":   {Algorithm: "fixed_window", Limit: 10, Per: window},
		"first_hit":      {Algorithm: "fixed_window", Align: "first_hit", Limit: 10, Per: window},
		"sliding_window": {Algorithm: "sliding_window", Limit: 10, Per: window},
		"sub_windows":    {Limit: 10, Per: window},
		"sliding_log":    {Algorithm: "sliding_log", Limit: 10, Per: window},
		"token_bucket":   tokens(10, limit.Flow{Units: 10, Per: window}),
		"leaky_bucket":   {Name: "leaky", Algorithm: "leaky_bucket", Capacity: 10, Outflow: limit.Flow{Units: 10, Per: window}},
		"concurrency":    inFlight(10, window),
	} {
		for _, step := range []time.Duration{-time.Hour, -90 * time.Second, -10 * time.Second, -time.Second, time.Second, 90 * time.Second, time.Hour} {
			t.Run(name+"/"+step.String(), func(t *testing.T) {
				n := newNode(t, Config{}, perUser(spec))
				began := start.Add(20 * time.Second) // in the middle of a window
				now := began
				for range 10 {
					check(n, now, "u")
					now = now.Add(100 * time.Millisecond)
				}
				if d := check(n, now, "u"); d.Allowed {
					t.Fatalf("the eleventh: %+v", d)
				}
				settleFrames(n, now)
				now = now.Add(step)
				// Time goes on from there: who was at the limit gets no second helping
				// at once, and is free again when a window and what rounds it are over.
				admitted, free := 0, time.Duration(-1)
				for passed := time.Duration(0); passed <= 2*window+3*time.Second; passed += 500 * time.Millisecond {
					at := now.Add(passed)
					d := check(n, at, "u")
					if d.Allowed {
						admitted++
						if free < 0 {
							free = passed
						}
					} else if d.RetryAfter > window+min(max(-step, 0), 2*window)+3*time.Second {
						t.Fatalf("%v after the step denied for %v", passed, d.RetryAfter)
					}
					if passed == 5*time.Second && step < 0 && step > -window && admitted > 2 && name != "fixed_window" {
						t.Fatalf("five seconds after a step back %d were admitted, want the limit to hold", admitted)
					}
					if passed%(5*time.Second) == 0 {
						settleFrames(n, at)
						n.Tick(at)
					}
				}
				if free < 0 || free > window+min(max(-step, 0), window)+3*time.Second {
					t.Errorf("free again %v after the step of %v", free, step)
				}
				if admitted > 35 {
					t.Errorf("%d admitted in two windows, want about 20", admitted)
				}
			})
		}
	}
}
