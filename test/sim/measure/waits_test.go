package measure

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/sim/scenarios"
)

// Requests of a burst at an edge without rights are denied, or wait for them, no longer
// than they are to, and none passes that should not.
func TestRequestsWaitForRights(t *testing.T) {
	o := options(t, "burst-home")
	o.Limit, o.Consistency = 100, "strict"
	denied, err := Run(o)
	if err != nil {
		t.Fatal(err)
	}
	if denied.Over != 0 || denied.Wrong == 0 || denied.Waited != 0 {
		t.Errorf("over %v, wrong %v, %v waited; want that some are denied, and none waits", denied.Over, denied.Wrong, denied.Waited)
	}
	o.Conditions = scenarios.Conditions{StrictWait: time.Second}
	waited, err := Run(o)
	if err != nil {
		t.Fatal(err)
	}
	if waited.Over != 0 || waited.Wrong > denied.Wrong/10 || waited.Waited == 0 {
		t.Errorf("over %v, wrong %v of %v, %v waited; want that nearly all pass", waited.Over, waited.Wrong, denied.Wrong, waited.Waited)
	}
	if waited.WaitMedian <= 0 || waited.WaitWorst < waited.WaitMedian || waited.WaitWorst > time.Second {
		t.Errorf("they waited for %v in the median, %v at the most; want a second at the most", waited.WaitMedian, waited.WaitWorst)
	}
	if again, err := Run(o); err != nil || again != waited {
		t.Errorf("the same again: %+v, %v; want %+v", again, err, waited)
	}
}

// Who waits at an edge that crashes is denied, and all are decided in the end.
func TestWhoWaitsAtADeadEdgeIsDenied(t *testing.T) {
	o := options(t, "steady-2x")
	o.Consistency = "strict"
	o.Conditions = scenarios.Conditions{StrictWait: 2 * time.Second, CrashEvery: time.Second}
	r, err := newRun(o)
	if err != nil {
		t.Fatal(err)
	}
	if r == nil || len(r.befall) == 0 {
		t.Fatal("no edge is to crash")
	}
	f, err := Run(o)
	if err != nil {
		t.Fatal(err)
	}
	if f.Over != 0 || f.Waited == 0 || f.WaitWorst > 2*time.Second {
		t.Errorf("over %v, %v waited, %v at the most", f.Over, f.Waited, f.WaitWorst)
	}
}
