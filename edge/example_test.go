package edge_test

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
)

// A limiter of its own in five lines.
func ExampleLocal() {
	node, err := edge.Local(limit.RuleSpec{
		Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 2, Per: time.Minute}},
	})
	if err != nil {
		panic(err)
	}
	for range 3 {
		req := node.Rules().Only().NewRequest()
		req.Set("user", "u1")
		d := node.Check(time.Now(), req)
		req.Release()
		fmt.Println(d.Allowed, d.Remaining, d.Rate.Policy)
	}
	// Output:
	// true 1 api.1m
	// true 0 api.1m
	// false 0 api.1m
}

// Rules with conditions: who has none links no expression engine.
func ExampleLocalWith() {
	node, err := edge.LocalWith(limit.Options{Conditions: when.Compile}, limit.RuleSpec{
		Name: "guests", Match: limit.MatchSpec{When: `attr("plan") != "gold"`}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}},
	})
	if err != nil {
		panic(err)
	}
	for _, plan := range []string{"free", "free", "gold"} {
		req := node.Rules().Only().NewRequest()
		req.Set("plan", plan)
		fmt.Println(plan, node.Check(time.Now(), req).Allowed)
		req.Release()
	}
	// Output:
	// free true
	// free false
	// gold true
}

// New rules go on with what was counted by those before, where that means the same. The
// scope is a part of what it means, and Local has edge for a default: without it here,
// u1 would have three more.
func ExampleNode_SetRules() {
	api := func(most uint64) limit.RuleSpec {
		return limit.RuleSpec{Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: most, Per: time.Hour}}}
	}
	node, err := edge.Local(api(2))
	if err != nil {
		panic(err)
	}
	ask := func() bool {
		req := node.Rules().Only().NewRequest()
		defer req.Release()
		req.Set("user", "u1")
		return node.Check(time.Now(), req).Allowed
	}
	fmt.Println(ask(), ask(), ask())

	rules, problems := limit.Compile(limit.Document{
		Namespace: edge.LocalNamespace,
		Defaults:  limit.Defaults{Scope: "edge"},
		Rules:     []limit.RuleSpec{api(3)},
	})
	if rules == nil {
		panic(problems) // those before stay in force
	}
	if err := node.SetRules(rules); err != nil {
		panic(err)
	}
	fmt.Println(ask(), ask())
	// Output:
	// true true false
	// true false
}
