package configs

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/edge/limit"
)

// imported is what is written of a file, and what is said of it: "E250@3:5 W251@1:9".
func imported(t *testing.T, text string) (rules, said string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "domain.yaml")
	writeFile(t, file, text)
	written, notes, err := ImportEnvoy(file)
	if err != nil {
		t.Fatal(err)
	}
	words := make([]string, len(notes))
	for i, n := range notes {
		words[i] = fmt.Sprintf("%s@%d:%d", n.Code, n.Line, n.Column)
	}
	return string(written), strings.Join(words, " ")
}

// Each entry that has no equal is told, and the rest is written.
func TestImportTellsWhatHasNoEqual(t *testing.T) {
	const good = "domain: d\ndescriptors:\n- {key: good, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	for text, want := range map[string]string{
		"": "",
		"- {key: a, value: 'b*', share_threshold: true, rate_limit: {unlimited: true}}":                      "",
		"- {key: a, value: x, descriptors: [{key: a, value: y, rate_limit: {unlimited: true}}]}":             "",
		"- {key: a, descriptors: [{key: a, rate_limit: {unlimited: true}}]}":                                 "E250@4:26",
		"- {key: x-user, rate_limit: {unlimited: true}}":                                                     "E250@4:3",
		"- {key: 'a*', rate_limit: {unlimited: true}}":                                                       "E250@4:3",
		"- {key: method, value: get, rate_limit: {unlimited: true}}":                                         "W259@4:3 E250@4:3",
		"- {key: a, value_to_metric: true, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}": "W253@4:29 W254@4:47",
		"- {key: a, rate_limit: {unlimited: true, replaces: [{name: b}]}, metadata: {c: d}}":                 "W255@4:52 W243@4:53 W256@4:76",
		"- {key: a, unit: day}": "W241@4:12",
	} {
		if rules, said := imported(t, good+text); said != want || !strings.Contains(rules, `name: "good"`) {
			t.Errorf("%s: %q, want %q, and the good rule in\n%s", text, said, want, rules)
		}
	}
	for text, want := range map[string]string{
		"domain: a domain\ndescriptors: [{key: a, rate_limit: {unlimited: true}}]": "W251@1:9",
		"domain: d": "W252@1:1",
	} {
		if _, said := imported(t, text); said != want {
			t.Errorf("%s: %q, want %q", text, said, want)
		}
	}
}

// A key that YAML has a meaning for is a name like others.
func TestImportOfYAMLsWords(t *testing.T) {
	text := "domain: d\ndescriptors:\n- {key: plain, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	for _, key := range []string{"null", "true", "False", "no", "n"} {
		text += fmt.Sprintf("- {key: %q, rate_limit: {unit: day, requests_per_unit: 1}}\n- {key: %q, value: x, rate_limit: {unit: hour, requests_per_unit: 1}}\n", key, key)
	}
	rules, said := imported(t, text)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	writeFile(t, file, rules)
	set, err := LoadRules(file)
	if said != "" || err != nil || len(set.Rules()) < 11 {
		t.Errorf("%q, %v, want none and 11 rules:\n%s", said, err, rules)
	}
}

// A tree of very many keys is written in proportion to it: rules do not list all others.
func TestImportOfManyKeys(t *testing.T) {
	text := "domain: d\ndescriptors:\n"
	for i := range 500 {
		text += fmt.Sprintf("- {key: k%d, rate_limit: {unit: day, requests_per_unit: 1}, descriptors: [{key: k1000, rate_limit: {unlimited: true}}]}\n", i)
	}
	rules, said := imported(t, text)
	if said != "W258@3:1" || len(rules) > 300*1000 || strings.Count(rules, "lacks: [k1000]") != 500 {
		t.Errorf("%q, %d bytes, %d rules that lack what is below them; want W258 and 500", said, len(rules), strings.Count(rules, "lacks: [k1000]"))
	}
}

// What a value leaves to no other at its level is admitted; of values alone none has to
// be told so.
func TestImportWritesNoRestInVain(t *testing.T) {
	const values = "domain: d\ndescriptors:\n- {key: a, value: x}\n- {key: a, value: y, rate_limit: {unlimited: true}}\n"
	if rules, _ := imported(t, values); strings.Contains(rules, ".rest") {
		t.Errorf("the rest is admitted in vain:\n%s", rules)
	}
	rules, _ := imported(t, values+"- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n")
	if strings.Count(rules, ".rest") != 1 {
		t.Errorf("want the rest of x admitted, and none of y, which is whole:\n%s", rules)
	}
	below := "- {key: a, value: z, rate_limit: {unit: day, requests_per_unit: 1}, descriptors: [{key: b, value: w, rate_limit: {unit: day, requests_per_unit: 1}}]}\n"
	rules, _ = imported(t, values+below+"- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n")
	if strings.Count(rules, ".rest") != 2 {
		t.Errorf("want the rest of x and of z with another b admitted:\n%s", rules)
	}
	// Of no rule it is said that it never applies.
	file := filepath.Join(t.TempDir(), "rules.yaml")
	writeFile(t, file, rules)
	if set, err := LoadRules(file); err != nil || len(set.Warnings()[0]) > 0 {
		t.Errorf("%v, warnings %v; want none:\n%s", err, set.Warnings(), rules)
	}
}

