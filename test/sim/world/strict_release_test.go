package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A strict limit holds whoever gives back what, and where: what an edge gives back that
// cannot know whose charge it was stays spent there until its window ends, and what the
// edge that admitted it gives back is free at once.
func TestStrictHoldsWhereverSlotsAreReleased(t *testing.T) {
	const most = 10
	lease := 4 * time.Second
	for name, spec := range map[string]limit.RateSpec{
		"slots":       {Name: "slots", Algorithm: "concurrency", Limit: most, Lease: lease, Consistency: "strict"},
		"sub_windows": {Name: "r", Limit: most, Per: lease, Consistency: "strict"},
		"sliding_log": {Name: "r", Algorithm: "sliding_log", Limit: most, Per: lease, Consistency: "strict"},
	} {
		for seed := range uint64(6) {
			for _, anywhere := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, seed %d, anywhere %t", name, seed, anywhere), func(t *testing.T) {
					heldBack(t, spec, seed, anywhere, most, lease)
				})
			}
		}
	}
}

// heldBack has two edges take and release, and counts what is in use by an exact log.
func heldBack(t *testing.T, spec limit.RateSpec, seed uint64, anywhere bool, most int, lease time.Duration) {
	w := wide(t, 1, 2, spec)
	r := rand.New(rand.NewPCG(7, seed))
	type use struct {
		edge string
		at   time.Time
	}
	var used []use
	admitted, released := 0, 0
	for at := start; at.Before(start.Add(40 * time.Second)); at = at.Add(time.Duration(r.ExpFloat64() * float64(100*time.Millisecond))) {
		w.Advance(at)
		for len(used) > 0 && w.Now().Sub(used[0].at) >= lease {
			used = used[1:]
		}
		if len(used) > 0 && r.IntN(3) == 0 {
			i := r.IntN(len(used))
			edge := used[i].edge
			if anywhere {
				edge = w.Edges()[r.IntN(len(w.Edges()))]
			}
			w.Touch()
			req := w.Node(edge).Rules().Only().NewRequest()
			req.Set("user", "u")
			req.Ours = !anywhere // at any edge nobody can say so
			w.Node(edge).GiveBack(w.Now(), req)
			req.Release()
			used = append(used[:i:i], used[i+1:]...)
			released++
			continue
		}
		edge := w.Edges()[r.IntN(len(w.Edges()))]
		if check(w, edge, "u").Allowed {
			used = append(used, use{edge, w.Now()})
			admitted++
		}
		if len(used) > most {
			t.Fatalf("after %v %d are in use of %d", w.Now().Sub(start), len(used), most)
		}
	}
	// What is given back where it was admitted is free again: more pass than windows have.
	if windows := int(40 * time.Second / lease); !anywhere && admitted < most*windows {
		t.Errorf("%d admitted in %d windows of %d, %d of them released", admitted, windows, most, released)
	}
}
