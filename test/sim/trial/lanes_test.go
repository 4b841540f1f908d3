package trial

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/sim/world"
)

// A lane whose owner dies, and then its heir before he has found out, may be nobody's
// until the next has missed both, and no longer.
func TestTakeoverWaitsForEachWhoDied(t *testing.T) {
	// failed says whether some lane was nobody's for too long.
	failed := func(first, second int, kill func(*trial, *world.Server)) bool {
		plan := newPlan(Options{Seed: 1, Without: Faults})
		plan.regions, plan.edges, plan.servers, plan.lanes = 1, 1, 3, 4
		w, err := world.New(plan.config(start))
		if err != nil {
			t.Fatal(err)
		}
		tr := &trial{plan: plan, w: w, regionNames: []string{"eu"}, lanesServed: newLanesServed()}
		until := func(after time.Duration) {
			for at := w.Now(); at.Before(start.Add(after)); at = at.Add(10 * time.Millisecond) {
				w.Advance(at)
				tr.watchLanes()
			}
		}
		until(3 * time.Second)
		kill(tr, w.Servers("eu")[first])
		until(3600 * time.Millisecond)
		kill(tr, w.Servers("eu")[second])
		until(6 * time.Second)
		return tr.err != nil
	}
	unnoticed := 0
	for first := range 3 {
		for second := range 3 {
			if first == second {
				continue
			}
			if failed(first, second, (*trial).kill) {
				t.Errorf("aggregator %d, then %d dies: the third is held to the first death", first, second)
			}
			if failed(first, second, func(tr *trial, v *world.Server) { tr.w.Stop(v) }) {
				unnoticed++
			}
		}
	}
	if unnoticed == 0 {
		t.Error("in no order of deaths a lane is nobody's for longer than after one")
	}
}
