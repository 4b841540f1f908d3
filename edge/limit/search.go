package limit

import "slices"

const (
	// searchWork bounds a search through the rules of a document. Rules that are
	// written by hand take a small part of it; of others, that not all was
	// looked at is warned of.
	searchWork = 4_000_000
	// pairwise is how many rules are compared each with each.
	pairwise = 16
)

// search finds rules that meet one before them, in what meets says. Only rules
// that overlap may meet.
type search struct {
	meets func(before, r *ranked) bool
	left  int // work
	found map[*ranked]*ranked
}

// all searches rules, in their order: by rule, one before it that it meets.
func (s *search) all(rules []*ranked) map[*ranked]*ranked {
	s.found = map[*ranked]*ranked{}
	// A rule that wants nothing meets all that follow, and the search is done.
	if i := slices.IndexFunc(rules, func(r *ranked) bool { return r.match.all && len(r.key) == 0 }); i >= 0 {
		for _, r := range rules[i+1:] {
			s.found[r] = rules[i]
		}
		rules = rules[:i+1]
	}
	s.among(rules, traitsOf(rules))
	return s.found
}

// among searches rules, in their order. Rules that differ in a trait cannot
// overlap, so only those of one value are compared, and all with those of any.
func (s *search) among(rules []*ranked, traits []trait) {
	at, values := s.split(rules, traits)
	if at < 0 || s.left < 0 {
		s.compare(rules, rules)
		return
	}
	traits = slices.Delete(slices.Clone(traits), at, at+1)
	var order []string
	by := map[string][]*ranked{}
	var general, special []*ranked
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
func (s *search) split(rules []*ranked, traits []trait) (at int, values [][]string) {
	at = -1
	least := len(rules)
	if len(rules) <= pairwise {
		return at, nil
	}
	const counting = 20 // times the work of a comparison
	for i, t := range traits {
		count := map[string]int{}
		general, most, copies := 0, 0, 0
		all := make([][]string, len(rules))
		for k, r := range rules {
			all[k] = t.values(r)
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
		s.left -= len(rules) + counting*copies
		if len(count) > 0 && most+general < least {
			at, values, least = i, all, most+general
		}
	}
	return at, values
}

// compare compares each of some rules with each of others that stands before
// it, until it meets one.
func (s *search) compare(rules, others []*ranked) {
	for _, r := range rules {
		if s.found[r] != nil {
			continue
		}
		for _, before := range others {
			if before.rank >= r.rank {
				break
			}
			if s.left -= before.comparing(r); s.left < 0 {
				return
			}
			if s.meets(before, r) {
				s.found[r] = before
				break
			}
		}
	}
}
