package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A deny list denies without a rate, and nothing is charged to other rules.
func TestDenyList(t *testing.T) {
	list := limit.RuleSpec{Name: "list", Group: "lists", Match: limit.MatchSpec{Equals: map[string][]string{"user": {"bad"}}}, Deny: true}
	all := limit.RuleSpec{Name: "all", Rates: []limit.RateSpec{{Limit: 2, Per: time.Minute}}}
	n := newNode(t, Config{}, list, all)
	for range 3 {
		d := check(n, start, "bad")
		if d.Allowed || d.Rule == nil || d.Rule.Name != "list" || d.Rate != nil || d.Zone != limit.ZoneHard {
			t.Fatalf("decision %+v, want a denial by the list, without a rate", d)
		}
	}
	if n.Keys() != 0 {
		t.Errorf("%d keys after denials by a list, want none", n.Keys())
	}
	for i, want := range []bool{true, true, false} {
		if d := check(n, start, "good"); d.Allowed != want || d.Rule.Name != "all" {
			t.Errorf("request %d: %+v, want allowed %v by all", i, d, want)
		}
	}
}

// In shadow a deny list lets pass, and says that it would not have.
func TestDenyListOnTrial(t *testing.T) {
	list := limit.RuleSpec{Name: "list", Group: "lists", Mode: "shadow", Deny: true}
	n := newNode(t, Config{}, list)
	if d := check(n, start, "u"); !d.Allowed || d.Rule.Name != "list" || d.Zone != limit.ZoneShadow {
		t.Errorf("alone: %+v, want a shadow of the list", d)
	}
	n.SetRules(compile(t, list, limit.RuleSpec{Name: "all", Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}}))
	if d := check(n, start, "u"); !d.Allowed || d.Rule.Name != "all" || d.Zone != limit.ZoneShadow {
		t.Errorf("with a rate: %+v, want a shadow, and the rate's quota told", d)
	}
	if d := check(n, start, "u"); d.Allowed || d.Zone != limit.ZoneHard {
		t.Errorf("over the rate: %+v, want a denial", d)
	}
	strict := list
	strict.Name, strict.Group, strict.Mode = "strict", "more", "enforce"
	n.SetRules(compile(t, list, strict))
	if d := check(n, start, "u"); d.Allowed || d.Rule.Name != "strict" {
		t.Errorf("two lists: %+v, want a denial by the enforced one", d)
	}
}
