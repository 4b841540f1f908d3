package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// One edge of two is cut off alone, of a queue that both keep full: each lets out what its
// share of the outflow is, from the first second on, and none more, and so it goes on.
func TestQueueOfAnEdgeCutOffAlone(t *testing.T) {
	for _, maxWait := range []time.Duration{0, 15 * time.Second} {
		t.Run(fmt.Sprint("max_wait=", maxWait), func(t *testing.T) {
			w := settled(t, 1, 2, limit.RateSpec{
				Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true, MaxWait: maxWait,
			})
			admitted := func(lasts time.Duration) map[string]int {
				n := map[string]int{}
				for range int(lasts / (500 * time.Millisecond)) {
					for _, e := range w.Edges() {
						if ask(w, e, 1).Allowed {
							n[e]++
						}
					}
					w.Advance(w.Now().Add(500 * time.Millisecond))
				}
				return n
			}
			admitted(2 * time.Minute)
			w.CutPath("r0-0", "r0", true)
			w.CutPath("r0", "r0-0", true)
			for i := range 6 {
				n := admitted(10 * time.Second)
				for _, e := range w.Edges() {
					if n[e] < 4 || n[e] > 6 {
						t.Errorf("%d s after the cut %s let out %d in 10 s, want 5", 10*i, e, n[e])
					}
				}
			}
			w.CutPath("r0-0", "r0", false)
			w.CutPath("r0", "r0-0", false)
			for i := range 3 {
				if n := admitted(10 * time.Second); n["r0-0"]+n["r0-1"] > 15 {
					t.Errorf("%d s after the heal %v were let out in 10 s", 10*i, n)
				}
			}
		})
	}
}
