package world

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Slots that are released without a receipt, where they were taken or at any edge of
// the PoP, are all free again: edges that release at once do not give back the same
// charge. Ten of twenty are in use, and none is let go by its lease in time.
func TestReleasedSlotsAreFree(t *testing.T) {
	for _, test := range []struct {
		name           string
		regions, edges int
		anywhere       bool
	}{
		{"two regions", 2, 1, false},
		{"three regions of two edges", 3, 2, false},
		{"two edges", 1, 2, false},
		{"at any of two edges", 1, 2, true},
	} {
		for _, hz := range []int{5, 20, 100} {
			w := wide(t, test.regions, test.edges, limit.RateSpec{Name: "slots", Algorithm: "concurrency", Limit: 20, Lease: time.Minute})
			hold := 10*time.Second/time.Duration(hz) - time.Millisecond
			type slot struct {
				edge  string
				until time.Time
			}
			var held []slot
			r := rand.New(rand.NewPCG(1, uint64(hz)))
			for i := range 40 * hz {
				at := start.Add(time.Duration(i) * time.Second / time.Duration(hz))
				for len(held) > 0 && !at.Before(held[0].until) {
					w.Advance(held[0].until)
					w.Touch()
					n := w.Node(held[0].edge)
					req := n.Rules().Only().NewRequest()
					req.Set("user", "u")
					n.GiveBack(w.Now(), req)
					req.Release()
					held = held[1:]
				}
				w.Advance(at)
				e := w.Edges()[i%len(w.Edges())]
				if !check(w, e, "u").Allowed {
					t.Errorf("%s, %d a second: denied after %v with %d of 20 slots in use", test.name, hz, at.Sub(start), len(held))
					break
				}
				if test.anywhere {
					e = w.Edges()[r.IntN(len(w.Edges()))]
				}
				held = append(held, slot{e, at.Add(hold)})
			}
		}
	}
}
