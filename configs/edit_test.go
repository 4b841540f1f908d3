package configs

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

const threeRules = `# of the shop
schema: spillgate/v1
namespace: shop   # its name
rules:
# The first.
- name: a
  key: [user]
  rates:
  - {limit: 1, per: 1m}

# The second.
- {name: b, rates: [{limit: 2, per: 1m}]}
-
  # inside
  name: c
  rates: [{limit: 3, per: 1m}]
# at the end
tenants: {gold: {multiply: 2}}
`

func TestRulesOf(t *testing.T) {
	rules, err := RulesOf(Text{Name: "shop", Text: threeRules})
	if err != nil || len(rules) != 3 {
		t.Fatalf("RulesOf = %+v, %v", rules, err)
	}
	for i, want := range []RuleText{
		{Name: "a", Line: 6, Text: "name: a\nkey: [user]\nrates:\n- {limit: 1, per: 1m}\n"},
		{Name: "b", Line: 12, Text: "{name: b, rates: [{limit: 2, per: 1m}]}\n"},
		{Name: "c", Line: 15, Text: "# inside\nname: c\nrates: [{limit: 3, per: 1m}]\n"},
	} {
		if got := rules[i]; got.Name != want.Name || got.Line != want.Line || got.Text != want.Text {
			t.Errorf("rule %d is %+v, want %+v", i, got, want)
		}
	}
	if text, err := json.Marshal(rules[0].Value); err != nil || string(text) != `{"key":["user"],"name":"a","rates":[{"limit":1,"per":"1m"}]}` {
		t.Errorf("the first as JSON is %s, %v", text, err)
	}
	rules, err = RulesOf(Text{Name: "x", Text: "rules: [{name: a}, {name: b}]"})
	if err != nil || len(rules) != 2 || rules[1].Name != "b" || rules[1].Text != "" {
		t.Errorf("of a list within brackets RulesOf = %+v, %v", rules, err)
	}
}

func TestSetRule(t *testing.T) {
	for _, c := range []struct{ name, of, rule, from, to string }{
		{"one of several lines", "a", "name: a\nrates: [{limit: 9, per: 1m}]\n", "- name: a\n  key: [user]\n  rates:\n  - {limit: 1, per: 1m}\n", "- name: a\n  rates: [{limit: 9, per: 1m}]\n"},
		{"one within braces", "b", "# why\nname: b\nallow: true", "- {name: b, rates: [{limit: 2, per: 1m}]}\n", "-\n  # why\n  name: b\n  allow: true\n"},
		{"the last, as JSON", "c", `{"name":"c","allow":true}`, "-\n  # inside\n  name: c\n  rates: [{limit: 3, per: 1m}]\n", "- {\"name\":\"c\",\"allow\":true}\n"},
		{"one more", "d", "name: d\n\nwhen: |\n  a\n  b\n", "  rates: [{limit: 3, per: 1m}]\n#", "  rates: [{limit: 3, per: 1m}]\n- name: d\n\n  when: |\n    a\n    b\n#"},
		{"none, of those with a comment", "b", "", "# The second.\n- {name: b, rates: [{limit: 2, per: 1m}]}\n", ""},
		{"not the last", "c", "", "-\n  # inside\n  name: c\n  rates: [{limit: 3, per: 1m}]\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := SetRule(Text{Name: "shop", Text: threeRules}, c.of, c.rule)
			if want := strings.Replace(threeRules, c.from, c.to, 1); err != nil || got != want || want == threeRules {
				t.Errorf("SetRule = %v\n%s\nwant\n%s", err, got, want)
			}
		})
	}
}

// Line ends stay, and so do comments and texts that begin with #.
func TestSetRuleLeavesTheRest(t *testing.T) {
	text := "rules:\r\n- name: a\r\n  when: |\r\n    # not\r\n    # a comment\r\n# of b\r\n- name: b\r\n  # end of b\r\n"
	rules, err := RulesOf(Text{Text: text})
	if err != nil || rules[0].Text != "name: a\nwhen: |\n  # not\n  # a comment\n" || rules[1].Text != "name: b\n# end of b\n" {
		t.Errorf("RulesOf = %+v, %v", rules, err)
	}
	for of, want := range map[string]string{
		"a": strings.Replace(text, "  when: |\r\n    # not\r\n    # a comment\r\n", "  allow: true\r\n", 1),
		"c": text + "- name: c\r\n  allow: true\r\n",
	} {
		if got, err := SetRule(Text{Text: text}, of, "name: "+of+"\nallow: true\n"); err != nil || got != want {
			t.Errorf("SetRule of %s = %q, %v, want %q", of, got, err, want)
		}
	}
}

// What SetRule cannot do it says, and changes nothing.
func TestSetRuleRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, of, rule, says string }{
		{"another name", threeRules, "a", "name: b", `"b"`},
		{"no name", threeRules, "a", "allow: true", `""`},
		{"no mapping", threeRules, "a", "- name: a", "a mapping"},
		{"two documents", threeRules, "a", "name: a\n---\nname: a", "a mapping"},
		{"no YAML", threeRules, "a", "name: [", "E003"},
		{"brackets", "rules: [{name: a}, {name: b}]", "a", "name: a", "as a whole"},
		{"its brackets begin on a line below", "rules:\n  [{name: a}, {name: b}]", "a", "", "as a whole"},
		{"not there", threeRules, "x", "", `no rule "x"`},
		{"the only one", "rules:\n- name: a\n", "a", "", "only rule"},
		{"no rules", "namespace: a", "a", "name: a", "list of rules"},
		{"an anchor that others need", "rules:\n- name: a\n  key: &k [user]\n- name: b\n  key: *k\n", "a", "", "anchor"},
		{"another of that name", "rules:\n- name: a\n- name: b\n- &r\n  name: c\n- *r\n", "c", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := SetRule(Text{Name: "shop", Text: c.text}, c.of, c.rule)
			var mistakes *RulesError
			if err == nil || got != "" || !errors.As(err, &mistakes) && !errors.Is(err, ErrInPlace) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("SetRule = %q, %v, want an error that says %q", got, err, c.says)
			}
		})
	}
}

// FuzzSetRule: what is set is read back, what stands beside stays, and what was set back is as before.
func FuzzSetRule(f *testing.F) {
	f.Add(threeRules, "a", "name: a\nallow: true")
	f.Add(threeRules, "x", "{name: x}")
	f.Add("rules:\n    - name: a # y\n      key: [u]\n    - &x\n      name: z\n", "z", "  name: z\n")
	f.Add("rules:\r\n- \"name\": q\r\n", "q", "")
	f.Fuzz(func(t *testing.T, text, name, rule string) {
		before, err := RulesOf(Text{Name: "f", Text: text})
		if err != nil {
			return
		}
		after, err := SetRule(Text{Name: "f", Text: text}, name, rule)
		if err != nil {
			return
		}
		rules, err := RulesOf(Text{Name: "f", Text: after})
		if err != nil {
			t.Fatalf("what was set cannot be read: %v\n%s", err, after)
		}
		others := func(rules []RuleText) string {
			var out []any
			for _, r := range rules {
				if r.Name != name {
					out = append(out, r.Value)
				}
			}
			b, err := json.Marshal(out)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if others(before) != others(rules) {
			t.Fatalf("other rules are otherwise:\n%s\n%s", text, after)
		}
	})
}
