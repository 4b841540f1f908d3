package trial

import (
	"flag"
	"testing"
)

var trials = flag.Int("trials", 40, "trials, each run twice")

// Every trial keeps the invariants, and runs again as it ran.
func TestTrials(t *testing.T) {
	for seed := range uint64(*trials) {
		r := Run(Options{Seed: seed})
		if r.Err != nil {
			t.Errorf("%v\n%s\nreplay: go run ./test/sim %v", r.Err, r.Plan, r.Options)
			continue
		}
		if again := Run(Options{Seed: seed}); again.Trace != r.Trace || again.Events != r.Events {
			t.Errorf("seed %d: trace %x of %d events, run again %x of %d", seed, r.Trace, r.Events, again.Trace, again.Events)
		}
	}
}
