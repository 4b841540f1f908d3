package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// An edge without rights admits nothing of a strict limit, whatever its rates are: what
// may wait for room was admitted without any, up to the limit and on top of that.
func TestWithoutRightsNothingPasses(t *testing.T) {
	flow := limit.Flow{Units: 1, Per: time.Second}
	for name, spec := range map[string]limit.RateSpec{
		"window":   {Limit: 10, Per: time.Minute},
		"fixed":    {Limit: 10, Per: time.Minute, Algorithm: "fixed_window"},
		"token":    {Algorithm: "token_bucket", Capacity: 10, Refill: flow},
		"leaky":    {Algorithm: "leaky_bucket", Capacity: 10, Outflow: flow},
		"in time":  {Algorithm: "token_bucket", Capacity: 10, Refill: flow},
		"in use":   {Algorithm: "concurrency", Limit: 10, Lease: time.Minute},
		"calendar": {Limit: 10, Period: "day", Align: "utc"},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Consistency = "strict"
			n := newNode(t, Config{}, perUser(spec))
			if name == "in time" { // the compiler refuses it, and this is what for
				n.Rules().Rules()[0].MaxDelay = time.Minute
			}
			for i := range 15 {
				if d := check(n, start, "u"); d.Allowed || !d.Basis.Short {
					t.Fatalf("request %d: %+v, want a denial for lack of rights", i, d)
				}
			}
		})
	}
}
