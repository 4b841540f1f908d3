package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func tenantNode(t *testing.T, rule limit.RuleSpec) (*Node, func(now time.Time, user, plan string) limit.Decision) {
	t.Helper()
	n := newNode(t, Config{}, limit.RuleSpec{Name: "x", Allow: true})
	set, problems := limit.Compile(limit.Document{
		Namespace: "t", Rules: []limit.RuleSpec{rule},
		Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 10}, "trial": {Multiply: 0.5}, "platinum": {Multiply: 10}},
	})
	if problems != nil {
		t.Fatal(problems[0])
	}
	n.SetRules(set)
	return n, func(now time.Time, user, plan string) limit.Decision {
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		req.Set("user", user)
		req.Set("plan", plan)
		return n.Check(now, req)
	}
}

// admitted is how many of a hundred requests pass.
func admitted(t *testing.T, ask func(time.Time, string, string) limit.Decision, user, plan string) (passed int) {
	t.Helper()
	for range 100 {
		if ask(start, user, plan).Allowed {
			passed++
		}
	}
	return passed
}

func TestTenantsMultiply(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 4, Per: time.Minute})
	rule.TierFrom, rule.Margin.SoftPercent = "plan", 50
	_, ask := tenantNode(t, rule)
	for plan, want := range map[string]int{"": 6, "other": 6, "gold": 60, "platinum": 60, "trial": 3} {
		if d := ask(start, "first of "+plan, plan); d.Limit != d.Rate.Limit || d.Rate.Ceiling != uint64(want) || d.Rule.Name != "api" {
			t.Errorf("%q: %+v, want a ceiling of %d", plan, d, want)
		}
		if got := admitted(t, ask, "user of "+plan, plan); got != want {
			t.Errorf("%q: %d admitted, want %d", plan, got, want)
		}
	}
}

// What is counted stays, and is judged by the limit of whoever asks.
func TestTenantsOfOneCounter(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 4, Per: time.Minute})
	rule.TierFrom = "plan"
	n, ask := tenantNode(t, rule)
	for i, step := range []struct {
		plan      string
		allowed   bool
		remaining uint64
	}{
		{"", true, 3}, {"gold", true, 38}, {"", true, 1}, {"trial", false, 0}, {"", true, 0}, {"", false, 0},
		{"gold", true, 35}, {"", false, 0}, {"", false, 0}, {"gold", true, 34}, {"platinum", true, 33},
	} {
		if d := ask(start, "u", step.plan); d.Allowed != step.allowed || d.Remaining != step.remaining {
			t.Errorf("step %d, %q: allowed %v, %d left; want %v, %d", i, step.plan, d.Allowed, d.Remaining, step.allowed, step.remaining)
		}
	}
	if n.Keys() != 1 {
		t.Errorf("%d keys, want one: a plan is no part of the key", n.Keys())
	}
}
