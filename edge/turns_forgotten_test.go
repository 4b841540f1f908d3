package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Who is known by slices alone, since its record was forgotten, is told no turn before
// those who were told theirs; nor one that is later by more than a slice.
func TestForgottenTurnsAreTakenForTheLatest(t *testing.T) {
	const pace = 100 * time.Millisecond
	for _, scope := range []string{"edge", "global"} {
		for offset := time.Duration(0); offset < 400*time.Millisecond; offset += 7 * time.Millisecond {
			for came := 1; came < 12; came++ {
				t.Run(fmt.Sprint(scope, ", ", came, " at ", offset), func(t *testing.T) {
					n := newNode(t, Config{View: mapView{}}, perUser(limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: pace}, Queue: true, Scope: scope}))
					now, last := start.Add(offset), start
					for range came {
						w, _ := join(t, n, now, 1)
						last = w.turn
						now = now.Add(3 * time.Millisecond)
					}
					forgetAll(n, now)
					width := n.Rules().Rules()[0].Rates[0].Width
					for range 3 {
						w, ok := join(t, n, now, 1)
						if late := w.turn.Sub(last); !ok || late < pace-time.Microsecond || late > pace+width {
							t.Errorf("told to come %v after the one before, want %v, or up to %v more", late, pace, width)
						}
						last, now, width = w.turn, now.Add(time.Millisecond), 0
					}
				})
			}
		}
	}
}

// Turns go back with a clock that is set back, also where nobody was charged since what is
// known of them was forgotten, or rules changed: who comes then waits for a full queue at
// the most.
func TestTurnsGoBackWithTheClock(t *testing.T) {
	const full = 40 * time.Second
	rules := func(pace, most time.Duration, scope string) limit.RuleSpec {
		return perUser(limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: pace}, Queue: true, MaxWait: most, Scope: scope})
	}
	for _, scope := range []string{"edge", "global"} {
		for _, most := range []time.Duration{0, 10 * time.Second} {
			for name, pace := range map[string]time.Duration{"the same": time.Second, "in the same slices": 900 * time.Millisecond, "in others": 100 * time.Millisecond} {
				for _, forgotten := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %v at most, a pace %s, forgotten: %v", scope, most, name, forgotten), func(t *testing.T) {
						n := newNode(t, Config{View: mapView{}}, rules(time.Second, most, scope))
						for range 45 {
							join(t, n, start, 1)
						}
						if forgotten {
							forgetAll(n, start)
						}
						n.SetRules(compile(t, rules(pace, most, scope)))
						join(t, n, start, 1)
						back := start.Add(-time.Hour)
						for now := back; ; now = now.Add(time.Second) {
							n.Tick(now)
							if w, ok := join(t, n, now, 1); ok {
								if w.turn.Sub(back) > full+time.Second {
									t.Errorf("%v after the clock was set back somebody is told to come in %v", now.Sub(back), w.turn.Sub(now))
								}
								break
							}
							if now.Sub(back) > full {
								t.Fatalf("nobody is let in within %v", full)
							}
						}
					})
				}
			}
		}
	}
}
