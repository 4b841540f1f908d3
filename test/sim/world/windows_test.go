package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Regions that are cut off from each other keep to their parts of the next windows too,
// however these begin: what somebody spent in a window before counts for nothing in one
// that counts nothing from before, and of one that slides by what is left of it.
func TestCutOutlivesItsWindow(t *testing.T) {
	t.Parallel()
	for _, rate := range []limit.RateSpec{
		{Limit: 200, Per: time.Minute, Algorithm: "fixed_window"},
		{Limit: 200, Per: time.Minute, Algorithm: "sliding_window"},
		{Limit: 200, Per: time.Minute, Algorithm: "sub_windows"},
		{Limit: 200, Per: time.Minute, Algorithm: "sliding_log"},
		{Limit: 200, Per: time.Minute, Algorithm: "fixed_window", Align: "first_hit"},
		{Limit: 2000, Period: "day", Algorithm: "fixed_window", Align: "Asia/Kolkata"}, // whose days end at 18:30
		{Limit: 3000, Period: "month", Algorithm: "fixed_window"},                      // asked for 20,000 times its pace
	} {
		rate.Consistency = "adaptive"
		for _, before := range []time.Duration{5 * time.Second, 20 * time.Second, time.Minute} { // the end of a window
			t.Run(fmt.Sprintf("%s of %v%s, cut %v before the next", rate.Algorithm+" "+rate.Align, rate.Per, rate.Period, before), func(t *testing.T) {
				w := wideOf(t, 3, 2, func(*Config) {}, rate)
				lead := 2 * time.Minute // that it is asked for before
				next := w.Now().Add(lead)
				switch rate.Period {
				case "day":
					next = start.Truncate(24 * time.Hour).Add(18*time.Hour + 30*time.Minute)
				case "month":
					next, lead = start.AddDate(0, 1, 0), 4*time.Minute
				}
				w.Advance(next.Add(-lead))
				rnd := rand.New(rand.NewPCG(1, 9))
				admitted, cut := 0, false
				var perMinute []int // of both sides
				for minute := w.Now(); w.Now().Before(next.Add(3 * time.Minute)); {
					w.Advance(w.Now().Add(40 * time.Millisecond))
					if !cut && !w.Now().Before(next.Add(-before)) {
						cut = true
						w.Cut("r1", true)
					}
					if w.Now().Sub(minute) >= time.Minute {
						perMinute, admitted, minute = append(perMinute, admitted), 0, minute.Add(time.Minute)
					}
					if check(w, w.Edges()[rnd.IntN(6)], "u").Allowed {
						admitted++
					}
				}
				t.Logf("%v a minute", perMinute)
				during, most := perMinute[int(lead/time.Minute):], rate.Limit+rate.Limit/20
				if rate.Period != "" {
					during = []int{during[0] + during[1] + during[2]}
				}
				for i, n := range during {
					if uint64(n) > most || uint64(n) < rate.Limit*8/10 {
						t.Errorf("window %d of the cut: %d admitted, want about %d", i+1, n, rate.Limit)
					}
				}
			})
		}
	}
}

// So does an edge that is cut off alone, and so do the others of its region.
func TestCutEdgeOutlivesItsWindow(t *testing.T) {
	const of = 1000
	for _, algorithm := range []string{"fixed_window", "sliding_window", "sub_windows", "sliding_log"} {
		for _, per := range []time.Duration{10 * time.Second, time.Minute} {
			w := wideOf(t, 1, 3, func(*Config) {}, limit.RateSpec{Limit: of, Per: per, Algorithm: algorithm, Consistency: "adaptive"})
			rnd, edges, next := rand.New(rand.NewPCG(1, 9)), w.Edges(), w.Now().Add(3*per)
			before, during := 0, 0
			for w.Now().Before(next.Add(per)) { // three times the limit, most of it at the one
				w.Advance(w.Now().Add(per / (3 * of)))
				cut := w.Now().Sub(next.Add(-5 * time.Second))
				if cut >= 0 && cut < per/(3*of) {
					w.CutPath(edges[0], "r0", true)
					w.CutPath("r0", edges[0], true)
				}
				if !check(w, edges[max(0, rnd.IntN(10)-7)], "u").Allowed {
					continue
				}
				switch {
				case !w.Now().Before(next):
					during++
				case !w.Now().Before(next.Add(-per)):
					before++
				}
			}
			if max(before, during) > of*11/10 || before < of*9/10 || during < of*45/100 {
				t.Errorf("%s of %v: %d admitted in the window of the cut, %d in the next, want about %d", algorithm, per, before, during, of)
			}
		}
	}
}
