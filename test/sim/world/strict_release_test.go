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
		edge  string
		at    time.Time
		spent time.Duration
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
			if !anywhere { // at any edge nobody can say so
				req.Spent = used[i].spent
			}
			w.Node(edge).GiveBack(w.Now(), req)
			req.Release()
			used = append(used[:i:i], used[i+1:]...)
			released++
			continue
		}
		edge := w.Edges()[r.IntN(len(w.Edges()))]
		w.Touch()
		req := w.Node(edge).Rules().Only().NewRequest()
		req.Set("user", "u")
		req.Dates = true
		if w.Node(edge).Check(w.Now(), req).Allowed {
			used = append(used, use{edge, w.Now(), req.Spent})
			admitted++
		}
		req.Release()
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

// Who gives back by the id of what he was admitted by frees his slot, and has another at once, though the
// edge has so many other keys that with each new one it forgets another.
func TestSlotsComeBackThoughOthersAreForgotten(t *testing.T) {
	docs := []limit.Document{{Namespace: "t", Rules: []limit.RuleSpec{
		{Name: "hour", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 1000, Per: time.Hour, Consistency: "strict"}}},
		{Name: "jobs", Key: []string{"job"}, Rates: []limit.RateSpec{{Algorithm: "concurrency", Limit: 10, Lease: time.Minute, Consistency: "strict"}}},
	}}}
	w := wideOf(t, 1, 2, func(c *Config) { c.MaxKeys, c.Rules = 8192, docs }, limit.RateSpec{Limit: 1, Per: time.Second})
	w.Advance(start.Add(time.Minute))
	n := w.Node(w.Edges()[0])
	ask := func(name, value string, call func(req *limit.Request)) {
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		req.Set(name, value)
		w.Touch()
		call(req)
	}
	nth := 0
	for client := range 6 { // one job a second, of half a second each, for half a minute
		job, denied := fmt.Sprint("j", client), 0
		for range 30 {
			admitted, spent := false, time.Duration(0)
			ask("job", job, func(req *limit.Request) {
				req.Dates = true
				admitted, spent = n.Check(w.Now(), req).Allowed, req.Spent
			})
			for range 150 {
				for _, user := range []int{nth, nth - 150} { // each comes twice, and has spent something
					ask("user", fmt.Sprint("u", user), func(req *limit.Request) { n.Check(w.Now(), req) })
				}
				nth++
			}
			w.Advance(w.Now().Add(500 * time.Millisecond))
			if admitted {
				ask("job", job, func(req *limit.Request) {
					req.Spent = spent
					n.GiveBack(w.Now(), req)
				})
			} else {
				denied++
			}
			w.Advance(w.Now().Add(500 * time.Millisecond))
		}
		if denied > 4 { // the first, which has no right yet, and again where its own counter is forgotten
			t.Errorf("client %d, who has one of 10 slots at a time: %d of 30 jobs denied", client, denied)
		}
	}
}
