package edge

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// Where a key comes from, or how much of an address it is, is part of what a
// count means: nobody inherits what others used under another meaning.
func TestAnotherKeySourceCountsAfresh(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after limit.KeySource
		user, next    [2]string // attribute and value: who uses the limit up, and who asks then
	}{
		"a longer prefix": {limit.KeySource{From: []string{"client_ip"}, IPv4Prefix: 24}, limit.KeySource{From: []string{"client_ip"}, IPv4Prefix: 32},
			[2]string{"client_ip", "10.0.0.77"}, [2]string{"client_ip", "10.0.0.0"}},
		"another header": {limit.KeySource{From: []string{"header.X-Tenant"}}, limit.KeySource{From: []string{"header.X-User"}},
			[2]string{"header.X-Tenant", "7"}, [2]string{"header.X-User", "7"}},
	} {
		rules := func(who limit.KeySource) *limit.Set {
			set, problems := limit.Compile(limit.Document{Namespace: "t", Keys: map[string]limit.KeySource{"who": who},
				Rules: []limit.RuleSpec{{Name: "api", Key: []string{"who"}, Rates: []limit.RateSpec{{Limit: 10, Per: time.Hour}}}}})
			if problems != nil {
				t.Fatal(problems)
			}
			return set
		}
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
		ask := func(attribute [2]string) limit.Decision {
			req := n.Rules().Only().NewRequest()
			defer req.Release()
			req.Set(attribute[0], attribute[1])
			return n.Check(start, req)
		}
		n.SetRules(rules(tc.before))
		for range 10 {
			ask(tc.user)
		}
		if ask(tc.user).Allowed {
			t.Fatalf("%s: more than the limit was admitted", name)
		}
		n.SetRules(rules(tc.after))
		if !ask(tc.next).Allowed {
			t.Errorf("%s: who never asked is denied", name)
		}
	}
}

// A rate that becomes strict is told of once: for a window it is not yet.
func TestRatesThatBecomeStrictAreToldOf(t *testing.T) {
	var log bytes.Buffer
	rule := func(consistency, scope string) limit.RuleSpec {
		return perUser(limit.RateSpec{Name: "hour", Limit: 10, Per: time.Hour, Consistency: consistency, Scope: scope})
	}
	n := newNode(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, rule("strict", ""))
	for _, step := range []struct {
		rule limit.RuleSpec
		told int
	}{
		{rule("strict", ""), 0}, {rule("adaptive", ""), 0}, {rule("strict", ""), 1}, {rule("strict", ""), 1},
		{rule("loose", "edge"), 1}, {rule("strict", "edge"), 1}, // an edge's own is exact at once
	} {
		n.SetRules(compile(t, step.rule))
		if got := strings.Count(log.String(), "becomes strict"); got != step.told {
			t.Errorf("after %s: told %d times, want %d\n%s", step.rule.Rates[0].Consistency, got, step.told, &log)
		}
	}
	if !strings.Contains(log.String(), "policy=api.hour") {
		t.Errorf("the policy is not named:\n%s", &log)
	}
}

// A set belongs to the node that has it: another, with a secret of its own, would have
// that one forget what it counted.
func TestASetIsOneNodes(t *testing.T) {
	set := compile(t, perUser(limit.RateSpec{Limit: 5, Per: time.Hour}))
	rule := perUser(limit.RateSpec{Limit: 7, Per: time.Hour})
	one, other := newNode(t, Config{}, rule), newNode(t, Config{}, rule)
	one.SetRules(set)
	if got := through(one, start, "u", 20); got != 5 {
		t.Fatalf("%d of 5 were admitted", got)
	}
	before := other.Rules()
	if err := other.SetRules(set); other.Rules() != before || err == nil || !strings.Contains(err.Error(), "compile a set each time") {
		t.Errorf("another node took the set: %v", err)
	}
	if err := one.SetRules(set); one.Rules() != set || err != nil { // it may be given to its own again
		t.Errorf("the node does not take its own set: %v", err)
	}
	if err := one.SetRules(nil); one.Rules() != set || err == nil || !strings.Contains(err.Error(), "no rules were given") {
		t.Errorf("no set is taken for one: %v", err)
	}
	if got := through(one, start, "u", 20); got != 0 {
		t.Errorf("%d more were admitted: the node forgot what it counted", got)
	}
}

