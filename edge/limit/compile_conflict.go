package limit

import "slices"

// contradictions refuses rules that no request can meet. One is told of each.
func (c *compiler) contradictions(path string, r *Rule) {
	const hint = "drop one of the two"
	facts := r.facts()
	for k := range facts {
		f := &facts[k]
		for i := range k {
			switch other := &facts[i]; {
			case !f.excludes(other):
			case f.by == other.by:
				c.problem(path+"."+f.by, "E166", "such as: in [\"gold\", \"silver\"], or with or in place of and", "this contradicts itself: no value of %q is as it says, and the rule never applies", f.name)
				return
			default:
				c.problem(path+"."+f.by, "E166", hint, "this and %s contradict each other: no request is as both say of %q, and the rule never applies", other.by, f.name)
				return
			}
		}
		if by := r.match.without(f); by != "" {
			c.problem(path+"."+f.by, "E166", hint, "this and match.%s contradict each other: no request is as both say, and the rule never applies", by)
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
