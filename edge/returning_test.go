package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// bucketAt are the buckets of these tests: of another generation for each pace.
func bucketAt(kind, scope string, pace time.Duration) limit.RuleSpec {
	flow := limit.Flow{Units: 1, Per: pace}
	if kind == "queue" {
		return perUser(limit.RateSpec{Name: "q", Algorithm: "leaky_bucket", Capacity: 40, Outflow: flow, Queue: true, Scope: scope})
	}
	return perUser(limit.RateSpec{Name: "q", Algorithm: "token_bucket", Capacity: 40, Refill: flow, Scope: scope})
}

var slowing = []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second}

// ofBuckets runs a test for each kind and scope.
func ofBuckets(t *testing.T, f func(t *testing.T, kind, scope string)) {
	for _, kind := range []string{"queue", "token"} {
		for _, scope := range []string{"edge", "global"} {
			t.Run(fmt.Sprint(kind, " ", scope), func(t *testing.T) { f(t, kind, scope) })
		}
	}
}

// Whoever gives back what he took before more changes of the rules than are remembered
// leaves no record that hides the others, once rules are again what they were then.
func TestLeaverOfLongAgo(t *testing.T) {
	ofBuckets(t, func(t *testing.T, kind, scope string) {
		for _, leave := range []string{"", "with a receipt", "without one"} {
			n := newNode(t, Config{View: mapView{}}, bucketAt(kind, scope, time.Second))
			now := start
			var charges []limit.Charge
			for range 40 {
				_, charges = take(t, n, now, "u", 1)
			}
			old := requestOf(n, "u")
			defer old.Release()
			old.Rules()
			for _, pace := range append(slowing, 0) {
				if pace == 0 {
					switch leave {
					case "with a receipt":
						n.Refund(now, charges, 0)
					case "without one":
						old.Cost = 1
						n.GiveBack(now, old)
					}
					pace = time.Second
				}
				n.SetRules(compile(t, bucketAt(kind, scope, pace)))
				for range 10 {
					now = now.Add(100 * time.Millisecond)
					n.Tick(now)
				}
			}
			if got := through(n, now, "u", 100); got > 2 {
				t.Errorf("40 of 40 taken 6 s ago, one a second, one left %q: %d more are admitted", leave, got)
			}
		}
	})
}

// Of a bucket that rules come back to counts what was taken under those in between, also
// where nobody swept since what is known of it from before, or a request of then comes late.
func TestBucketThatRulesComeBackTo(t *testing.T) {
	ofBuckets(t, func(t *testing.T, kind, scope string) {
		for _, late := range []bool{false, true} {
			n := newNode(t, Config{View: mapView{}}, bucketAt(kind, scope, time.Second))
			check(n, start, "u")
			old := requestOf(n, "u")
			defer old.Release()
			old.Rules()
			changes := slowing
			if late {
				changes = slowing[:1]
			}
			for _, pace := range changes {
				n.SetRules(compile(t, bucketAt(kind, scope, pace)))
			}
			through(n, start, "u", 39)
			if late {
				old.Cost = 1
				n.Report(start, old)
			}
			n.SetRules(compile(t, bucketAt(kind, scope, time.Second)))
			if got := through(n, start, "u", 100); got > 2 {
				t.Errorf("late %v: 40 of 40 taken at once, under rules that came and went: %d more are admitted", late, got)
			}
			if got := through(n, start.Add(100*time.Second), "u", 100); got < 40 && kind == "token" {
				t.Errorf("late %v: after all has drained %d are admitted, want 40", late, got)
			}
		}
	})
}
