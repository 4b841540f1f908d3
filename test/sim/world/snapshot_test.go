package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// An edge that has just started denies, at the first request, what is used up
// elsewhere: in its region, in another, and by edges that have died.
func TestFreshEdgeKnowsWhatIsUsedUp(t *testing.T) {
	for _, aggregators := range []int{1, 2} {
		for _, spec := range []limit.RateSpec{{Limit: 100, Per: time.Minute}, {Algorithm: "token_bucket", Capacity: 100, Refill: limit.Flow{Units: 1, Per: time.Minute}}} {
			w, err := New(Config{
				Regions: []Region{{Name: "eu", Edges: []string{"eu-1", "eu-2"}}, {Name: "us", Edges: []string{"us-1"}}},
				Rules:   rules(spec), Start: start, Lanes: 8, Aggregators: aggregators, Seed: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			w.Advance(start.Add(2 * time.Second))
			const users = 40
			user := func(i int) string { return fmt.Sprint("u", i) }
			for i := range users * 120 {
				check(w, []string{"eu-2", "us-1"}[i/users%2], user(i%users))
			}
			w.Advance(w.Now().Add(2 * time.Second))
			if err := w.Crash("eu-1"); err != nil {
				t.Fatal(err)
			}
			fresh := w.Node("eu-1")
			for fresh.Stats(w.Now()).SnapshotIn == 0 {
				if w.Advance(w.Now().Add(20 * time.Millisecond)); w.Now().Sub(start) > 5*time.Second {
					t.Fatal("there is no snapshot after a second")
				}
			}
			st := fresh.Stats(w.Now())
			t.Logf("%d aggregators: a snapshot of %d keys in %v", aggregators, st.Snapshot, st.SnapshotIn)
			if st.Snapshot != users {
				t.Errorf("%d keys came with the snapshot, want %d", st.Snapshot, users)
			}
			for i := range users {
				if check(w, "eu-1", user(i)).Allowed {
					t.Errorf("%d aggregators: the fresh edge lets %s in, whose limit is used up", aggregators, user(i))
				}
			}
			if !check(w, "eu-1", "other").Allowed {
				t.Error("the fresh edge denies somebody who did nothing")
			}
		}
	}
}
