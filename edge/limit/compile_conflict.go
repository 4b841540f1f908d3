package limit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const countWhenName = "count_when"

// contradictions refuses rules that no request can meet, or that charge none. One is told
// of each.
func (c *compiler) contradictions(path string, r *Rule) {
	const hint = "drop one of the two"
	facts := append(r.facts(), wanted(r.countWhen, countWhenName)...)
	about := map[int][]int{} // the facts before, by the slots that they are about
	for k := range facts {
		f, first, so := &facts[k], len(facts), "the rule never applies"
		if f.by == countWhenName {
			so = "it charges nothing"
		}
		for _, slot := range f.slots {
			for _, i := range about[slot] {
				if i < first && f.excludes(&facts[i]) {
					first = i
				}
			}
			about[slot] = append(about[slot], k)
		}
		switch {
		case first == len(facts):
		case f.by == facts[first].by:
			c.problem(path+"."+f.by, "E166", "such as: in [\"gold\", \"silver\"], or with or in place of and", "this contradicts itself: no value of %q is as it says, and %s", f.name, so)
			return
		default:
			c.problem(path+"."+f.by, "E166", hint, "this and %s contradict each other: no request is as both say of %q, and %s", facts[first].by, f.name, so)
			return
		}
		if by := r.match.without(f); by != "" {
			c.problem(path+"."+f.by, "E166", hint, "this and match.%s contradict each other: no request is as both say, and %s", by, so)
			return
		}
	}
}

// without is the list in a match that has none of the values of a fact, where it
// is of what that list is about: "path", "host" or "cidr".
func (m *match) without(f *fact) string {
	if f.not || len(f.slots) != 1 {
		return ""
	}
	none := func(holds func(string) bool) bool { return !slices.ContainsFunc(f.values, holds) }
	switch f.slots[0] {
	case slotPath:
		if len(m.paths) > 0 && none(m.matchesPath) {
			return "path"
		}
	case slotHost:
		if !m.hosts.any() && none(func(v string) bool { return m.hosts.matches(normalHost(nil, v)) }) {
			return "host"
		}
	case slotClientIP:
		if len(m.networks.ranges) > 0 && none(func(v string) bool { return m.networks.has(NormalAddr(v)) }) {
			return "cidr"
		}
	}
	return ""
}

// conflicts refuses words of a rule that contradict one another.
func (c *compiler) conflicts(path string, spec *RuleSpec, r *Rule) {
	if spec.CountWhen != "" {
		c.countedLate(path, spec, r)
	}
	c.routes(path+".cost.by_route", spec, r)
	if len(spec.Rates) == 0 {
		c.gapAlone(path, spec)
	}
}

// gapAlone refuses what changes limits in a rule that has none but min_gap,
// which nothing changes.
func (c *compiler) gapAlone(path string, spec *RuleSpec) {
	for _, w := range []struct {
		name  string
		given bool
	}{
		{"margin", spec.Margin != MarginSpec{}},
		{"drop", spec.Drop != ""},
		{"near_limit", spec.NearLimitPercent != 0},
		{"classes", spec.Classes.From != ""},
		{"tier_from", spec.TierFrom != ""},
	} {
		if w.given && spec.MinGap != 0 {
			c.problem(path+"."+w.name, "E220", "leave it out, or give the rule rates", "min_gap is the same for all, and there is no other limit for %s", w.name)
		}
	}
}

// routes refuses costs of routes that no request of the rule takes.
func (c *compiler) routes(path string, spec *RuleSpec, r *Rule) {
	for _, route := range slices.Sorted(maps.Keys(spec.Cost.ByRoute)) {
		method, text := routeOf(route)
		p, err := compilePattern(text)
		if err != nil {
			continue // it was told
		}
		switch at := path + "." + route; {
		case meansAny(method):
			c.problem(at, "E172", fmt.Sprintf("%q", text), "%q is not a method, and stands for none", method)
		case method != "" && !methodForm.MatchString(method):
			c.problem(at, "E172", fmt.Sprintf("%q", strings.ToUpper(method)+" "+text), "%q is not a method: they are upper case", method)
		case method != "" && len(r.match.methods.values) > 0 && !r.match.methods.has(method):
			c.problem(at, "E175", "drop it, or match the method too", "the rule is not for %s, and this cost is never asked for", method)
		case !pathsMeet([]pattern{p}, r.match.paths):
			c.problem(at, "E175", "drop it, or match the path too", "the rule is for no such path, and this cost is never asked for")
		}
	}
}

// lenders refuses parents that lend nothing. from is the Index of the document's
// first rule.
func (c *compiler) lenders(from int) {
	for i, r := range c.set.rules[from:] {
		if r.Elastic == nil || r.Elastic.Parent == nil {
			continue
		}
		path, parent := indexed("rules", i)+".margin.elastic.parent", r.Elastic.Parent
		facts, keys := r.facts(), (&Rule{key: parent.key}).facts()
		limited := func(rate *Rate) bool { return !rate.PerRequest }
		empty := func(rate *Rate) bool { return rate.Limit == 0 && !rate.Bucket() } // one without capacity was refused
		switch {
		case !slices.ContainsFunc(parent.Rates, limited):
			c.problem(path, "E207", "a rule with rates", "%q keeps requests apart, and has no limit to borrow from", parent.Name)
		case slices.ContainsFunc(parent.Rates, empty):
			c.problem(path, "E207", "a rule with a larger limit", "%q has a limit of 0, and nothing to lend", parent.Name)
		case apart(facts, keys):
			c.problem(path, "E207", "a rule whose key these requests have", "%q counts by a name that requests of this rule lack, and lends them nothing", parent.Name)
		}
	}
}

// countedLate refuses what counts on a charge at the decision in rules that
// charge after the response: until then nothing is in the way of the next
// request, so that all would be promised the same place.
func (c *compiler) countedLate(path string, spec *RuleSpec, r *Rule) {
	const code, hint = "E219", "drop it, or count_when"
	for i, rate := range spec.Rates {
		switch at := indexed(path+".rates", i); {
		case rate.Queue:
			c.problem(at+".queue", code, hint, "count_when charges after the response: all that come before it would have the same turn")
		case rate.CountDenied:
			c.problem(at+".count_denied", code, hint, "count_when charges after the response, and a request that was denied has none")
		case r.Rates[i].Lease > 0:
			c.problem(at+".algorithm", code, hint, "count_when charges after the response: a slot would be taken when the request is over, and nobody gives it back")
		}
	}
	if spec.MaxDelay > 0 {
		c.problem(path+".max_delay", code, hint, "count_when charges after the response: all that come before it would wait for the same room")
	}
	if spec.Charge == ChargeEach.String() {
		c.problem(path+".charge", code, hint, "count_when charges after the response, and a request that was denied has none")
	}
}
