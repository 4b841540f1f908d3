package configs

import (
	"maps"
	"reflect"
	"slices"

	"github.com/spillgate/spillgate/edge/limit"
)

// UncomparedCode is that of warnings of what is not compared with the version before.
const UncomparedCode = "W271"

// Compared is what of a document is compared with the one before, while it is rolled out.
type Compared struct {
	Rules []string // whose limits were others, each with those as its candidate
	Other []string // rules that are new, gone, or changed otherwise than by their limits, and "keys, tenants or defaults"
	Why   error    // nothing is compared, as what was cannot stand beside it; nil: it can
}

// Compare says what of a document is compared with Before. The error is a *RulesError.
func (f Format) Compare(t Text) (c Compared, err error) {
	next, wrong := f.parse(t)
	before, also := f.parse(Text{Name: t.Name, Namespace: t.Namespace, Text: t.Before})
	if wrong = append(wrong, also...); len(wrong) > 0 {
		return c, &RulesError{Mistakes: wrong}
	}
	now, old := &next[0].doc, &before[0].doc
	was, tried := map[string]*limit.RuleSpec{}, map[string]bool{}
	for i := range old.Rules {
		was[old.Rules[i].Name] = &old.Rules[i]
	}
	own := map[string]bool{} // that have a candidate in the document
	for i := range now.Rules {
		own[now.Rules[i].Name] = now.Rules[i].Candidate != nil
	}
	if compareWith(now, old) {
		if _, c.Why = compile(next, nil); c.Why != nil {
			return c, nil
		}
	}
	for i := range now.Rules {
		r := now.Rules[i]
		if r.Candidate != nil && !own[r.Name] {
			c.Rules, tried[r.Name] = append(c.Rules, r.Name), true
		}
		o := was[r.Name]
		delete(was, r.Name)
		if o == nil || !sameBut(&r, o, tried[r.Name]) {
			c.Other = append(c.Other, r.Name)
		}
	}
	c.Other = append(c.Other, slices.Sorted(maps.Keys(was))...)
	if x, y := *now, *old; !reflect.DeepEqual(x.Keys, y.Keys) || !reflect.DeepEqual(x.Tenants, y.Tenants) || x.Defaults != y.Defaults || !reflect.DeepEqual(x.Descriptors, y.Descriptors) {
		c.Other = append(c.Other, "keys, tenants or defaults")
	}
	return c, nil
}

// sameBut says that two rules differ in nothing but what their limits are, where these are compared.
func sameBut(r, before *limit.RuleSpec, compared bool) bool {
	x, y := *r, *before
	x.Candidate, y.Candidate = nil, nil
	if compared {
		x.Rates, x.Key, x.Consistency, x.Margin = y.Rates, y.Key, y.Consistency, y.Margin
	}
	return reflect.DeepEqual(x, y)
}
