package configs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const shopRules = "schema: spillgate/v1\nnamespace: shop\nrules:\n- {name: a, rates: [{limit: 1, per: 1m}]}\n"

func TestTextsAreOfTheirNamespaces(t *testing.T) {
	bankRules := strings.Replace(shopRules, "shop", "bank", 1)
	set, _, err := FormatSpillgate.CheckTexts(Text{Name: "one", Namespace: "shop", Text: shopRules}, Text{Name: "two", Text: bankRules})
	if err != nil || strings.Join(set.Names(), " ") != "bank shop" {
		t.Errorf("CheckTexts = %v, %v", set, err)
	}
	if set, _, err := FormatSpillgate.CheckTexts(); err != nil || set.Written() != 0 {
		t.Errorf("CheckTexts of nothing = %v, %v, want no rules", set, err)
	}
	for _, c := range []struct {
		texts []Text
		want  string
	}{
		{[]Text{{Name: "one", Namespace: "bank", Text: shopRules}}, "one: E247 namespace: the document is of namespace shop, and is kept as that of bank"},
		{[]Text{{Name: "one", Namespace: "shop", Text: shopRules + "---\n" + bankRules}}, "one: E247 namespace: 2 documents"},
		{[]Text{{Name: "one", Namespace: "shop", Text: "# nothing\n"}}, "one: E004 "},
		{[]Text{{Name: "one", Line: 11, Text: strings.Replace(shopRules, "limit: 1", "limit: x", 1)}}, "one:14:"},
		{[]Text{{Name: "one", Text: shopRules}, {Name: "two", Text: shopRules}}, "two:2:12: "},
	} {
		if _, _, err := FormatSpillgate.CheckTexts(c.texts...); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.texts, err, c.want)
		}
	}
	domain := Text{Name: "d", Namespace: "d", Text: "domain: d\ndescriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: 5}}]\n"}
	if name, err := FormatEnvoy.NamespaceOf(domain); err != nil || name != "d" {
		t.Errorf("NamespaceOf = %q, %v", name, err)
	}
}

func TestSplitRules(t *testing.T) {
	docs := SplitRules("f", "# first\na: 1\n--- \r\n\n# second\nb: |\n  x\n  ---\n---\n# nothing\n---\nc: 3")
	want := []Text{{Name: "f", Line: 1, Text: "# first\na: 1\n"}, {Name: "f", Line: 4, Text: "\n# second\nb: |\n  x\n  ---\n"}, {Name: "f", Line: 12, Text: "c: 3"}}
	if len(docs) != len(want) {
		t.Fatalf("SplitRules = %+v, want %+v", docs, want)
	}
	for i := range want {
		if docs[i] != want[i] {
			t.Errorf("document %d is %+v, want %+v", i, docs[i], want[i])
		}
	}
}

func TestWhereRulesComeFrom(t *testing.T) {
	cleanEnv(t)
	const base = "region: eu\nsecret: 01234567890123456\n"
	for text, want := range map[string]string{
		"":                                        "rules.path: is missing",
		"rules: {source: kv, path: r}\n":          ":3:27: E203 rules.path: rules.source: kv reads no files",
		"rules: {source: etcd}\n":                 `:3:17: E202 rules.source: "etcd": one of file, kv`,
		"rules: {path: r, kv: {domain: eu}}\n":    ":3:31: E203 rules.kv.domain: rules come from files",
		"rules: {path: r, kv: {file: f}}\n":       ":3:29: E203 rules.kv.file: rules come from files",
		"rules: {path: r, kv: {bucket: rules}}\n": ":3:31: E203 rules.kv.bucket: rules come from files",
		"rules: {source: kv, kv: {bucket: a b}}":  "rules.kv.bucket",
	} {
		if _, err := loadEdge(t, "-c", settingsFile(t, base+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	s, err := loadEdge(t, "-c", settingsFile(t, base+"rules: {source: kv, kv: {domain: eu, file: f}}\n"))
	if err != nil || s.Rules.KV.Bucket != "rules" || s.Rules.KV.Domain != "eu" || !strings.HasSuffix(s.Rules.KV.File, "/f") || !s.Rules.Set() {
		t.Errorf("LoadEdge = %+v, %v", s, err)
	}
}

// While a document is rolled out each rule whose limits were others has those beside it; where that
// cannot be, the document is in force all the same.
func TestRulesAreComparedWithThoseOfBefore(t *testing.T) {
	const before = `schema: spillgate/v1
namespace: shop
rules:
- {name: same, key: [user], rates: [{limit: 5, per: 1m}]}
- {name: wider, group: a, rates: [{limit: 5, per: 1m}]}
- {name: by-user, group: b, rates: [{limit: 5, per: 1m}]}
- {name: tried, group: c, rates: [{limit: 5, per: 1m}]}
- {name: gone, group: d, rates: [{limit: 5, per: 1m}]}
`
	const now = `schema: spillgate/v1
namespace: shop
rules:
- {name: same, key: [user], rates: [{limit: 5, per: 1m}]}
- {name: wider, group: a, rates: [{limit: 9, per: 1m}]}
- {name: by-user, group: b, key: [user], rates: [{limit: 5, per: 1m}]}
- {name: tried, group: c, rates: [{limit: 6, per: 1m}], candidate: {rates: [{limit: 7, per: 1m}]}}
- {name: new, group: d, rates: [{limit: 5, per: 1m}]}
`
	compared := func(text, before string) (got string) {
		t.Helper()
		set, _, err := FormatSpillgate.CheckTexts(Text{Name: "shop, version 2", Namespace: "shop", Text: text, Before: before})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range set.Rules() {
			if r.Candidate != nil {
				got += fmt.Sprintf("%s %d ", r.Name, r.Candidate.Rates[0].Limit)
			}
		}
		return got
	}
	if got := compared(now, before); got != "wider 5 by-user 5 tried 7 " {
		t.Errorf("compared are %q", got)
	}
	if got := compared(now, ""); got != "tried 7 " {
		t.Errorf("without a version before compared are %q", got)
	}
	if got := compared(now, "no rules"); got != "tried 7 " {
		t.Errorf("with what cannot be read compared are %q", got)
	}
	long := strings.Repeat("x", 60)
	other := Text{Name: "bank", Namespace: "bank", Text: strings.Replace(now, "shop", "bank", 1), Before: strings.Replace(before, "shop", "bank", 1)}
	alone := Text{Name: "shop", Namespace: "shop", Text: strings.Replace(now, "wider", long, 1), Before: strings.Replace(before, "wider", long, 1)}
	set, warnings, err := FormatSpillgate.CheckTexts(alone, other)
	if err != nil || !slices.ContainsFunc(warnings, func(m Mistake) bool { return m.Code == "W267" && m.File == "shop" }) {
		t.Fatalf("CheckTexts = %v, %v", warnings, err)
	}
	for _, r := range set.Rules() {
		if r.Namespace == "bank" && r.Name == "wider" && r.Candidate == nil {
			t.Error("one namespace that cannot be compared keeps another from it")
		}
	}
	if got := compared(strings.Replace(now, "wider", long, 1), strings.Replace(before, "wider", long, 1)); got != "tried 7 " {
		t.Errorf("where a name is too long for a candidate's compared are %q", got)
	}
}
