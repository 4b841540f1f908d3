package limit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Two rules that some request meets overlap, a rule that another covers is never
// met without it, and the searches find exactly such rules.
func TestOverlaps(t *testing.T) {
	both, warned, never := 0, 0, 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		doc := randomDocument(rng)
		set, problems := Compile(doc)
		if problems != nil {
			t.Fatalf("seed %d: %v", seed, problems[0])
		}
		told := map[string]string{}
		for _, w := range set.Warnings()[0] {
			told[w.Path] = w.Code
		}
		for i := range set.Only().groups {
			rules := rankedOf(set.Only().groups[i].rules)
			for range 30 {
				req := set.Only().NewRequest()
				randomRequest(rng, req)
				var met []*ranked
				for _, r := range rules {
					if r.applies(req) {
						met = append(met, r)
						continue
					}
					for _, m := range met {
						if r.covers(m) {
							t.Fatalf("seed %d: %q meets %s, and not %s, which covers it", seed, req.attrs, m.Name, r.Name)
						}
					}
				}
				for k := 1; k < len(met); k++ {
					both++
					if !met[k].overlaps(met[k-1]) || !met[k-1].overlaps(met[k]) {
						t.Fatalf("seed %d: %q meets %s and %s, and these do not overlap", seed, req.attrs, met[k-1].Name, met[k].Name)
					}
				}
				req.Release()
			}
			for k, r := range rules {
				want := ""
				for _, before := range rules[:k] {
					if before.covers(r) {
						want = "W205"
					} else if want == "" && before.Priority == r.Priority && before.overlaps(r) {
						want = "W201"
					}
				}
				path := fmt.Sprintf("rules[%d].priority", r.Index)
				if told[path] != want {
					t.Fatalf("seed %d: warned of %s: %q, want %q", seed, path, told[path], want)
				}
				switch want {
				case "W201":
					warned++
				case "W205":
					never++
				}
			}
		}
	}
	if both < 1000 || warned < 1000 || never < 1000 {
		t.Errorf("%d pairs met, %d and %d warnings: this test sees too little", both, warned, never)
	}
}

func TestWarnings(t *testing.T) {
	rates := []RateSpec{{Limit: 1, Per: time.Minute}}
	pair := func(a, b MatchSpec) Document {
		return Document{Namespace: "t", Rules: []RuleSpec{{Name: "a", Match: a, Rates: rates}, {Name: "b", Match: b, Rates: rates}}}
	}
	trial := func(d Document, first, second string) Document {
		d.Rules[0].Mode, d.Rules[1].Mode, d.Rules[0].Priority = first, second, 1
		return d
	}
	lends := pair(MatchSpec{}, MatchSpec{})
	lends.Rules[0].Priority, lends.Rules[0].Margin.Elastic = 1, ElasticSpec{UpToPercent: 100, Parent: "b"}
	for name, tc := range map[string]struct {
		doc  Document
		want string
	}{
		"a pool that lends":    {lends, ""},
		"a trial before some":  {trial(pair(MatchSpec{Path: []string{"/a"}}, MatchSpec{}), "shadow", ""), "W263 rules[0].mode"},
		"a trial before all":   {trial(pair(MatchSpec{}, MatchSpec{Path: []string{"/a"}}), "shadow", ""), "W205 rules[1].priority"},
		"a trial of others":    {trial(pair(MatchSpec{Path: []string{"/b"}}, MatchSpec{Path: []string{"/a"}}), "shadow", ""), ""},
		"a trial before one":   {trial(pair(MatchSpec{Path: []string{"/a"}}, MatchSpec{}), "shadow", "shadow"), ""},
		"a trial behind all":   {trial(pair(MatchSpec{Path: []string{"/a"}}, MatchSpec{}), "", "shadow"), ""},
		"some and all":         {pair(MatchSpec{Path: []string{"/a"}}, MatchSpec{}), "W201 rules[1].priority"},
		"all and some":         {pair(MatchSpec{}, MatchSpec{Path: []string{"/a"}}), "W205 rules[1].priority"},
		"paths, one below":     {pair(MatchSpec{Path: []string{"/a/**"}}, MatchSpec{Path: []string{"/a/*/b", "/a"}}), "W205 rules[1].priority"},
		"values, all of them":  {pair(MatchSpec{Equals: map[string][]string{"tier": {"a", "b"}}}, MatchSpec{Equals: map[string][]string{"tier": {"b"}}, Methods: []string{"GET"}}), "W205 rules[1].priority"},
		"has, and a value":     {pair(MatchSpec{Has: []string{"tier"}}, MatchSpec{Equals: map[string][]string{"tier": {"b"}}}), "W205 rules[1].priority"},
		"paths apart":          {pair(MatchSpec{Path: []string{"/a/**"}}, MatchSpec{Path: []string{"/b/**"}}), ""},
		"paths that cross":     {pair(MatchSpec{Path: []string{"/a/*"}}, MatchSpec{Path: []string{"/*/b"}}), "W201 rules[1].priority"},
		"has and lacks":        {pair(MatchSpec{Has: []string{"user"}}, MatchSpec{Lacks: []string{"user"}}), ""},
		"equals and lacks":     {pair(MatchSpec{Lacks: []string{"tier"}}, MatchSpec{Equals: map[string][]string{"tier": {"gold"}}}), ""},
		"methods apart":        {pair(MatchSpec{Methods: []string{"GET"}}, MatchSpec{Methods: []string{"POST"}}), ""},
		"hosts, one above":     {pair(MatchSpec{Host: []string{"x.a.b"}}, MatchSpec{Host: []string{"*.a.b"}}), "W201 rules[1].priority"},
		"hosts, one below":     {pair(MatchSpec{Host: []string{"*.a.b"}}, MatchSpec{Host: []string{"x.a.b", "*.c.a.b"}}), "W205 rules[1].priority"},
		"networks apart":       {pair(MatchSpec{CIDR: []string{"10.0.0.0/8", "::/0"}}, MatchSpec{CIDR: []string{"11.0.0.0/8"}}), ""},
		"networks, one around": {pair(MatchSpec{CIDR: []string{"10.1.0.0/16"}}, MatchSpec{CIDR: []string{"10.0.0.0/8"}}), "W201 rules[1].priority"},
		"networks, one inside": {pair(MatchSpec{CIDR: []string{"10.0.0.0/8", "192.0.2.0/24"}}, MatchSpec{CIDR: []string{"10.1.0.0/16"}}), "W205 rules[1].priority"},
		"slices too many":      {Document{Namespace: "t", Rules: []RuleSpec{{Name: "a", Rates: []RateSpec{{Limit: 1, Per: time.Second, Slices: 60}}}}}, "W202 rules[0].rates[0].slices"},
		"slices as they are":   {Document{Namespace: "t", Rules: []RuleSpec{{Name: "a", Rates: []RateSpec{{Limit: 1, Per: time.Second, Slices: 40}}}}}, ""},
	} {
		if got := warned(t, name, tc.doc); got != tc.want {
			t.Errorf("%s: warnings %q, want %q", name, got, tc.want)
		}
	}
	apart := pair(MatchSpec{}, MatchSpec{})
	apart.Rules[1].Group = "g"
	if set, _ := Compile(apart); len(set.Warnings()[0]) != 0 {
		t.Errorf("rules of two groups: %v", set.Warnings())
	}
}

