package limit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

func firstHitRate(t testing.TB, most uint64) *limit.Rate {
	return compileRate(t, limit.RateSpec{Algorithm: "fixed_window", Align: "first_hit", Limit: most, Per: 4 * time.Second})
}

// With one edge the window begins and ends at its nanosecond.
func TestFirstHitAgainstModel(t *testing.T) {
	r := firstHitRate(t, 10)
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 10))
		e := &edge{rate: r}
		now := epoch + rng.Int64N(int64(time.Hour))
		anchor, count := int64(0), uint64(0)
		for step := range 200 {
			switch rng.IntN(4) {
			case 0:
				now += rng.Int64N(int64(r.Window) * 3 / 2)
			case 1:
				now = max(now, anchor+int64(r.Window)+int64(rng.IntN(3)-1))
			case 2:
				now += rng.Int64N(int64(r.Width))
			}
			cost := 1 + rng.Uint64N(4)
			if count > 0 && now >= anchor+int64(r.Window) {
				count = 0
			}
			want := count+cost <= 10
			if got := e.hit(cost, now); got != want {
				t.Fatalf("seed %d step %d: admitted %v, want %v with %d used since %d", seed, step, got, want, count, anchor)
			}
			if want && count == 0 {
				anchor = now
			}
			if want {
				count += cost
			} else if w := e.wait(cost, now); w != time.Duration(anchor+int64(r.Window)-now) {
				t.Fatalf("seed %d step %d: Wait = %v, want the end of the window %v ahead", seed, step, w, time.Duration(anchor+int64(r.Window)-now))
			}
			e.retire(now)
		}
	}
}

// The epoch is an instant like any other.
func TestFirstHitAtTheEpoch(t *testing.T) {
	e, got := &edge{rate: firstHitRate(t, 3)}, 0
	for range 6 {
		if e.hit(1, 0) {
			got++
		}
	}
	if got != 3 {
		t.Errorf("%d of 3 admitted", got)
	}
}

// Edges that hear of all hits of a window agree on what is used, and on its
// end to a slice, in whichever order they heard.
func TestFirstHitConverges(t *testing.T) {
	r := firstHitRate(t, 1000)
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 11))
		edges := [3]*edge{{rate: r}, {rate: r}, {rate: r}}
		now := epoch + rng.Int64N(int64(time.Hour))
		for window := range 3 {
			first, total := now, uint64(0)
			for i := range 1 + rng.IntN(20) {
				if i > 0 {
					now = min(now+rng.Int64N(int64(r.Width)*4), first+int64(r.Window)-int64(r.Width)*2)
				}
				e := edges[rng.IntN(3)]
				e.level(now)
				e.charge(1, now)
				total++
				if rng.IntN(3) == 0 {
					share(edges[rng.IntN(3)], edges[:])
				}
			}
			for _, e := range edges {
				share(e, edges[:])
			}
			for i, e := range edges {
				if l := e.level(now); l.Whole != total {
					t.Fatalf("seed %d window %d: edge %d has %d used, want %d", seed, window, i, l.Whole, total)
				}
				end := now + int64(e.wait(1000, now))
				if whole := first + int64(r.Window); end > whole || end <= whole-int64(r.Width) {
					t.Fatalf("seed %d window %d: edge %d ends it %v after the first hit, want a slice less than %v at most", seed, window, i, time.Duration(end-first), r.Window)
				}
				if l := e.level(first + int64(r.Window)); l.Whole != 0 {
					t.Fatalf("seed %d window %d: edge %d has %d used when it is over", seed, window, i, l.Whole)
				}
			}
			now = first + int64(r.Window) + int64(r.Width) + rng.Int64N(int64(r.Window)*3)
			for _, e := range edges {
				e.retire(now)
			}
		}
	}
}

// share lets an edge hear all that the others counted.
func share(to *edge, edges []*edge) {
	var others crdt.Vector
	for _, e := range edges {
		if e != to {
			for _, c := range e.own.Cells(nil) {
				others.Add(c)
			}
		}
	}
	to.others = others
}

