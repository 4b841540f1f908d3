package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

// Who gives back by receipt frees what he had, if that still counts, and nobody else's: be
// it that he comes just after it has left the window.
func TestStrictHoldsWithLateReceipts(t *testing.T) {
	const most = 10
	window := 4 * time.Second
	for name, spec := range map[string]limit.RateSpec{
		"slots":          {Name: "slots", Algorithm: "concurrency", Limit: most, Lease: window, Consistency: "strict"},
		"sub_windows":    {Name: "r", Limit: most, Per: window, Consistency: "strict"},
		"sliding_window": {Name: "r", Algorithm: "sliding_window", Limit: most, Per: window, Consistency: "strict"},
		"sliding_log":    {Name: "r", Algorithm: "sliding_log", Limit: most, Per: window, Consistency: "strict"},
	} {
		for _, late := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, late %t", name, late), func(t *testing.T) {
				for seed := range uint64(3) {
					givenBackByReceipt(t, spec, seed, late, most, window)
				}
			})
		}
	}
}

// givenBackByReceipt has two edges admit, and give half of it back, and counts what is in use
// by an exact log.
func givenBackByReceipt(t *testing.T, spec limit.RateSpec, seed uint64, late bool, most int, window time.Duration) {
	w := wide(t, 1, 2, spec)
	r := rand.New(rand.NewPCG(7, seed))
	type use struct {
		edge     string
		at, back time.Time // back: when it is given back, if ever
		charges  []limit.Charge
	}
	var used []use
	admitted := 0
	for at := start; at.Before(start.Add(40 * time.Second)); at = at.Add(time.Duration(r.ExpFloat64() * float64(60*time.Millisecond))) {
		w.Advance(at)
		used = slices.DeleteFunc(used, func(u use) bool {
			due := !u.back.IsZero() && !w.Now().Before(u.back)
			if due {
				w.Touch()
				w.Node(u.edge).Refund(w.Now(), u.charges, 0)
			}
			return due || w.Now().Sub(u.at) >= 2*window
		})
		edge := w.Edges()[int(w.Now().Sub(start)/(2*time.Second))%2] // most asks come to one, then to the other
		if r.IntN(4) == 0 {
			edge = w.Edges()[r.IntN(2)]
		}
		req := w.Node(edge).Rules().Only().NewRequest()
		req.Set("user", "u")
		req.Receipt = true
		w.Touch()
		if w.Node(edge).Check(w.Now(), req).Allowed {
			u := use{edge: edge, at: w.Now(), charges: slices.Clone(req.Charges)}
			if r.IntN(2) == 0 {
				u.back = u.at.Add(time.Duration(r.Int64N(int64(window - 100*time.Millisecond))))
				if late {
					u.back = u.at.Add(window + time.Duration(r.IntN(100))*time.Millisecond)
				}
			}
			used = append(used, u)
			admitted++
		}
		req.Release()
		in := 0
		for _, u := range used {
			if w.Now().Sub(u.at) < window {
				in++
			}
		}
		if in > most {
			t.Fatalf("seed %d: after %v %d are in use of %d", seed, w.Now().Sub(start), in, most)
		}
	}
	least := most * int(40*time.Second/window)
	if late { // nothing is free before its time
		least = least * 8 / 10
	}
	if admitted < least {
		t.Errorf("seed %d: %d admitted, want %d at least", seed, admitted, least)
	}
}
