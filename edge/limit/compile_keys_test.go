package limit_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func withKeys(rule limit.RuleSpec, keys ...string) limit.Document {
	d := limit.Document{Namespace: "n", Rules: []limit.RuleSpec{rule}, Keys: map[string]limit.KeySource{}}
	for _, k := range keys {
		d.Keys[k] = limit.KeySource{From: []string{"header.X-Key"}}
	}
	return d
}

// A key that is declared under one name and used under another would limit
// nobody.
func TestMisspeltKeys(t *testing.T) {
	by := func(key string) limit.RuleSpec { r := plainRule(); r.Key = []string{key}; return r }
	matching := func(m limit.MatchSpec) limit.RuleSpec { r := plainRule(); r.Match = m; return r }
	for name, tc := range map[string]struct {
		doc  limit.Document
		want string // "": all is well
	}{
		"a letter is missing":      {withKeys(by("user"), "usr"), `keys.usr: no rule uses this key, while rules[0].key[0] names "user", which is not declared (did you mean "user"?)`},
		"a letter too many":        {withKeys(by("user"), "users"), "keys.users"},
		"another letter":           {withKeys(by("tenant"), "tenent"), "keys.tenent"},
		"two letters swapped":      {withKeys(by("user"), "uesr"), "keys.uesr"},
		"two edits of a long word": {withKeys(by("customer"), "costumr"), ""},
		"two swaps":                {withKeys(by("customer"), "ucstomre"), "keys.ucstomre"},
		"in has":                   {withKeys(matching(limit.MatchSpec{Has: []string{"user"}}), "usr"), "rules[0].match.has[0]"},
		"in lacks":                 {withKeys(matching(limit.MatchSpec{Lacks: []string{"user"}}), "usr"), "rules[0].match.lacks[0]"},
		"in equals":                {withKeys(matching(limit.MatchSpec{Equals: map[string][]string{"user": {"x"}}}), "usr"), "rules[0].match.equals.user"},
		"both are declared":        {withKeys(by("user"), "user", "users"), ""},
		"both are used":            {withKeys(matching(limit.MatchSpec{Has: []string{"user"}, Lacks: []string{"users"}}), "users"), ""},
		"another word":             {withKeys(by("user"), "tenant"), ""},
		"short words":              {withKeys(by("id"), "ip"), ""},
		"an attribute of requests": {withKeys(by("host"), "hots"), ""},
		"a header":                 {withKeys(by("header.X-User"), "header_X_User"), ""},
	} {
		_, problems := limit.Compile(tc.doc)
		got := ""
		for _, ps := range problems {
			got += ps.Error()
			if len(ps) != 1 || ps[0].Code != "E125" {
				t.Errorf("%s: %v, want one E125", name, ps)
			}
		}
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Many keys against many words must not take their product in time.
func TestManyUnusedKeys(t *testing.T) {
	took := func(names int) time.Duration {
		rule := plainRule()
		var keys []string
		for i := range names {
			keys = append(keys, fmt.Sprintf("unused_key_%06d", i))
			rule.Match.Has = append(rule.Match.Has, fmt.Sprintf("undeclared_%06d", i))
		}
		least := time.Duration(math.MaxInt64)
		for range 3 { // the least of it is least disturbed
			began := time.Now()
			if _, problems := limit.Compile(withKeys(rule, keys...)); problems != nil {
				t.Fatal(problems[0])
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	if few, many := took(2000), took(20_000); many > 40*few {
		t.Errorf("20,000 unused keys take %v, 2,000 take %v: want it linear", many, few)
	}
}

func TestMethodsAreTokens(t *testing.T) {
	for method, ok := range map[string]bool{"GET": true, "M-SEARCH": true, "FOO BAR": false, "GET,POST": false, "get": false, "": false, "GÉT": false} {
		rule := plainRule()
		rule.Match.Methods = []string{method}
		if _, problems := limit.Compile(withKeys(rule)); (problems == nil) != ok {
			t.Errorf("method %q: %v, want it taken: %v", method, problems, ok)
		}
	}
}
