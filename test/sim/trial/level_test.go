package trial

import (
	"testing"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// A push that comes after something was given back tells the crossing before it.
func TestWhatIsGivenBackHidesNoCrossing(t *testing.T) {
	plan := newPlan(Options{Seed: 1, Without: Faults})
	plan.rates = []limit.RateSpec{{Name: "r0", Algorithm: "leaky_bucket", Capacity: 20, Outflow: limit.Flow{Units: 1, Per: window}}}
	w, err := world.New(plan.config(start))
	if err != nil {
		t.Fatal(err)
	}
	tr := &trial{plan: plan, w: w, keys: map[deltasync.Key]*counter{}}
	if err := tr.meet(); err != nil {
		t.Fatal(err)
	}
	c := tr.counters[0]
	at := c.rate.SliceAt(start.UnixNano())
	charged := crdt.Cell{Slice: at, Charges: 20}
	told := charged
	told.Refunds = 3
	push := telling{at: start, clock: start, cells: []crdt.Cell{told}}
	for name, tc := range map[string]struct {
		known, want crdt.Cell
	}{"known before": {told, told}, "given back since": {charged, charged}} {
		want := levelOf(c, []crdt.Cell{tc.want}, crdt.Carry{}, start)
		if got := push.levelWithout(c, []crdt.Cell{tc.known}); got != want {
			t.Errorf("%s: the level is %d, want %d", name, got, want)
		}
	}
	if push.cells[0] != told {
		t.Error("the push was changed")
	}
}
