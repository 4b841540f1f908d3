package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Aggregators are killed when the store has what an edge told, and before they
// told the other regions; the edge is dead too. Whoever comes to own their lanes
// reads it in the store, and the others know it two exports later: nobody touches
// the keys.
func TestWhatTheDeadStoredIsExported(t *testing.T) {
	for _, aggregators := range []int{1, 2, 3} {
		w, err := New(Config{
			Regions: []Region{{Name: "eu", Edges: []string{"eu-1", "eu-2"}}, {Name: "us", Edges: []string{"us-1"}}},
			Rules:   rules(limit.RateSpec{Limit: 100, Per: time.Minute}), Start: start,
			Lanes: 8, Aggregators: aggregators, Seed: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Advance(start.Add(2 * time.Second))
		w.Cut("eu", true) // nothing is exported
		const users, spent = 10, 60
		for i := range users * spent {
			check(w, "eu-1", fmt.Sprint(i%users))
		}
		w.Advance(w.Now().Add(150 * time.Millisecond)) // it is stored
		eu := w.Servers("eu")
		for _, v := range eu[:max(1, len(eu)-1)] {
			w.Stop(v)
		}
		if err := w.Crash("eu-1"); err != nil {
			t.Fatal(err)
		}
		w.Cut("eu", false)
		known := func() (n int) {
			for u := range users {
				peek(w, "us-1", fmt.Sprint(u))
				if believed(w, "us-1", fmt.Sprint(u)) == spent {
					n++
				}
			}
			return n
		}
		if n := known(); n > 0 {
			t.Fatalf("%d aggregators: us-1 knows %d users before it can know of any", aggregators, n)
		}
		takeover := time.Second
		if aggregators == 1 { // it starts again
			if takeover = 0; w.Start(eu[0]) != nil {
				t.Fatal("it does not start")
			}
		}
		w.Advance(w.Now().Add(takeover + 2*w.cfg.Interval + w.cfg.RegionDelay + 4*w.cfg.EdgeDelay + 3*w.cfg.Urgent))
		if n := known(); n != users {
			t.Errorf("%d aggregators: two exports after one took over, us-1 knows %d users' counts of %d", aggregators, n, users)
		}
	}
}