// warned is what a document is warned of: codes and paths.
func warned(t *testing.T, name string, doc Document) (got string) {
	t.Helper()
	set, problems := Compile(doc)
	if problems != nil {
		t.Fatalf("%s: %v", name, problems)
	}
	for _, w := range set.Warnings()[0] {
		got += w.Code + " " + w.Path
	}
	return got
}

// Of a thousand rules, too, the two that meet are told: by the domains that their hosts are
// below. Where nothing tells so many apart, that is told.
func TestWarningsOfThousands(t *testing.T) {
	for name, tc := range map[string]struct {
		match func(i int) MatchSpec
		want  string
	}{
		"domains": {func(i int) MatchSpec {
			return MatchSpec{Host: []string{fmt.Sprintf("*.t%d.example.com", i), fmt.Sprintf("*.t%d.example.org", i)}}
		}, "W205 rules[2999].priority"},
		"hosts and domains": {func(i int) MatchSpec {
			return MatchSpec{Host: []string{fmt.Sprintf("a.t%d.example.com", i), fmt.Sprintf("*.b.t%d.example.com", i)}}
		}, "W205 rules[2999].priority"},
		"the ends of long paths": {func(i int) MatchSpec {
			return MatchSpec{Path: []string{fmt.Sprintf("/*/*/*/*/*/*/*/*/%d", i), fmt.Sprintf("/*/*/*/*/*/*/*/*/*/%d", i)}}
		}, "W238 rules"},
	} {
		doc := Document{Namespace: "t"}
		for i := range 3000 {
			doc.Rules = append(doc.Rules, RuleSpec{Name: fmt.Sprint("r", i), Match: tc.match(min(i, 2998)), Rates: []RateSpec{{Limit: 1, Per: time.Minute}}})
		}
		if got := warned(t, name, doc); got != tc.want {
			t.Errorf("%s: warnings %q, want %q", name, got, tc.want)
		}
	}
}

// Rules of one priority that nothing tells apart but the end of long paths.
func BenchmarkCompileOfOnePriority(b *testing.B) {
	for _, paths := range []int{1, 10, 30} {
		doc := Document{Namespace: "t"}
		for i := range 10_000 {
			r := RuleSpec{Name: fmt.Sprint("r", i), Rates: []RateSpec{{Limit: 1, Per: time.Second}}}
			for k := range paths {
				r.Match.Path = append(r.Match.Path, fmt.Sprintf("/*/*/*/*/*/*/*/*/%d-%d", i, k))
			}
			doc.Rules = append(doc.Rules, r)
		}
		b.Run(fmt.Sprint("paths=", paths), func(b *testing.B) {
			for b.Loop() {
				if _, problems := Compile(doc); problems != nil {
					b.Fatal(problems[0])
				}
			}
		})
	}
}
