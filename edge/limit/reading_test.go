package limit_test

import (
	"slices"
	"testing"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
)

// A rule is asked with each reading of a path by which it applies, and once where no
// other counter could come of another.
func TestReadings(t *testing.T) {
	byPath := map[string]limit.KeySource{"route": {From: []string{"header.X-Route", "path"}}}
	borrower := limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 50, Parent: "parent"}}
	parent := func(key string) limit.RuleSpec {
		return limit.RuleSpec{Name: "parent", Group: "p", Match: limit.MatchSpec{Has: []string{"nobody"}}, Key: []string{key}}
	}
	for name, tc := range map[string]struct {
		rules []limit.RuleSpec
		want  []string
	}{
		"no key":                  {[]limit.RuleSpec{{Name: "r"}}, []string{"r /a"}},
		"key of a user":           {[]limit.RuleSpec{{Name: "r", Key: []string{"user"}}}, []string{"r /a"}},
		"key of the path":         {[]limit.RuleSpec{{Name: "r", Key: []string{"user", "path"}}}, []string{"r /a", "r /b", "r /c"}},
		"key that may be a path":  {[]limit.RuleSpec{{Name: "r", Key: []string{"route"}}}, []string{"r /a", "r /b", "r /c"}},
		"path matches":            {[]limit.RuleSpec{{Name: "r", Match: limit.MatchSpec{Path: []string{"/b", "/c"}}}}, []string{"r /b"}},
		"path and key":            {[]limit.RuleSpec{{Name: "r", Match: limit.MatchSpec{Path: []string{"/b", "/c"}}, Key: []string{"path"}}}, []string{"r /b", "r /c"}},
		"condition":               {[]limit.RuleSpec{{Name: "r", Match: limit.MatchSpec{When: `path == "/c"`}}}, []string{"r /c"}},
		"condition of a user":     {[]limit.RuleSpec{{Name: "r", Match: limit.MatchSpec{When: `attr("user") == "u"`}}}, []string{"r /a"}},
		"value":                   {[]limit.RuleSpec{{Name: "r", Match: limit.MatchSpec{Equals: map[string][]string{"route": {"/c"}}}}}, []string{"r /c"}},
		"another rule of a group": {[]limit.RuleSpec{{Name: "r", Priority: 1, Match: limit.MatchSpec{Path: []string{"/b"}}}, {Name: "s"}}, []string{"s /a", "r /b"}},
		"one beside":              {[]limit.RuleSpec{{Name: "r", Group: "g", Key: []string{"path"}}, {Name: "s"}}, []string{"s /a", "r /a", "r /b", "r /c"}},
		"parent of a user":        {[]limit.RuleSpec{{Name: "r", Margin: borrower}, parent("user")}, []string{"r /a"}},
		"parent of a path":        {[]limit.RuleSpec{{Name: "r", Margin: borrower}, parent("path")}, []string{"r /a", "r /b", "r /c"}},
	} {
		for i := range tc.rules {
			tc.rules[i].Rates = []limit.RateSpec{{Limit: 1, Per: 1e9}}
		}
		set, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{Namespace: "t", Keys: byPath, Rules: tc.rules})
		if set == nil {
			t.Fatalf("%s: %v", name, problems)
		}
		req := set.Only().NewRequest()
		req.Set("path", "/a")
		req.Set("user", "u")
		req.AlsoPaths([]string{"/b", "/c"})
		var got, applied []string
		rules := req.Rules()
		req.Readings(func(r *limit.Rule) {
			got = append(got, r.Name+" "+req.Get("path"))
			if !slices.Contains(applied, r.Name) {
				applied = append(applied, r.Name)
			}
		})
		if !slices.Equal(got, tc.want) || len(rules) != len(applied) || req.Get("path") != "/a" {
			t.Errorf("%s: %q of %d rules, and then %s; want %q", name, got, len(rules), req.Get("path"), tc.want)
		}
	}
}
