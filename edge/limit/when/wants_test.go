package when

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/edge/limit"
)

func TestWants(t *testing.T) {
	for text, want := range map[string]string{
		`tier == "gold"`:                                              "tier in [gold]",
		`"gold" == tier`:                                              "tier in [gold]",
		`header("X-A") == "b"`:                                        "header.X-A in [b]",
		`attr("org") in ["a", "b"]`:                                   "org in [a b]",
		`tier != "gold"`:                                              "tier not in [gold]",
		`tier not in ["gold", ""]`:                                    "tier not in [gold ]",
		`has("org")`:                                                  "org not in []",
		`not has("org")`:                                              "org in []",
		`tier == "gold" and user == "u1"`:                             "tier in [gold], user in [u1]",
		`tier == "gold" or user == "u1"`:                              "",
		`tier == "gold" or tier == "tin"`:                             "tier in [gold tin]",
		`not (tier == "a" or user == "b")`:                            "tier not in [a], user not in [b]",
		`not (tier == "a" and tier == "b")`:                           "",
		`tier != "a" or tier != "b"`:                                  "",
		`tier != "a" or tier == "b"`:                                  "tier not in [a]",
		`tier == "a" or tier != "a"`:                                  "",
		`tier not in ["a", "b"] or tier != "b"`:                       "tier not in [b]",
		`tier == "a" and path startsWith "/x" and int(attr("n")) > 3`: "tier in [a]",
		`lower(tier) == "a" or int(attr("n")) in [1, 2]`:              "",
		`tier == user`:                                                "",
		`(tier == "a") == (user == "b")`:                              "",
		`has("org") ? tier == "a" : false`:                            "",
	} {
		_, wants, err := compileWants(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, w := range wants {
			got = append(got, fmt.Sprintf("%s %sin %v", w.Name, map[bool]string{true: "not "}[w.Not], w.Values))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s wants %q, want %q", text, got, want)
		}
	}
}

// Whatever a condition holds of has all that it wants.
func TestConditionsThatHoldHaveWhatTheyWant(t *testing.T) {
	met := 0
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		text := generate(rng, "truth", 4)
		ns, wants, err := compileWants(text)
		if err != nil && strings.Contains(err.Error(), "E166") {
			continue // it never holds
		}
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, text, err)
		}
		for range 10 {
			req := ns.NewRequest()
			for _, name := range []string{"tier", "header.X-Tier", "user", "path", "size"} {
				req.Set(name, []string{"", "gold", "u1"}[rng.IntN(3)])
			}
			if len(req.Rules()) == 1 {
				for _, w := range wants {
					met++
					if slices.Contains(w.Values, w.Of.Value(req)) == w.Not {
						t.Fatalf("seed %d: %s holds, and wants %+v of %q", seed, text, w, w.Of.Value(req))
					}
				}
			}
			req.Release()
		}
	}
	if met < 5000 {
		t.Errorf("%d wants were met: this test sees too little", met)
	}
}

// asked counts how often its conditions are asked.
type asked struct {
	condition
	times *int
}

func (a asked) Holds(req *limit.Request) (bool, error) {
	*a.times++
	return a.condition.Holds(req)
}

// compileAsked compiles rules whose conditions count how often they are asked.
func compileAsked(t testing.TB, rules []limit.RuleSpec, times *int) *limit.Namespace {
	t.Helper()
	conditions := func(text string, lookup limit.Lookup) (limit.Condition, error) {
		c, err := Compile(text, lookup)
		if err != nil {
			return nil, err
		}
		return asked{c.(condition), times}, nil
	}
	set, problems := limit.Options{Conditions: conditions}.Compile(limit.Document{
		Namespace: "t", Keys: map[string]limit.KeySource{"tier": {From: []string{"header.X-Tier"}}, "user": {}}, Rules: rules,
	})
	if problems != nil {
		t.Fatal(problems[0])
	}
	return set.Only()
}

// tiers are n rules that differ in their conditions alone.
func tiers(n int) []limit.RuleSpec {
	rules := make([]limit.RuleSpec, n)
	for i := range rules {
		rules[i] = limit.RuleSpec{Name: fmt.Sprint("r", i), Priority: i, Allow: true, Match: limit.MatchSpec{
			Path: []string{"/api/**"}, When: fmt.Sprintf(`path startsWith "/api/" and tier in ["t%d", "u%d"]`, i, i),
		}}
	}
	return rules
}

// What is asked does not grow with the rules whose conditions want another value.
func TestRulesAreFoundByTheirConditions(t *testing.T) {
	times := 0
	ns := compileAsked(t, tiers(10_000), &times)
	for tier, want := range map[string]string{"t7": "[r7]", "u9999": "[r9999]", "other": "[]", "": "[]"} {
		times = 0
		req := ns.NewRequest()
		req.Set("path", "/api/x")
		req.Set("tier", tier)
		var names []string
		for _, r := range req.Rules() {
			names = append(names, r.Name)
		}
		if got := fmt.Sprint(names); got != want || times > 1 {
			t.Errorf("tier %q: %s, and %d conditions were asked; want %s and at most 1", tier, got, times, want)
		}
		req.Release()
	}
}

