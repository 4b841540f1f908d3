package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A key that rests since a rule was changed is told again under what its rate is now:
// aggregators go by what most say.
func TestRestingKeysAreToldUnderTheRulesOfNow(t *testing.T) {
	bucket := func(capacity, refill uint64) limit.RuleSpec {
		return perUser(limit.RateSpec{Algorithm: "token_bucket", Capacity: capacity, Refill: limit.Flow{Units: refill, Per: 10 * time.Minute}})
	}
	n := newNode(t, Config{}, bucket(120, 600))
	check(n, start, "sparse")
	for range 2 {
		check(n, start, "u")
	}
	answer(t, n, start, upOf(t, n.flushAll(start)))
	n.SetRules(compile(t, bucket(210, 1080)))
	now := start
	for told := 0; told < 2; {
		if now = now.Add(100 * time.Millisecond); now.Sub(start) > 30*time.Second {
			t.Fatalf("%d keys are told again within %v, want both", told, now.Sub(start))
		}
		n.Tick(now)
		out := n.flushAll(now)
		if len(out) == 0 {
			continue
		}
		up := upOf(t, out)
		for _, s := range up.Sections {
			if told += len(s.Deltas); s.Shape.Limit != 210 || s.Shape.Refill != 1080 {
				t.Errorf("told again after %v under %+v, want a bucket of 210 that refills 1080", now.Sub(start), s.Shape)
			}
		}
		answer(t, n, now, up)
	}
}
