package limit

import (
	"fmt"
	"slices"
	"time"
)

// Warnings are what Compile found that works, but hardly as it was meant: by
// document, in the order of compiling. Their codes start with W.
func (s *Set) Warnings() []Problems { return s.warnings }

func (c *compiler) warn(path, code, hint, format string, args ...any) {
	c.warnings = append(c.warnings, Problem{Path: path, Code: code, Detail: fmt.Sprintf(format, args...), Hint: hint})
}

// suspicions warns about a document that was compiled. first is the Index of
// its first rule.
func (c *compiler) suspicions(doc *Document, first int) {
	for i := range doc.Rules {
		c.shutOut(fmt.Sprintf("rules[%d].classes.reserve", i), c.set.rules[first+i])
		c.unseen(fmt.Sprintf("rules[%d]", i), c.set.rules[first+i])
		for k := range doc.Rules[i].Rates {
			rate := c.set.rules[first+i].Rates[k] // min_gap's comes after those
			if asked := doc.Rules[i].Rates[k].Slices; asked > rate.Slices && rate.Algorithm == SubWindows {
				c.warn(fmt.Sprintf("rules[%d].rates[%d].slices", i, k), "W202", fmt.Sprintf("slices: %d, or a longer window", rate.Slices),
					"%d slices of %s would be narrower than %v, the resolution; %d are used", asked, rate.Name, MinWidth, rate.Slices)
			}
		}
	}
	for i := range c.ns.groups {
		rules := c.ns.groups[i].rules
		for len(rules) > 0 {
			n := 1
			for n < len(rules) && rules[n].Priority == rules[0].Priority {
				n++
			}
			s := search{left: overlapWork, found: map[*Rule]*Rule{}}
			s.among(rules[:n], traitsOf(rules[:n]))
			for _, r := range rules[:n] {
				if other := s.found[r]; other != nil {
					c.warn(fmt.Sprintf("rules[%d].priority", r.Index-first), "W201", "give one of them a higher priority, or a group of its own",
						"%q and %q have the same priority and can meet the same requests: %q applies then, as it stands first", other.Name, r.Name, other.Name)
				}
			}
			rules = rules[n:]
		}
	}
}

// shutOut warns of a reserve that leaves nothing to the least class: of small
// limits a part is a whole one.
func (c *compiler) shutOut(path string, r *Rule) {
	for _, rate := range r.Rates {
		if w := rate.Withheld(0); w > 0 && w >= rate.Ceiling {
			c.warn(path, "W203", "a larger limit, or a smaller reserve", "class %q never passes: all %d of %s are reserved", r.classes.names[0], w, rate.Name)
			return
		}
	}
}

// unseen warns of buckets that empty within a slice: what others pour in has
// drained, for all that this edge can tell, before it counts.
func (c *compiler) unseen(path string, r *Rule) {
	for k, rate := range r.Rates {
		if !rate.Bucket() || rate.Scope == ScopeEdge {
			continue
		}
		empty := time.Duration(product(rate.Limit-rate.Drain.Floor, uint64(rate.Drain.Per)).overUp(rate.Drain.Refill))
		if empty >= MinWidth {
			continue
		}
		at := fmt.Sprintf("%s.rates[%d].capacity", path, k)
		if rate.PerRequest {
			at = path + "." + minGapName
		}
		c.warn(at, "W204", "scope: edge, or a larger capacity", "%s is empty again in %v, less than %v, the resolution: other edges' charges will not count", rate.Name, empty, MinWidth)
	}
}

const (
	// overlapWork bounds the search for overlaps among the rules of one
	// priority. Rule sets that are written by hand take a small part of it; of
	// others, what is not found by then is not warned of.
	overlapWork = 1_000_000
	// pairwise is how many rules are compared each with each.
	pairwise = 16
)

// search finds rules that overlap with one before them.
type search struct {
	left  int             // work
	found map[*Rule]*Rule // by the later: one before it that it overlaps with
}

// among searches rules, in their order. Rules that differ in a trait cannot
// overlap, so only those of one value are compared, and all with those of any.
func (s *search) among(rules []*Rule, traits []trait) {
	at, values := s.split(rules, traits)
	if at < 0 || s.left < 0 {
		s.compare(rules, rules)
		return
	}
	traits = slices.Delete(slices.Clone(traits), at, at+1)
	var order []string
	by := map[string][]*Rule{}
	var general, special []*Rule
	for i, r := range rules {
		if values[i] == nil {
			general = append(general, r)
			continue
		}
		special = append(special, r)
		for _, v := range values[i] {
			have, met := by[v]
			if !met {
				order = append(order, v)
			}
			if len(have) == 0 || have[len(have)-1] != r {
				by[v] = append(have, r)
			}
		}
	}
	s.compare(special, general)
	s.compare(general, special)
	s.among(general, traits)
	for _, v := range order {
		s.among(by[v], traits)
	}
}

// split chooses the trait that tells the rules apart best, and gives each
// rule's values of it. at is -1 where none tells any apart.
func (s *search) split(rules []*Rule, traits []trait) (at int, values [][]string) {
	at = -1
	least := len(rules)
	if len(rules) <= pairwise {
		return at, nil
	}
	for i, t := range traits {
		count := map[string]int{}
		general, most, copies := 0, 0, 0
		all := make([][]string, len(rules))
		for k, r := range rules {
			all[k] = t.values(&r.match)
			if len(all[k]) > maxTraits {
				all[k] = nil
			}
			if all[k] == nil {
				general++
			}
			for _, v := range all[k] {
				count[v]++
				most = max(most, count[v])
			}
			copies += len(all[k])
		}
		s.left -= len(rules) + copies
		if len(count) > 0 && most+general < least {
			at, values, least = i, all, most+general
		}
	}
	return at, values
}

// compare compares each of some rules with each of others that stands before
// it, until one overlaps.
func (s *search) compare(rules, others []*Rule) {
	for _, r := range rules {
		if s.found[r] != nil {
			continue
		}
		for _, before := range others {
			if s.left--; s.left < 0 || before.Index >= r.Index {
				break
			}
			if before.overlaps(r) {
				s.found[r] = before
				break
			}
		}
	}
}
