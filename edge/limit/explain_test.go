package limit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
)

// Each thing that keeps a rule from applying is told as what it is, and what the request
// has in its place.
func TestExplainMisses(t *testing.T) {
	rates := []limit.RateSpec{{Limit: 10, Per: time.Minute}}
	for _, c := range []struct {
		rule          limit.RuleSpec
		field, detail string
	}{
		{limit.RuleSpec{Match: limit.MatchSpec{Methods: []string{"POST", "PUT"}}}, "match.methods", `method is "GET"; want POST, PUT`},
		{limit.RuleSpec{Match: limit.MatchSpec{Equals: map[string][]string{"plan": {"gold"}}}}, "match.equals", `plan is "free"; want gold`},
		{limit.RuleSpec{Match: limit.MatchSpec{Has: []string{"token"}}}, "match.has", "token is absent"},
		{limit.RuleSpec{Match: limit.MatchSpec{Lacks: []string{"plan"}}}, "match.lacks", "plan is there"},
		{limit.RuleSpec{Match: limit.MatchSpec{Host: []string{"*.example.com", "example.net"}}}, "match.host", `host is "example.org"; want example.net, *.example.com`},
		{limit.RuleSpec{Match: limit.MatchSpec{CIDR: []string{"10.0.0.0/8"}}}, "match.cidr", `client_ip is "192.0.2.1"; want 10.0.0.0/8`},
		{limit.RuleSpec{Match: limit.MatchSpec{Path: []string{"/a/*/b", "/c/**", "/1", "/2", "/3", "/4", "/5"}}}, "match.path", `path is "/x"; want /a/*/b, /c/**, /1, /2, /3 and 2 more`},
		{limit.RuleSpec{Match: limit.MatchSpec{When: `attr("plan") == "gold"`}}, "match.when", `attr("plan") == "gold" does not hold`},
		{limit.RuleSpec{Key: []string{"user"}}, "key", "user is absent"},
		{limit.RuleSpec{Priority: -1}, "priority", `rule "all" of the same group applies`},
		{limit.RuleSpec{Group: "other"}, "", ""},
	} {
		c.rule.Name, c.rule.Rates = "it", rates
		if c.rule.Priority == 0 {
			c.rule.Priority = 5
		}
		set, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{c.rule, {Name: "all", Rates: rates, Key: []string{"plan"}}}})
		if set == nil {
			t.Fatal(problems)
		}
		req := set.Only().NewRequest()
		req.SetHTTP("GET", "/x", "example.org", "192.0.2.1", nil)
		req.Set("plan", "free")
		e := req.Explain()
		if len(e.Rules) != 2 {
			t.Fatalf("%+v, want two rules", e)
		}
		for _, f := range e.Rules {
			if f.Rule.Name == "it" && (f.Miss.Field != c.field || !strings.HasPrefix(f.Miss.Detail, c.detail)) {
				t.Errorf("%+v, want %s: %s", f.Miss, c.field, c.detail)
			}
			if f.Rule.Name == "all" && (f.Miss.Field != "" || f.Key != "plan=free") {
				t.Errorf("the rule that applies: %+v", f)
			}
		}
		req.Release()
	}
}

// Of many rules that do not apply some are told, and how many others there are.
func TestExplainManyRules(t *testing.T) {
	doc := limit.Document{Namespace: "t"}
	for i := range 1000 {
		doc.Rules = append(doc.Rules, limit.RuleSpec{
			Name: "r" + strings.Repeat("x", i%7) + time.Duration(i).String(), Priority: i, Match: limit.MatchSpec{Path: []string{"/" + time.Duration(i).String()}}, Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}},
		})
	}
	set, problems := limit.Compile(doc)
	if set == nil {
		t.Fatal(problems)
	}
	req := set.Only().NewRequest()
	req.SetHTTP("GET", "/77ns", "", "", nil)
	e := req.Explain()
	if len(e.Rules) != 101 || e.More != 899 || e.Rules[0].Rule.Priority != 77 || e.Rules[0].Miss.Field != "" {
		t.Errorf("%d rules and %d more, the first %+v", len(e.Rules), e.More, e.Rules[0].Rule.Name)
	}
}