func TestImportOfSeveralDomains(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		writeFile(t, filepath.Join(dir, name+".yaml"), "domain: "+name+"\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	}
	text, notes, err := ImportEnvoy(dir)
	if err != nil || len(notes) > 0 {
		t.Fatal(notes, err)
	}
	if set, err := ParseRules("imported", text); err != nil || fmt.Sprint(set.Names()) != "[a b]" {
		t.Errorf("%s\nreads as %v, %v; want two namespaces", text, set.Names(), err)
	}
	writeFile(t, filepath.Join(dir, "c.yaml"), "domain: a")
	if _, _, err := ImportEnvoy(dir); err == nil {
		t.Error("a domain of two files is imported")
	}
}

// Variables that the reference heeds, and that say what it does without them, are none of
// those warned of.
func TestImportWarnsOfVariables(t *testing.T) {
	var said []string
	for _, w := range EnvoyVariables([]string{"NEAR_LIMIT_RATIO=0.8", "SHADOW_MODE=true", "QUOTA_MODE=False", "LIMIT_RESET_HEADER=X-Reset", "MERGE_DOMAIN_CONFIG=", "PATH=/bin", stopVariable + "=1", stopVariable + "=yes"}) {
		said = append(said, w.File)
	}
	if got, want := strings.Join(said, " "), "environment "+stopVariable+" environment SHADOW_MODE environment LIMIT_RESET_HEADER"; got != want {
		t.Errorf("warned of %s, want %s", got, want)
	}
}

// The one variable that is taken over is so in what is served as it is, and in rules of our own.
func TestVariableIsTakenOver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	writeFile(t, file, "domain: a\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	for value, want := range map[string]limit.Charging{"": limit.ChargeEach, "false": limit.ChargeEach, "yes": limit.ChargeEach, "true": limit.ChargeAllOrNothing, "1": limit.ChargeAllOrNothing} {
		t.Setenv(stopVariable, value)
		served, err := FormatEnvoy.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := ImportEnvoy(file)
		if err != nil {
			t.Fatal(err)
		}
		written, err := ParseRules("imported", text)
		if err != nil {
			t.Fatal(err)
		}
		for name, set := range map[string]*limit.Set{"served": served, "imported": written} {
			if got := set.Namespace("a").DescriptorCharge(); got != want {
				t.Errorf("%q, %s: %v, want %v", value, name, got, want)
			}
		}
	}
}

// pairOf is an entry of a descriptor.
type pairOf struct{ key, value string }

func (p pairOf) GetKey() string   { return p.key }
func (p pairOf) GetValue() string { return p.value }

// TestImportedRulesDecideAlike: of random trees whose levels have keys of their own, so
// that the order of entries is known, each descriptor meets the rule of its limit, and
// two that count together do so in the rules, too.
func TestImportedRulesDecideAlike(t *testing.T) {
	levels := [][]string{{"user", "plan"}, {"path", "zone"}, {"tag"}}
	values := []string{"", "a", "a1", "a*", "*", "a*z", "b"}
	asked := []string{"a", "a1", "a12", "a1z", "b", "c"}
	met := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		n := 0
		var grow func(depth int) []limit.DescriptorSpec
		grow = func(depth int) (specs []limit.DescriptorSpec) {
			taken := map[pairOf]bool{}
			for range r.IntN(5) {
				s := limit.DescriptorSpec{Key: levels[depth][r.IntN(len(levels[depth]))], Value: values[r.IntN(len(values))]}
				if taken[pairOf{s.Key, s.Value}] {
					continue
				}
				taken[pairOf{s.Key, s.Value}] = true
				s.Share = strings.Contains(s.Value, "*") && r.IntN(2) == 0
				if n++; r.IntN(3) > 0 {
					s.Limit = &limit.DescriptorLimit{Requests: uint32(n), Unit: limit.DescriptorUnits[r.IntN(7)].Length, Shadow: r.IntN(4) == 0}
					if r.IntN(6) == 0 {
						s.Limit = &limit.DescriptorLimit{Unlimited: true}
					}
				}
				if depth+1 < len(levels) {
					s.Below = grow(depth + 1)
				}
				specs = append(specs, s)
			}
			return specs
		}
		doc := limit.Document{Namespace: "d", Descriptors: &limit.DescriptorSpec{Below: grow(0)}}
		theirs, problems := limit.Compile(doc)
		if theirs == nil {
			t.Fatal(problems)
		}
		w := &rulesWriter{reader: newReader(newSource("d.yaml", nil)), domain: "d", taken: map[string]bool{}, keys: map[string]bool{}}
		text := w.document(doc.Descriptors)
		if text == nil {
			continue
		}
		ours, err := ParseRules("imported", text)
		if err != nil {
			t.Fatal(err)
		}
		tree, ns := theirs.Namespace("d").Descriptors(), ours.Namespace("d")
		known := map[string]string{}
		for range 200 {
			var entries []pairOf
			req := ns.NewRequest()
			for depth := range 1 + r.IntN(3) {
				e := pairOf{levels[depth][r.IntN(len(levels[depth]))], asked[r.IntN(len(asked))]}
				if !w.keys[e.key] { // our rules cannot know of it
					break
				}
				entries = append(entries, e)
				req.Set(e.key, e.value)
			}
			want, key := "nothing", ""
			l, counted := limit.FindDescriptor(tree, entries)
			if l != nil && !l.Unlimited {
				want, key = fmt.Sprintf("%d in %v, shadow %v", l.Requests, l.Unit, l.Shadow), counted
				met++
			}
			got, own := "nothing", ""
			for _, rule := range req.Rules() {
				if !rule.Allow {
					got = fmt.Sprintf("%d in %v, shadow %v", rule.Rates[0].Limit, rule.Rates[0].Window, rule.Mode == limit.Shadow)
					own = rule.Name + " " + rule.KeyText(req)
				}
			}
			before, counts := known[key]
			if known[key] = own; got != want || counts && before != own {
				t.Fatalf("seed %d: %v meets %s as %q (before %q), want %s as %q\n%s", seed, entries, got, own, before, want, key, text)
			}
			req.Release()
		}
	}
	if met < 1000 {
		t.Errorf("%d requests met a limit, want 1000 at least: they test little", met)
	}
}
