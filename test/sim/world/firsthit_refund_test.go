package world

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A window that begins with the first hit begins with the first that is left, at every
// edge: with one that was given back, edges would never come to one window, and each
// would admit the limit in its own.
func TestHitsGivenBackBeginNoWindow(t *testing.T) {
	for _, given := range []int{0, 1, 2} { // of the two hits before the ten
		t.Run(fmt.Sprintf("%d given back", given), func(t *testing.T) {
			w := wide(t, 1, 2, limit.RateSpec{Name: "r", Algorithm: "fixed_window", Align: "first_hit", Limit: 12, Per: time.Minute, Consistency: "loose"})
			a, b := w.Edges()[0], w.Edges()[1]
			take := func(edge string, most int) (admitted int, charges []limit.Charge) {
				n := w.Node(edge)
				for range most {
					req := n.Rules().Only().NewRequest()
					req.Set("user", "u")
					req.Receipt = true
					w.Touch()
					if n.Check(w.Now(), req).Allowed {
						admitted++
						charges = append(charges, slices.Clone(req.Charges)...)
					}
					req.Release()
				}
				return admitted, charges
			}
			w.Advance(start)
			_, first := take(a, 1)
			w.Advance(start.Add(10 * time.Second))
			_, second := take(a, 1)
			for _, c := range append(first, second...)[:given] {
				w.Touch()
				w.Node(a).Refund(w.Now(), []limit.Charge{c}, 0)
			}
			begun := []time.Duration{0, 10 * time.Second, 30 * time.Second}[given]
			w.Advance(start.Add(30 * time.Second))
			take(b, 1)
			w.Advance(start.Add(31 * time.Second)) // it has heard of the others by now
			if got, _ := take(b, 20); got != 9+given {
				t.Fatalf("b admits 1 and %d, want the rest of 12, %d", got, 10+given)
			}
			// Slices are of 1.5 s: edges know each other's hits by them.
			for at := begun + 32*time.Second; at < begun+57*time.Second; at += 5 * time.Second {
				w.Advance(start.Add(max(at, 34*time.Second)))
				if got, _ := take(a, 3); got != 0 {
					t.Fatalf("at %v a admits %d, of a window that began at %v and is full", at, got, begun)
				}
			}
			w.Advance(start.Add(begun + time.Minute + 2*time.Second))
			if got, _ := take(a, 3); got != 3 {
				t.Errorf("a admits %d of 3 when the window that began at %v is over", got, begun)
			}
		})
	}
}
