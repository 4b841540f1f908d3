package configs

import (
	"fmt"
	"strings"
	"testing"
)

func TestSlipsAreTold(t *testing.T) {
	text := func(rules string) Text {
		return Text{Name: "shop", Namespace: "shop", Text: "schema: spillgate/v1\nnamespace: shop\nrules:\n" + rules}
	}
	const was = "- {name: a, rates: [{limit: 600, per: 1m}, {name: day, limit: 5000, per: 24h}]}\n- {name: b, group: b, rates: [{algorithm: token_bucket, capacity: 100, refill: 5/s}]}\n"
	for _, c := range []struct{ name, from, to, says string }{
		{"nothing", "", "", ""},
		{"a half", "limit: 600", "limit: 300", ""},
		{"more", "limit: 600", "limit: 60000", ""},
		{"a zero too few", "limit: 600", "limit: 60", `shop:4:29: W266 rules[0].rates[0].limit: 60 of rule "a" is a tenth of what it was, 600, or less`},
		{"none", "limit: 5000", "limit: 0", `a limit of 0, and it was 5000: rule "a" denies all`},
		{"a bucket", "capacity: 100", "capacity: 5", `rules[1].rates[0].capacity: 5 of rule "b"`},
		{"another window", "limit: 600, per: 1m", "limit: 10, per: 1s", ""},
		{"a longer window", "{name: day, limit: 5000, per: 24h}", "{name: day, limit: 5000, per: 365d}", `rule "a" admits 0.000159 a second in the long run, and it was 0.0579`},
		{"a slower refill", "refill: 5/s", "refill: 5/m", `rule "b" admits 0.0833 a second`},
		{"a key less", "name: b, ", "name: b, key: [user], ", ""},
		{"shut", "rates: [{limit: 600, per: 1m}, {name: day, limit: 5000, per: 24h}]", "deny: true", "denies all that it matches, and did not"},
		{"let in", "rates: [{limit: 600, per: 1m}, {name: day, limit: 5000, per: 24h}]", "allow: true", "limits nothing, and did"},
		{"gone", "name: a", "name: other", `rule "a" is gone`},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := text(strings.Replace(was, c.from, c.to, 1))
			got := FormatSpillgate.Slips(text(was), next)
			if c.says == "" && len(got) > 0 || c.says != "" && (len(got) != 1 || !strings.Contains(got[0].String(), c.says)) {
				t.Errorf("Slips = %v, want %q", got, c.says)
			}
		})
	}
	if got := FormatSpillgate.Slips(text("- {name: a, key: [user], rates: [{limit: 6, per: 1m}]}"), text("- {name: a, rates: [{limit: 6, per: 1m}]}")); len(got) != 1 || !strings.Contains(got[0].Detail, `counts by [], and did by ["user"]`) {
		t.Errorf("of a key that is gone: %v", got)
	}
	if got := FormatSpillgate.Slips(text("- {name: ["), text(was)); got != nil {
		t.Errorf("of what cannot be read: %v", got)
	}
	if got := fmt.Sprint(FormatEnvoy.Slips(Text{Text: "domain: a"}, Text{Text: "domain: a"})); got != "[]" {
		t.Errorf("in Envoy's format: %v", got)
	}
}
