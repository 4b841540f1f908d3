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