// A set that was in force before is left as it is, and those in force stay: requests may be read
// by it yet. The one in force may be given again, also while it is asked.
func TestASetIsInForceOnce(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 5, Per: time.Hour})
	n := newNode(t, Config{}, rule)
	first, second := n.Rules(), compile(t, rule)
	n.SetRules(second)
	var asked sync.WaitGroup
	for _, set := range []*limit.Set{first, second} {
		asked.Go(func() {
			for range 1000 {
				req := set.Only().NewRequest()
				req.Set("user", "u")
				n.Check(start, req)
				req.Release()
			}
		})
	}
	if err := n.SetRules(second); err != nil {
		t.Errorf("rules that are in force are refused: %v", err)
	}
	if err := n.SetRules(first); n.Rules() != second || err == nil || !strings.Contains(err.Error(), "in force before") {
		t.Errorf("rules of before are in force again: %v", err)
	}
	asked.Wait()
}

// Of rules that are put in force at once those that stay are in force whole.
func TestSetRulesAtOnce(t *testing.T) {
	for range 1000 {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
		var setting sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			set := compile(t, limit.RuleSpec{Name: name, Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}})
			setting.Go(func() { n.SetRules(set) })
		}
		setting.Wait()
		rule := n.Rules().Rules()[0]
		if rates := *n.rates.Load(); rates[rule.Rates[0].Generation] == nil {
			t.Fatalf("rule %s is in force, and its rate is not among the %d that are", rule.Name, len(rates))
		}
	}
}

// A bucket that rules make smaller and slower denies for as long as it takes to drain what was
// used of it by these, be it asked meanwhile or swept, whoever asks: what README says.
func TestSmallerBucketDrainsAtItsNewPace(t *testing.T) {
	alone.Mark(t)
	for _, scope := range []string{"edge", "global"} {
		for _, plan := range []string{"", "gold"} {
			for _, asked := range []time.Duration{time.Second, time.Minute, 8 * time.Minute} {
				n := newNode(t, Config{View: mapView{}}, queueOf(""))
				load := func(capacity uint64, flow limit.Flow) {
					rule := perUser(tokens(capacity, flow))
					rule.TierFrom, rule.Rates[0].Scope = "plan", scope
					set, problems := limit.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}, Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 2}}})
					if set == nil {
						t.Fatal(problems)
					}
					n.SetRules(set)
				}
				ask := func(now time.Time, cost uint64) bool {
					req := requestOf(n, "u")
					defer req.Release()
					req.Set("plan", plan)
					req.Cost = cost
					return n.Check(now, req).Allowed
				}
				load(1000, limit.Flow{Units: 100, Per: time.Second})
				most := map[string]uint64{"": 1000, "gold": 2000}[plan]
				if !ask(start, most) {
					t.Fatalf("%d of %d denied", most, most)
				}
				settleFrames(n, start)
				load(10, limit.Flow{Units: 1, Per: time.Second})
				free := time.Duration(0)
				for at := time.Second; free == 0 && at < 30*time.Minute; at += time.Second / 2 {
					n.Tick(start.Add(at))
					if at%asked == 0 && ask(start.Add(at), 1) {
						free = at
					}
				}
				if free <= 16*time.Minute || free > max(17*time.Minute, 3*asked) {
					t.Errorf("%s, plan %q, asked every %v: free after %v, want 16 minutes and a half", scope, plan, asked, free)
				}
			}
		}
	}
}

// Who waits elsewhere by the pace that a queue had keeps his turn also where this edge has
// looked after the key since.
func TestTurnsElsewhereAreKeptBySweeps(t *testing.T) {
	n := newNode(t, Config{View: mapView{}}, queueOf(""))
	rulesOf(t, n, 40, time.Second, 0, "global")
	check(n, start, "u")
	answer(t, n, start, upOf(t, n.Flush(start)), peersAt(n.Rules().Rules()[0].Rates[0].SliceAt(start.UnixNano()), 30))
	rulesOf(t, n, 40, 840*time.Millisecond, 0, "global")
	now := start
	for ; now.Before(start.Add(2 * time.Second)); now = now.Add(100 * time.Millisecond) {
		n.Tick(now)
	}
	if d, last := check(n, now, "u"), start.Add(30*time.Second).Sub(now); !d.Allowed || d.Delay < last {
		t.Errorf("30 wait for up to %v: the next is told to wait for %v (allowed %t)", last, d.Delay, d.Allowed)
	}
}
