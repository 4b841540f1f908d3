package limit_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// warnsOf says whether a rule, of a document with two tiers, is warned of by a code.
func warnsOf(t *testing.T, rule limit.RuleSpec, code string) bool {
	t.Helper()
	rule.Name = "rule"
	set, problems := limit.Compile(limit.Document{
		Namespace: "test", Rules: []limit.RuleSpec{rule},
		Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 100}, "solid": {Multiply: 100}, "plain": {Multiply: 1}},
		Keys:    map[string]limit.KeySource{"route": {From: []string{"path"}}, "plan": {From: []string{"header.X-Plan"}}},
	})
	if set == nil {
		t.Fatal(problems)
	}
	for _, w := range set.Warnings()[0] {
		if w.Code == code {
			return true
		}
	}
	return false
}

// Tiers that may share a bucket are warned of, and no others.
func TestTiersTogether(t *testing.T) {
	bucket := limit.RateSpec{Algorithm: "token_bucket", Capacity: 40, Refill: limit.Flow{Units: 1, Per: time.Second}}
	plans := func(names ...string) limit.MatchSpec {
		return limit.MatchSpec{Equals: map[string][]string{"plan": names}}
	}
	for name, tc := range map[string]struct {
		rule limit.RuleSpec
		want bool
	}{
		"no key":                {limit.RuleSpec{}, true},
		"a key of routes":       {limit.RuleSpec{Key: []string{"route", "method"}}, true},
		"some tiers":            {limit.RuleSpec{Match: plans("gold", "plain")}, true},
		"who has none":          {limit.RuleSpec{Match: plans("gold", "silver")}, true},
		"users":                 {limit.RuleSpec{Key: []string{"user"}}, false},
		"addresses":             {limit.RuleSpec{Key: []string{"path", "client_ip"}}, false},
		"hosts, a tenant's":     {limit.RuleSpec{Key: []string{"host"}}, false},
		"tiers":                 {limit.RuleSpec{Key: []string{"plan"}}, false},
		"one tier":              {limit.RuleSpec{Match: plans("gold")}, false},
		"tiers of one multiple": {limit.RuleSpec{Match: plans("gold", "solid")}, false},
		"tiers as the rule":     {limit.RuleSpec{Match: plans("plain", "silver")}, false},
	} {
		tc.rule.TierFrom, tc.rule.Rates = "plan", []limit.RateSpec{bucket}
		if got := warnsOf(t, tc.rule, "W236"); got != tc.want {
			t.Errorf("%s: warned %v, want %v", name, got, tc.want)
		}
		tc.rule.Rates = []limit.RateSpec{{Limit: 40, Per: time.Minute}}
		tc.rule.MinGap = time.Second
		if warnsOf(t, tc.rule, "W236") {
			t.Errorf("%s: a window, and a gap, are warned of", name)
		}
	}
}

// Slots are warned of that a queue's waiters may hold all of.
func TestSlotsOfQueue(t *testing.T) {
	for name, tc := range map[string]struct {
		slots   uint64
		cost    uint64
		maxWait time.Duration
		mode    string
		want    bool
	}{
		"fewer than wait":         {slots: 5, want: true},
		"as many":                 {slots: 40, want: true},
		"more":                    {slots: 41},
		"as many as come to wait": {slots: 11, maxWait: 10 * time.Second, want: true},
		"more than come to wait":  {slots: 12, maxWait: 10 * time.Second},
		"few large ones wait":     {slots: 5, cost: 10},
		"nobody waits":            {slots: 5, mode: "shadow"},
	} {
		rule := limit.RuleSpec{Mode: tc.mode, Cost: limit.CostSpec{Default: tc.cost}, Rates: []limit.RateSpec{
			{Algorithm: "concurrency", Limit: tc.slots, Lease: time.Minute},
			{Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true, MaxWait: tc.maxWait},
		}}
		if got := warnsOf(t, rule, "W237"); got != tc.want {
			t.Errorf("%s: warned %v, want %v", name, got, tc.want)
		}
	}
}
