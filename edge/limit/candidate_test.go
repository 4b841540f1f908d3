package limit

import (
	"strings"
	"testing"
	"time"
)

func tried(change func(*RuleSpec, *CandidateSpec)) Document {
	spec := RuleSpec{Name: "api", Key: []string{"user"}, Rates: []RateSpec{{Limit: 10, Per: time.Minute}},
		Candidate: &CandidateSpec{Rates: []RateSpec{{Name: "hour", Limit: 50, Per: time.Hour}}}}
	if change != nil {
		change(&spec, spec.Candidate)
	}
	return Document{Namespace: "acme", Tenants: map[string]TenantSpec{"gold": {Multiply: 10}}, Rules: []RuleSpec{spec, {Name: "other", Group: "g", TierFrom: "plan", Rates: []RateSpec{{Limit: 9, Per: time.Minute}}}}}
}

func TestCandidate(t *testing.T) {
	set, problems := Compile(tried(func(r *RuleSpec, _ *CandidateSpec) { r.TierFrom = "plan" }))
	if set == nil {
		t.Fatal(problems)
	}
	if n := set.Written(); n != 2 || len(set.Rules()) != 3 || len(set.Warnings()[0]) > 0 {
		t.Errorf("%d rules are written, of %d; warnings %v", n, len(set.Rules()), set.Warnings())
	}
	req := set.Only().NewRequest()
	defer req.Release()
	req.Set("user", "u")
	req.Set("plan", "gold")
	rules := req.Rules()
	if len(rules) != 2 || rules[0].Name != "api" || rules[1].Name != "other" {
		t.Fatalf("the rules that apply are %+v", rules)
	}
	if c := rules[0].Candidate.For(req); c.Name != "api.candidate" || c.Mode != Shadow || c.Rates[0].Policy != "api.candidate.hour" || c.Rates[0].Limit != 500 || c.Live.Name != "api" {
		t.Errorf("the candidate is %+v", c)
	}
	found := req.Explain().Rules
	if len(found) != 3 || found[1].Rule != rules[0].Candidate.For(req) || found[1].Key != "user=u" {
		t.Errorf("explained are %+v", found)
	}
}

func TestBadCandidates(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*RuleSpec, *CandidateSpec)
		path   string
		says   string
	}{
		"no rates":     {func(_ *RuleSpec, c *CandidateSpec) { c.Rates = nil }, "rules[0].candidate.rates", "no rate"},
		"in force":     {func(_ *RuleSpec, c *CandidateSpec) { c.Mode = "enforce" }, "rules[0].candidate.mode", "denies nobody"},
		"of a list":    {func(r *RuleSpec, _ *CandidateSpec) { r.Allow, r.Rates = true, nil }, "rules[0].candidate", "no limits"},
		"a parent":     {func(_ *RuleSpec, c *CandidateSpec) { c.Margin.Elastic = ElasticSpec{UpToPercent: 5, Parent: "other"} }, "rules[0].candidate.margin.elastic.parent", "borrows from no rule"},
		"a long name":  {func(r *RuleSpec, _ *CandidateSpec) { r.Name = strings.Repeat("x", 60) }, "rules[0].candidate", "too long"},
		"a bad rate":   {func(_ *RuleSpec, c *CandidateSpec) { c.Rates[0].Algorithm = "guess" }, "rules[0].candidate.rates[0].algorithm", "guess"},
		"no such key":  {func(_ *RuleSpec, c *CandidateSpec) { c.Key = []string{"a", "a"} }, "rules[0].candidate.key[1]", "already"},
		"strict queue": {func(_ *RuleSpec, c *CandidateSpec) { c.Consistency = "most" }, "rules[0].candidate.consistency", "most"},
	} {
		t.Run(name, func(t *testing.T) {
			set, problems := Compile(tried(c.change))
			if set != nil || len(problems[0]) != 1 || problems[0][0].Path != c.path || !strings.Contains(problems[0][0].Detail, c.says) {
				t.Errorf("problems %v, want one at %s that says %q", problems, c.path, c.says)
			}
		})
	}
	doc := tried(nil)
	doc.Rules[1].Name = "api.candidate"
	if set, problems := Compile(doc); set != nil || problems[0][0].Code != "E112" {
		t.Errorf("a rule of the candidate's name: %v", problems)
	}
	doc = tried(func(_ *RuleSpec, c *CandidateSpec) { c.Rates[0].Name = "x" })
	doc.Rules[0].Rates = append(doc.Rules[0].Rates, RateSpec{Name: "candidate.x", Limit: 1, Per: time.Hour})
	if set, problems := Compile(doc); set != nil || problems[0][0].Code != "E114" || problems[0][0].Path != "rules[0].candidate.rates[0].name" {
		t.Errorf("a rate of the candidate's policy: %v", problems)
	}
	doc = tried(func(r *RuleSpec, c *CandidateSpec) {
		for range 7 {
			c.Rates = append(c.Rates, RateSpec{Limit: 1, Per: time.Duration(len(c.Rates)+2) * time.Hour})
		}
	})
	for i := range 3 {
		spec := doc.Rules[0]
		spec.Name, spec.Group = strings.Repeat("y", i+1), strings.Repeat("y", i+1)
		doc.Rules = append(doc.Rules, spec)
	}
	if set, problems := Compile(doc); set != nil || problems[0][0].Code != "E104" {
		t.Errorf("more counters than there may be: %v", problems)
	}
}
