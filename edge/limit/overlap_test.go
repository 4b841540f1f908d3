package limit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Two rules that some request meets overlap, and the search finds exactly the
// rules that overlap with one before them.
func TestOverlaps(t *testing.T) {
	both, warned := 0, 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		doc := randomDocument(rng)
		set, problems := Compile(doc)
		if problems != nil {
			t.Fatalf("seed %d: %v", seed, problems[0])
		}
		for i := range set.Only().groups {
			rules := set.Only().groups[i].rules
			for range 30 {
				req := set.Only().NewRequest()
				randomRequest(rng, req)
				var met []*Rule
				for _, r := range rules {
					if r.applies(req) {
						met = append(met, r)
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
		}
		told := map[string]bool{}
		for _, w := range set.Warnings()[0] {
			told[w.Path] = true
		}
		for i := range set.rules {
			want := false
			for k := range i {
				want = want || doc.Rules[i].Priority == doc.Rules[k].Priority && doc.Rules[i].Group == doc.Rules[k].Group && set.rules[i].overlaps(set.rules[k])
			}
			path := fmt.Sprintf("rules[%d].priority", i)
			if told[path] != want {
				t.Fatalf("seed %d: warned of %s: %v, want %v", seed, path, told[path], want)
			}
			if want {
				warned++
			}
		}
	}
	if both < 1000 || warned < 1000 {
		t.Errorf("%d pairs met, %d warnings: this test sees too little", both, warned)
	}
}

func TestWarnings(t *testing.T) {
	rates := []RateSpec{{Limit: 1, Per: time.Minute}}
	pair := func(a, b MatchSpec) Document {
		return Document{Namespace: "t", Rules: []RuleSpec{{Name: "a", Match: a, Rates: rates}, {Name: "b", Match: b, Rates: rates}}}
	}
	for name, tc := range map[string]struct {
		doc  Document
		want string
	}{
		"all and some":         {pair(MatchSpec{}, MatchSpec{Path: []string{"/a"}}), "W201 rules[1].priority"},
		"paths apart":          {pair(MatchSpec{Path: []string{"/a/**"}}, MatchSpec{Path: []string{"/b/**"}}), ""},
		"paths that cross":     {pair(MatchSpec{Path: []string{"/a/*"}}, MatchSpec{Path: []string{"/*/b"}}), "W201 rules[1].priority"},
		"has and lacks":        {pair(MatchSpec{Has: []string{"user"}}, MatchSpec{Lacks: []string{"user"}}), ""},
		"equals and lacks":     {pair(MatchSpec{Lacks: []string{"tier"}}, MatchSpec{Equals: map[string][]string{"tier": {"gold"}}}), ""},
		"methods apart":        {pair(MatchSpec{Methods: []string{"GET"}}, MatchSpec{Methods: []string{"POST"}}), ""},
		"hosts, one below":     {pair(MatchSpec{Host: []string{"*.a.b"}}, MatchSpec{Host: []string{"x.a.b"}}), "W201 rules[1].priority"},
		"networks apart":       {pair(MatchSpec{CIDR: []string{"10.0.0.0/8", "::/0"}}, MatchSpec{CIDR: []string{"11.0.0.0/8"}}), ""},
		"networks, one inside": {pair(MatchSpec{CIDR: []string{"10.0.0.0/8"}}, MatchSpec{CIDR: []string{"10.1.0.0/16"}}), "W201 rules[1].priority"},
		"slices too many":      {Document{Namespace: "t", Rules: []RuleSpec{{Name: "a", Rates: []RateSpec{{Limit: 1, Per: time.Second, Slices: 60}}}}}, "W202 rules[0].rates[0].slices"},
		"slices as they are":   {Document{Namespace: "t", Rules: []RuleSpec{{Name: "a", Rates: []RateSpec{{Limit: 1, Per: time.Second, Slices: 40}}}}}, ""},
	} {
		set, problems := Compile(tc.doc)
		if problems != nil {
			t.Fatalf("%s: %v", name, problems)
		}
		got := ""
		for _, w := range set.Warnings()[0] {
			got += w.Code + " " + w.Path
		}
		if got != tc.want {
			t.Errorf("%s: warnings %q, want %q", name, got, tc.want)
		}
	}
	apart := pair(MatchSpec{}, MatchSpec{})
	apart.Rules[1].Group = "g"
	if set, _ := Compile(apart); len(set.Warnings()[0]) != 0 {
		t.Errorf("rules of two groups: %v", set.Warnings())
	}
}
