package rlqs

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
)

// usedOf is what the node has counted of the user's window under a rule.
func (w *world) usedOf(rule string) uint64 {
	req := w.node.Rules().Namespace(edge.LocalNamespace).NewRequest()
	defer req.Release()
	req.Set("user", "u1")
	req.Peek, req.Details = true, true
	w.node.Check(w.now, req)
	for _, s := range req.States {
		if s.Rule.Name == rule {
			return s.Rate.Limit - s.Remaining
		}
	}
	w.Fatalf("no rule %s applies", rule)
	return 0
}

// TestCostsOfManyRequests: who asks for half of each limit that counts has all pass, be what
// one request may cost bounded, or a rule one of responses; and is charged what that costs.
func TestCostsOfManyRequests(t *testing.T) {
	rule := func(name string, most uint64, set func(r *limit.RuleSpec)) limit.RuleSpec {
		r := perUser(fixed(most, time.Hour))
		r.Name, r.Group = name, name
		set(&r)
		return r
	}
	costs := func(c limit.CostSpec) func(*limit.RuleSpec) { return func(r *limit.RuleSpec) { r.Cost = c } }
	plain := func(*limit.RuleSpec) {}
	failed := func(r *limit.RuleSpec) { r.CountWhen = "response.status in [401]" }
	trial := func(cost uint64) func(*limit.RuleSpec) {
		return func(r *limit.RuleSpec) { r.Mode, r.Cost.Default = "shadow", cost }
	}
	for _, c := range []struct {
		name  string
		rules []limit.RuleSpec
		each  map[string]uint64 // what a request costs under a rule
	}{
		{"without a bound", []limit.RuleSpec{rule("api", 3000, plain)}, map[string]uint64{"api": 1}},
		{"bounded", []limit.RuleSpec{rule("api", 3000, costs(limit.CostSpec{Max: 5}))}, map[string]uint64{"api": 1}},
		{"bounded to what it costs", []limit.RuleSpec{rule("api", 15_000, costs(limit.CostSpec{Default: 5, Max: 5}))}, map[string]uint64{"api": 5}},
		{"with routes", []limit.RuleSpec{rule("api", 3000, costs(limit.CostSpec{Default: 1, Max: 20, ByRoute: map[string]uint64{"POST /api/search": 5}}))}, map[string]uint64{"api": 1}},
		{"bounded beside a dearer one", []limit.RuleSpec{rule("api", 6000, costs(limit.CostSpec{Max: 2})), rule("dear", 15_000, costs(limit.CostSpec{Default: 5}))}, map[string]uint64{"api": 2, "dear": 5}},
		{"failures beside a limit", []limit.RuleSpec{rule("api", 3000, plain), rule("fails", 5, failed)}, map[string]uint64{"api": 1, "fails": 0}},
		{"failures alone", []limit.RuleSpec{rule("fails", 5, failed)}, map[string]uint64{"fails": 0}},
		{"dear failures", []limit.RuleSpec{rule("api", 3000, plain), rule("fails", 100, func(r *limit.RuleSpec) { failed(r); r.Cost.Default = 50 })}, map[string]uint64{"api": 1, "fails": 0}},
		{"a list beside a trial", []limit.RuleSpec{{Name: "internal", Group: "internal", Match: limit.MatchSpec{Has: []string{"user"}}, Allow: true}, rule("trial", 150_000, trial(50))}, map[string]uint64{"trial": 50}},
		{"failures beside a trial", []limit.RuleSpec{rule("trial", 150_000, trial(50)), rule("fails", 5, failed)}, map[string]uint64{"trial": 50, "fails": 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, no := range []bool{true, false} { // first requests are denied, or beyond what was granted
				w := newWorld(t, Config{}, c.rules...)
				settings := dataplane.Settings{ExpiredFor: time.Hour, Fallback: denyAll}
				if no {
					settings.NoAssignment = denyAll
				}
				p := w.join("a", 50, settings)
				w.run(30*time.Second, nil)
				if p.admitted < 1400 {
					t.Errorf("first ones denied %t: %d of 1500 are admitted", no, p.admitted)
				}
				p.rps = 0
				w.run(20*time.Second, nil)
				for name, each := range c.each {
					if used, want := w.usedOf(name), each*uint64(p.admitted); used < want || used > want+10*each {
						t.Errorf("first ones denied %t: %d are charged to %s for %d requests of %d each", no, used, name, p.admitted, each)
					}
				}
			}
		})
	}
}

// A rule of responses that has no room left denies, as it would a single request.
func TestFailuresDeny(t *testing.T) {
	fails := perUser(fixed(5, time.Hour))
	fails.CountWhen = "response.status in [401]"
	w := newWorld(t, Config{}, fails)
	p := w.join("a", 50, dataplane.Settings{NoAssignment: denyAll})
	w.run(5*time.Second, nil)
	for range 5 {
		req := w.node.Rules().Namespace(edge.LocalNamespace).NewRequest()
		req.Set("user", "u1")
		req.Set("response.status", "401")
		w.node.Answered(w.now, req)
		req.Release()
	}
	w.run(5*time.Second, nil)
	before := p.admitted
	if w.run(10*time.Second, nil); before < 200 || p.admitted > before {
		t.Errorf("%d were admitted before, and %d more once the failures were used up", before, p.admitted-before)
	}
}