// One that has just started finds the window in the slices of others.
func TestFirstHitFromSlicesAlone(t *testing.T) {
	r := firstHitRate(t, 10)
	at := func(slices int) int64 { return epoch + int64(slices)*int64(r.Width) }
	cells := []crdt.Cell{
		{Slice: r.SliceAt(at(0)), Charges: 4}, {Slice: r.SliceAt(at(39)), Charges: 5},
		{Slice: r.SliceAt(at(45)), Charges: 1}, {Slice: r.SliceAt(at(70)), Charges: 2},
	}
	// Slices ahead of now count at once: at first some of them.
	for slices, want := range map[int]uint64{0: 4 + 5 + 1, 39: 12, 45: 3, 70: 3, 84: 3, 85: 0} {
		if l := r.Used(cells, limit.Carry{}, at(slices)); l.Whole != want {
			t.Errorf("used at slice %d: %d, want %d", slices, l.Whole, want)
		}
	}
	var kept crdt.Vector
	for _, c := range cells {
		kept.Add(c)
	}
	kept.Retire(r.Reach(at(70)))
	if l := r.Used(kept.Cells(nil), limit.Carry{}, at(70)); l.Whole != 3 {
		t.Errorf("used of what is kept: %d, want 3", l.Whole)
	}
	if w := r.RetryAfter(cells, limit.Carry{}, 10, at(70)); w != 15*r.Width {
		t.Errorf("RetryAfter = %v, want the 15 slices to the end of the window, %v", w, 15*r.Width)
	}
}

func TestFirstHitRefundsAndSteps(t *testing.T) {
	r := firstHitRate(t, 10)
	var x limit.Exact
	x.Charge(r, 6, epoch)
	x.Refund(r, 2, r.SliceAt(epoch), 0, nil, epoch)
	x.Refund(r, 2, r.SliceAt(epoch)-1, 0, nil, epoch) // the window began later
	if l := r.Measure(&x, nil, nil, limit.Carry{}, epoch); l.Whole != 4 {
		t.Errorf("level after a refund = %v, want 4", l)
	}
	back := epoch - int64(time.Hour)
	if l := r.Measure(&x, nil, nil, limit.Carry{}, back); l.Whole != 4 {
		t.Errorf("level after a clock was set back = %v, want 4", l)
	}
	if l := r.Measure(&x, nil, nil, limit.Carry{}, back+int64(r.Window)); l.Whole != 0 {
		t.Errorf("level a window after a clock was set back = %v, want none", l)
	}
	if until := r.Lump(&x, epoch); until != epoch+1 {
		t.Errorf("Lump = %d, want the next nanosecond", until)
	}
}

// What others counted begins a window only if it stands, and if it came after
// the last one: what is told of a slice that the last one ended in may be of
// either, and is left to it.
func TestFirstHitOfOthers(t *testing.T) {
	r := firstHitRate(t, 10)
	anchor := epoch + int64(r.Width)*3/2
	end := anchor + int64(r.Window)
	var x limit.Exact
	x.Charge(r, 0, epoch) // begins none
	x.Charge(r, 1, anchor)
	refunded := []crdt.Cell{{Slice: r.SliceAt(epoch), Charges: 3, Refunds: 3}}
	if w := r.Wait(&x, refunded, nil, limit.Carry{}, 10, anchor); w != r.Window {
		t.Errorf("the window ends %v after the first hit that stands, want %v", w, r.Window)
	}
	straddling := []crdt.Cell{{Slice: r.SliceAt(end), Charges: 4}}
	if l := r.Measure(&x, straddling, nil, limit.Carry{}, end+1); l.Whole != 0 {
		t.Errorf("used of the slice that the window ended in: %v, want none", l)
	}
	next := []crdt.Cell{{Slice: r.SliceAt(end) + 1, Charges: 4}}
	if l := r.Measure(&x, next, nil, limit.Carry{}, end+int64(r.Width)); l.Whole != 4 {
		t.Errorf("used of the slice after it: %v, want 4", l)
	}
	// After a clock was set back windows begin as before.
	back := epoch - int64(time.Hour)
	x.Reset()
	x.Charge(r, 1, anchor)
	r.Measure(&x, nil, nil, limit.Carry{}, end)
	if l := r.Measure(&x, []crdt.Cell{{Slice: r.SliceAt(back), Charges: 4}}, nil, limit.Carry{}, back); l.Whole != 4 {
		t.Errorf("used after a clock was set back: %v, want the 4 of others", l)
	}
}
