package limit

import "slices"

// fact is something that a rule knows of every request that it applies to: that
// the value of a name is one of some or, with not, none of them. "" is the value
// of what is absent.
type fact struct {
	source
	*choice
	not bool
	by  string // the word of the rule that says it, for mistakes
}

// absent is the value of what is not there.
var absent = &choice{values: []string{""}}

// facts are all that a rule knows of single names.
func (r *Rule) facts() []fact {
	m := &r.match
	facts := make([]fact, 0, 1+len(m.equals)+len(m.has)+len(m.lacks)+len(r.key)+len(m.wants))
	if len(m.methods.values) > 0 {
		facts = append(facts, fact{methodSource, &m.methods, false, "match.methods"})
	}
	for i := range m.equals {
		facts = append(facts, fact{m.equals[i].source, &m.equals[i].choice, false, "match.equals." + m.equals[i].name})
	}
	for i := range r.key {
		facts = append(facts, fact{r.key[i].source, absent, true, "key"})
	}
	for _, s := range m.has {
		facts = append(facts, fact{s, absent, true, "match.has"})
	}
	for _, s := range m.lacks {
		facts = append(facts, fact{s, absent, false, "match.lacks"})
	}
	return append(facts, m.wants...)
}

// isAbsent and isPresent say what a fact makes of its name.
func (f *fact) isAbsent() bool  { return !f.not && len(f.values) == 1 && f.values[0] == "" }
func (f *fact) isPresent() bool { return f.has("") == f.not }

// excludes says that no request is as both facts say.
func (f *fact) excludes(g *fact) bool {
	switch {
	case f.isAbsent() && g.isPresent():
		return within(g.slots, f.slots)
	case g.isAbsent() && f.isPresent():
		return within(f.slots, g.slots)
	case !slices.Equal(f.slots, g.slots) || f.not && g.not:
		return false
	case f.not:
		return g.all(f.has)
	case g.not:
		return f.all(g.has)
	}
	return f.all(func(v string) bool { return !g.has(v) })
}

// implies says that all requests that are as f says are as g says.
func (f *fact) implies(g *fact) bool {
	switch {
	case g.isAbsent() && f.isAbsent():
		return within(g.slots, f.slots)
	case g.not && g.isPresent() && len(g.values) == 1 && f.isPresent():
		return within(f.slots, g.slots)
	case !slices.Equal(f.slots, g.slots):
		return false
	case !f.not && !g.not:
		return f.all(g.has)
	case !f.not:
		return f.all(func(v string) bool { return !g.has(v) })
	case g.not:
		return g.all(f.has)
	}
	return false
}

func (c *choice) all(holds func(string) bool) bool {
	return !slices.ContainsFunc(c.values, func(v string) bool { return !holds(v) })
}

// within says that all of some slots are among others.
func within(some, others []int) bool {
	return !slices.ContainsFunc(some, func(s int) bool { return !slices.Contains(others, s) })
}

// apart says that no request is as both lists say.
func apart(facts, others []fact) bool {
	for i := range facts {
		for k := range others {
			if facts[i].excludes(&others[k]) {
				return true
			}
		}
	}
	return false
}
