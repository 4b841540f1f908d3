package when

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// generationOf is that of a rate whose rule counts when the text holds.
func generationOf(t *testing.T, text string) uint64 {
	t.Helper()
	set, problems := limit.Options{Conditions: Compile}.Compile(limit.Document{
		Namespace: "t", Keys: map[string]limit.KeySource{"tier": {From: []string{"header.X-Tier"}}, "user": {}},
		Rules: []limit.RuleSpec{{Name: "a", Key: []string{"user"}, CountWhen: text, Rates: []limit.RateSpec{{Limit: 5, Per: time.Hour}}}},
	})
	if problems != nil {
		t.Fatalf("%s: %s", text, at(problems[0][0]))
	}
	return set.Rules()[0].Rates[0].Generation
}

func TestCountWhenWrittenOtherwiseKeepsTheGeneration(t *testing.T) {
	for text, others := range map[string][]string{
		`response.status == 401`: {
			`response.status==401`, " response.status\n  ==\t401\n", `(response.status) == (401)`, `response["status"] == 0x191`, `response.status == 401 // a failed login`,
		},
		`response.code == "a b" and not has("org")`: {`response.code=='a b'&&!has('org')`, "(response.code == `a b`) && (not(has(\"org\")))"},
		`tier == "a" or user == "b" or has("org")`:  {`tier == "a" || user == "b" || has("org")`},
		`has("org") ? tier == "a" : user == "b"`:    {`if has("org") { tier == "a" } else { user == "b" }`},
		`response.status not in [401, 403]`:         {`not (response.status in [401,403])`},
	} {
		want := generationOf(t, text)
		for _, other := range others {
			if got := generationOf(t, other); got != want {
				t.Errorf("%q has generation %x, want %x, that of %q: all counts are forgotten", other, got, want, text)
			}
		}
	}
}

func TestCountWhenOfAnotherMeaningGivesAnotherGeneration(t *testing.T) {
	seen := map[uint64]string{}
	for _, text := range []string{
		`response.status == 401`, `response.status == 403`, `response.status != 401`, `response.status == -401`, `response.status in [401, 403]`,
		`response.code == "ab"`, `response.code == "a b"`, `response.code == "a  b"`, `response.code == "a\nb"`, `response.outcome == "a b"`, `tier == "a b"`, `attr("tier") == "a b"`,
		`tier == "a" and (user == "b" or has("org"))`, `(tier == "a" and user == "b") or has("org")`, `tier == "a" and user == "b" or not has("org")`,
		`not (tier == "a") and user == "b"`, `not (tier == "a" and user == "b")`,
		`(tier == "a") == (user == "b")`, `(tier == "a") == (user != "b")`,
	} {
		g := generationOf(t, text)
		if other, ok := seen[g]; ok {
			t.Errorf("%q has the generation of %q, and so mixes counts of two meanings", text, other)
		}
		seen[g] = text
	}
}

// What is printed reads as what it was printed of.
func TestCanonicalMeansTheSame(t *testing.T) {
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		text := generate(rng, "truth", 4)
		canonical := func(text string) (c limit.Condition, printed string) {
			c, err := Compile(text, func(name string) (limit.Attribute, bool) {
				return limit.Attribute{Known: name == "tier" || name == "user" || name == "path" || name == "client_ip"}, true
			})
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, text, err)
			}
			return c, c.(limit.Canonical).Canonical()
		}
		_, printed := canonical(text)
		if _, again := canonical(printed); again != printed {
			t.Fatalf("seed %d: %s is printed as %s, and that as %s", seed, text, printed, again)
		}
		was, err1 := compile(text)
		is, err2 := compile(printed)
		if (err1 == nil) != (err2 == nil) {
			t.Fatalf("seed %d: %s: %v; printed, %s: %v", seed, text, err1, printed, err2)
		}
		if err1 != nil {
			continue
		}
		for range 10 {
			attributes := map[string]string{}
			for _, name := range []string{"tier", "user", "path", "size", "client_ip"} {
				attributes[name] = []string{"", "gold", "u1", "7", "10.0.0.1"}[rng.IntN(5)]
			}
			if got, want := applies(t, is, attributes), applies(t, was, attributes); got != want {
				t.Fatalf("seed %d: of %v %s is %v, and printed, %s, it is %v", seed, attributes, text, want, printed, got)
			}
		}
	}
}
