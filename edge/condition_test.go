package edge

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge/limit"
)

type failing struct{}

func (failing) Holds(*limit.Request) (bool, error) { return false, errors.New("no") }

func TestConditionFailuresAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	n := newNode(t, Config{Registerer: reg}, limit.RuleSpec{Name: "x", Allow: true})
	engine := func(string, limit.Lookup) (limit.Condition, error) { return failing{}, nil }
	set, problems := limit.Options{Conditions: engine}.Compile(limit.Document{
		Namespace: "t", Rules: []limit.RuleSpec{{Name: "api", Deny: true, Match: limit.MatchSpec{When: "x"}}},
	})
	if problems != nil {
		t.Fatal(problems[0])
	}
	n.SetRules(set)
	for range 3 {
		if d := check(n, start, "u"); !d.Allowed {
			t.Errorf("%+v, want the rule not to apply", d)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "spillgate_condition_failures_total" {
			if got := f.GetMetric()[0].GetCounter().GetValue(); got != 3 {
				t.Errorf("%v failures, want 3", got)
			}
			return
		}
	}
	t.Error("there is no such metric")
}
