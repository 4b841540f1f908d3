package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A region loses everything at once: its store, its aggregators and its edges. The
// other one knows what it had spent, and so the limit still holds: what is let in
// beyond it is what was let in before the first answer of the other region. (What
// was spent in the slice that was under way would hide as much again: of both the
// larger counts.)
func TestLimitHoldsWhenARegionLosesEverything(t *testing.T) {
	for _, aggregators := range []int{1, 2} {
		w, err := New(Config{
			Regions: []Region{{Name: "eu", Edges: []string{"eu-1", "eu-2"}}, {Name: "us", Edges: []string{"us-1"}}},
			Rules:   rules(limit.RateSpec{Limit: 1000, Per: time.Hour, Algorithm: "sub_windows"}), Start: start,
			Lanes: 8, Aggregators: aggregators, Seed: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Advance(start.Add(2 * time.Second))
		const users = 4
		admitted := [users]int{}
		// traffic has each user ask eu's edges in turn, 40 times a second in all.
		traffic := func(requests int) {
			for i := range requests {
				w.Advance(w.Now().Add(25 * time.Millisecond))
				for u := range users {
					if check(w, []string{"eu-1", "eu-2"}[i%2], fmt.Sprint(u)).Allowed {
						admitted[u]++
					}
				}
			}
		}
		traffic(700)
		w.Advance(w.Now().Add(2 * time.Minute)) // us knows, and the slice is over
		if admitted[0] != 700 {
			t.Fatalf("%d of 700 are let in", admitted[0])
		}
		w.Store("eu").Wipe()
		for _, v := range w.Servers("eu") {
			if err := w.Start(v); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range []string{"eu-1", "eu-2"} {
			if err := w.Crash(e); err != nil {
				t.Fatal(err)
			}
		}
		traffic(700)
		for u, n := range admitted {
			// The lanes are dealt again in a second, if there are several aggregators.
			if most := 1000 + 40; n > most || n < 1000 {
				t.Errorf("%d aggregators: %d of user %d are let in, want 1000 to %d", aggregators, n, u, most)
			}
		}
		t.Logf("%d aggregators: %v", aggregators, admitted)
	}
}
