package when

import (
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
)

// What a pattern is said to have in it, and to begin with, all has that it matches.
func TestPatternsMatchWhatTheyAreSaidTo(t *testing.T) {
	pieces := []string{"a", "b", "/", "^", "$", "(a|/)", "(b|ab)", "[a/]", "[^a]", ".", "a*", "/?", "(ab)+", "(/|)", "b{0,2}", "a{2}", "(?i:B)", "|", `\b`, "(?m:^)", "(^)"}
	texts := func(rng *rand.Rand) string {
		text := make([]byte, rng.IntN(5))
		for i := range text {
			text[i] = "ab/B\n"[rng.IntN(5)]
		}
		return string(text)
	}
	pathless, parted := 0, 0
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		pattern := []string{"", "^"}[rng.IntN(2)]
		for range 1 + rng.IntN(4) {
			pattern += pieces[rng.IntN(len(pieces))]
		}
		re, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			continue
		}
		machine, paths, has := regexp.MustCompile(pattern), beginsWith(re, '/'), parts(re)
		if !paths {
			pathless++
		}
		if len(has) > 0 {
			parted++
		}
		for range 100 {
			text := texts(rng)
			if path := "/" + text; !paths && machine.MatchString(path) {
				t.Errorf("seed %d: %q matches %q, and is said to match no path", seed, pattern, path)
			}
			if machine.MatchString(text) && slices.ContainsFunc(has, func(part string) bool { return !strings.Contains(text, part) }) {
				t.Errorf("seed %d: %q matches %q, and is said to match nothing without %q", seed, pattern, text, has)
			}
		}
	}
	if pathless < 300 || parted < 1000 {
		t.Errorf("%d patterns match no path, and %d have parts: this test sees too little", pathless, parted)
	}
}

// No path is matched by these, as they begin with something else.
func TestPatternsForNoPath(t *testing.T) {
	for pattern, want := range map[string]bool{
		"^api": true, "(^api)": true, "^(api|v1)/": true, "^a?b": true, "^[a-z]*x": true, "^api|^v1": true, `\Aapi`: true, "^(?i)api": true, "^a{0,3}b": true,
		"^/api": false, "api": false, "^": false, "^.": false, "^a*": false, "^(/|api)": false, "^api|/v1": false, "^$": false, "^[^a]": false, "(?m)^api": false,
	} {
		re, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		if got := !beginsWith(re, '/'); got != want {
			t.Errorf("%s matches no path = %v, want %v", pattern, got, want)
		}
	}
}
