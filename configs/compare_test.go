package configs

import (
	"slices"
	"strings"
	"testing"
)

// What changed otherwise than by its limits is told apart from what is compared.
func TestCompare(t *testing.T) {
	const before = `schema: spillgate/v1
namespace: shop
rules:
- {name: same, key: [user], rates: [{limit: 5, per: 1m}]}
- {name: wider, group: a, rates: [{limit: 5, per: 1m}]}
- {name: elsewhere, group: b, match: {path: [/a]}, rates: [{limit: 5, per: 1m}]}
- {name: both, group: c, match: {path: [/a]}, rates: [{limit: 5, per: 1m}]}
- {name: tried, group: d, rates: [{limit: 5, per: 1m}]}
- {name: shadow, group: e, mode: shadow, rates: [{limit: 5, per: 1m}]}
- {name: gone, group: f, rates: [{limit: 5, per: 1m}]}
`
	const now = `schema: spillgate/v1
namespace: shop
rules:
- {name: same, key: [user], rates: [{limit: 5, per: 1m}]}
- {name: wider, group: a, rates: [{limit: 9, per: 1m}]}
- {name: elsewhere, group: b, match: {path: [/b]}, rates: [{limit: 5, per: 1m}]}
- {name: both, group: c, match: {path: [/b]}, rates: [{limit: 6, per: 1m}]}
- {name: tried, group: d, rates: [{limit: 6, per: 1m}], candidate: {rates: [{limit: 7, per: 1m}]}}
- {name: shadow, group: e, rates: [{limit: 5, per: 1m}]}
- {name: new, group: f, rates: [{limit: 5, per: 1m}]}
`
	long := strings.Repeat("x", 60)
	for name, c := range map[string]struct {
		before, now  string
		rules, other []string
		uncompared   bool
	}{
		"all":             {before, now, []string{"wider", "both"}, []string{"elsewhere", "both", "tried", "shadow", "new", "gone"}, false},
		"nothing":         {now, now, nil, nil, false},
		"keys":            {before, strings.Replace(before, "rules:", "keys: {user: {from: header.X-User-Id}}\nrules:", 1), nil, []string{"keys, tenants or defaults"}, false},
		"a name too long": {strings.Replace(before, "wider", long, 1), strings.Replace(now, "wider", long, 1), nil, nil, true},
	} {
		got, err := FormatSpillgate.Compare(Text{Name: "shop", Namespace: "shop", Text: c.now, Before: c.before})
		if err != nil || !slices.Equal(got.Rules, c.rules) || !slices.Equal(got.Other, c.other) || (got.Why != nil) != c.uncompared {
			t.Errorf("%s: compared are %q, not %q, %v, %v; want %q and %q", name, got.Rules, got.Other, got.Why, err, c.rules, c.other)
		}
	}
	if _, err := FormatSpillgate.Compare(Text{Name: "shop", Text: now, Before: "no rules"}); err == nil {
		t.Error("what cannot be read is compared")
	}
}