// The index finds the rule that asking all in turn finds.
func TestIndexOfConditionsEqualsScan(t *testing.T) {
	found, times := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 8))
		rules := make([]limit.RuleSpec, 40)
		alone := make([]*limit.Namespace, len(rules))
		for i := range rules {
			for {
				text := generate(rng, "truth", 3)
				if rng.IntN(2) == 0 { // most of the generated hold of anything, and would hide the rest
					text = fmt.Sprintf(`(tier == "gold" or has("user")) and user in ["u1", "%d"] and %s`, i, text)
				}
				rules[i] = limit.RuleSpec{Name: fmt.Sprint("r", i), Priority: -i, Allow: true, Match: limit.MatchSpec{When: text}}
				if _, err := compile(text); err == nil {
					break // else it contradicts itself
				}
			}
			alone[i] = compileAsked(t, rules[i:i+1], &times)
		}
		ns := compileAsked(t, rules, &times)
		for range 20 {
			attributes := map[string]string{}
			for _, name := range []string{"tier", "header.X-Tier", "user", "path", "size"} {
				attributes[name] = []string{"", "gold", "u1", fmt.Sprint(rng.IntN(40))}[rng.IntN(4)]
			}
			want := slices.IndexFunc(alone, func(ns *limit.Namespace) bool { return applies(t, ns, attributes) })
			req := ns.NewRequest()
			for name, value := range attributes {
				req.Set(name, value)
			}
			got := -1
			if rules := req.Rules(); len(rules) == 1 {
				got = rules[0].Index
				found++
			}
			req.Release()
			if got != want {
				t.Fatalf("seed %d: of %v the index finds rule %d, the scan %d", seed, attributes, got, want)
			}
		}
	}
	if found < 500 {
		t.Errorf("%d requests met a rule: this test sees too little", found)
	}
}

// Who has many rules that only their conditions tell apart, and no index can, is told.
func TestManyRulesThatAreAskedOneByOne(t *testing.T) {
	for _, tt := range []struct {
		when  string
		path  bool // a rule's own
		n     int
		want  bool
		lacks int // names, of which each rule lacks one
	}{
		{`int(header("X-Tier")) == %d`, false, 300, true, 0},
		{`int(header("X-Tier")) == %d`, false, 200, false, 0},
		{`int(header("X-Tier")) == %d`, true, 300, false, 0},
		{`header("X-Tier") == "%d"`, false, 300, false, 0},
		{`header("X-Tier") == "%d" or has("user")`, false, 300, true, 0},
		{`int(header("X-Tier")) == %d`, false, 400, true, 8}, // 50 each, which a request has none of
		{`int(header("X-Tier")) == %d`, false, 400, true, 40},
		{`int(header("X-Tier")) == %d`, true, 400, false, 8},
	} {
		rules := tiers(tt.n)
		for i := range rules {
			rules[i].Match.When = fmt.Sprintf(tt.when, i)
			if tt.lacks > 0 {
				rules[i].Match.Lacks = []string{fmt.Sprint("header.X-Not-", i%tt.lacks)}
			}
			if tt.path {
				rules[i].Match.Path = []string{fmt.Sprintf("/api/%d", i)}
			}
		}
		set, problems := limit.Options{Conditions: Compile}.Compile(limit.Document{Namespace: "t", Keys: map[string]limit.KeySource{"user": {}}, Rules: rules})
		if problems != nil {
			t.Fatal(problems[0])
		}
		at := slices.IndexFunc(set.Warnings()[0], func(p limit.Problem) bool { return p.Code == "W227" })
		if (at >= 0) != tt.want {
			t.Errorf("%d rules of %s, each with a path: %v, without one of %d: W227 is %v, want %v", tt.n, tt.when, tt.path, tt.lacks, at >= 0, tt.want)
		}
		if at >= 0 && set.Warnings()[0][at].Path != fmt.Sprintf("rules[%d].match", tt.n-1) {
			t.Errorf("at %s, want the rule that is asked first", set.Warnings()[0][at].Path)
		}
	}
}

// BenchmarkMatchByCondition is of rules that are looked up, and of as many that cannot be.
func BenchmarkMatchByCondition(b *testing.B) {
	numbers := func(n int) []limit.RuleSpec {
		rules := tiers(n)
		for i := range rules {
			rules[i].Match.When = fmt.Sprintf("int(header(\"X-Tier\")) == %d", i)
		}
		return rules
	}
	for name, rules := range map[string]func(int) []limit.RuleSpec{"text": tiers, "number": numbers} {
		for _, n := range []int{100, 1000, 10_000} {
			times := 0
			ns := compileAsked(b, rules(n), &times)
			b.Run(fmt.Sprintf("compared=%s/rules=%d", name, n), func(b *testing.B) {
				req := ns.NewRequest()
				defer req.Release()
				req.Set("path", "/api/x")
				req.Set("tier", "none")
				req.Set("header.X-Tier", "12345678")
				for b.Loop() {
					req.Rules()
				}
			})
		}
	}
}
