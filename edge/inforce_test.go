package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A key that rests since a rule was changed is told again under what its rate is now,
// for its tenant: aggregators go by what most say.
func TestRestingKeysAreToldUnderTheRulesOfNow(t *testing.T) {
	rule := func(capacity, refill uint64) limit.RuleSpec {
		r := perUser(limit.RateSpec{Algorithm: "token_bucket", Capacity: capacity, Refill: limit.Flow{Units: refill, Per: 10 * time.Minute}})
		r.TierFrom = "plan"
		return r
	}
	rules := func(capacity, refill uint64) *limit.Set {
		set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{rule(capacity, refill)}, Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 2}}})
		for _, p := range problems {
			if len(p) > 0 {
				t.Fatal(p)
			}
		}
		return set
	}
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Minute}))
	n.SetRules(rules(120, 600))
	for _, plan := range []string{"", "gold"} {
		req := n.Rules().Only().NewRequest()
		req.Set("user", "u"+plan)
		req.Set("plan", plan)
		n.Check(start, req)
		req.Release()
	}
	answer(t, n, start, upOf(t, n.flushAll(start)))
	n.SetRules(rules(210, 1080))
	now, limits := start, map[uint64]bool{}
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
			told += len(s.Deltas)
			if limits[s.Shape.Limit] = true; s.Shape.Refill*210 != s.Shape.Limit*1080 {
				t.Errorf("told again after %v under %+v, want a bucket of 210 that refills 1080, or twice that", now.Sub(start), s.Shape)
			}
		}
		answer(t, n, now, up)
	}
	if !limits[210] || !limits[420] {
		t.Errorf("told again with limits of %v, want 210 and 420", limits)
	}
}

// A log keeps no more hits than decide. What it dropped counts when its limit is raised:
// slices tell of it.
func TestWhatALogDroppedCountsUnderAHigherLimit(t *testing.T) {
	log := func(most uint64) limit.RuleSpec {
		return perUser(limit.RateSpec{Algorithm: "sliding_log", Limit: most, Per: time.Minute, CountDenied: true})
	}
	n := newNode(t, Config{}, log(2))
	now := start
	for range 40 {
		check(n, now, "u")
		now = now.Add(100 * time.Millisecond)
	}
	if d := check(n, now, "u"); d.Allowed || d.RetryAfter != time.Minute-100*time.Millisecond {
		t.Errorf("41 hits of 2: %+v, want it denied until the last but one has left", d)
	}
	n.SetRules(compile(t, log(50)))
	passed := 0
	for range 60 {
		if check(n, now, "u").Allowed {
			passed++
		}
	}
	if passed != 9 {
		t.Errorf("of 60 after 41 hits of 50 %d pass, want 9", passed)
	}
	n.SetRules(compile(t, log(80)))
	if d := check(n, now, "u"); d.Allowed || d.RetryAfter < 57*time.Second || d.RetryAfter >= time.Minute {
		t.Errorf("101 hits of 80: %+v, want it denied until 22 have left, the last after 58 s", d)
	}
	n.SetRules(compile(t, log(300)))
	now = now.Add(57500 * time.Millisecond)
	if d := check(n, now, "u"); !d.Allowed || d.Remaining < 300-105 || d.Remaining > 300-75 {
		t.Errorf("a minute after the first of 102: %+v, want those of the last minute to count", d)
	}
}
