package limit

import (
	"net/netip"
	"slices"
	"strings"
)

// ranked is a rule with its place in the order of its group, and what it knows.
type ranked struct {
	*Rule
	rank  int
	facts []fact
}

func rankedOf(rules []*Rule) []*ranked {
	all := make([]*ranked, len(rules))
	for i, r := range rules {
		all[i] = &ranked{r, i, r.facts()}
	}
	return all
}

// overlaps says whether some request meets both rules, as far as can be told:
// of conditions only what they want of single names is known.
func (r *ranked) overlaps(o *ranked) bool {
	a, b := &r.match, &o.match
	return !apart(r.facts, o.facts) && a.hosts.meets(&b.hosts) && a.networks.meets(&b.networks) && pathsMeet(a.paths, b.paths)
}

// covers says that r applies to every request that o applies to. A condition is
// taken to hold more often than the same condition only.
func (r *ranked) covers(o *ranked) bool {
	a, b := &r.match, &o.match
	if a.when != nil && a.text != b.text {
		return false
	}
	for i := range r.facts {
		if f := &r.facts[i]; !slices.ContainsFunc(o.facts, func(g fact) bool { return g.implies(f) }) {
			return false
		}
	}
	return a.hosts.cover(&b.hosts) && a.networks.cover(&b.networks) && pathsCover(a.paths, b.paths)
}

// comparing is how much work it is to compare two rules.
func (r *ranked) comparing(o *ranked) int {
	return 1 + len(r.facts)*len(o.facts) + len(r.match.paths)*len(o.match.paths) +
		(len(r.match.hosts.suffixes.values)+1)*(len(o.match.hosts.suffixes.values)+1) +
		len(r.match.hosts.names.values) + len(o.match.hosts.names.values) + len(r.match.networks.ranges) + len(o.match.networks.ranges)
}

func (h *hosts) meets(o *hosts) bool {
	if h.any() || o.any() {
		return true
	}
	takes := func(h *hosts) func(string) bool { return func(name string) bool { return h.matches([]byte(name)) } }
	if slices.ContainsFunc(h.names.values, takes(o)) || slices.ContainsFunc(o.names.values, takes(h)) {
		return true
	}
	for _, a := range h.suffixes.values {
		for _, b := range o.suffixes.values {
			if strings.HasSuffix(a, b) || strings.HasSuffix(b, a) {
				return true
			}
		}
	}
	return false
}

func (h *hosts) cover(o *hosts) bool {
	if h.any() || o.any() {
		return h.any()
	}
	return o.names.all(func(name string) bool { return h.matches([]byte(name)) }) &&
		o.suffixes.all(func(b string) bool {
			return slices.ContainsFunc(h.suffixes.values, func(a string) bool { return strings.HasSuffix(b, a) })
		})
}

func (n *networks) meets(o *networks) bool {
	if len(n.ranges) == 0 || len(o.ranges) == 0 {
		return true
	}
	for i, k := 0, 0; i < len(n.ranges) && k < len(o.ranges); {
		a, b := n.ranges[i], o.ranges[k]
		switch {
		case a.last.Less(b.first):
			i++
		case b.last.Less(a.first):
			k++
		default:
			return true
		}
	}
	return false
}

func (n *networks) cover(o *networks) bool {
	if len(n.ranges) == 0 || len(o.ranges) == 0 {
		return len(n.ranges) == 0
	}
	for i, k := 0, 0; k < len(o.ranges); {
		switch a, b := n.ranges[i], o.ranges[k]; {
		case a.last.Less(b.first):
			if i++; i == len(n.ranges) {
				return false
			}
		case b.first.Less(a.first) || a.last.Less(b.last):
			return false
		default:
			k++
		}
	}
	return true
}

func pathsCover(a, b []pattern) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == 0
	}
	for _, o := range b {
		if !slices.ContainsFunc(a, func(p pattern) bool { return p.covers(o) }) {
			return false
		}
	}
	return true
}

func pathsMeet(a, b []pattern) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	for i := range a {
		if slices.ContainsFunc(b, a[i].meets) {
			return true
		}
	}
	return false
}

// meets says whether some path fits both patterns.
func (p *pattern) meets(o pattern) bool {
	for i := 0; ; i++ {
		switch pEnds, oEnds := i == len(p.segments), i == len(o.segments); {
		case pEnds && oEnds:
			return true
		case pEnds:
			return p.rest
		case oEnds:
			return o.rest
		}
		if a, b := p.segments[i], o.segments[i]; a != b && (a != "*" || b == "") && (b != "*" || a == "") {
			return false
		}
	}
}

// covers says that every path that fits o fits the pattern.
func (p *pattern) covers(o pattern) bool {
	for i := 0; ; i++ {
		switch pEnds, oEnds := i == len(p.segments), i == len(o.segments); {
		case pEnds:
			return p.rest || oEnds && !o.rest
		case oEnds:
			return false
		}
		if a, b := p.segments[i], o.segments[i]; a != b && (a != "*" || b == "") {
			return false
		}
	}
}

// trait is something that two rules with different values of it cannot both
// be met by: the word that an attribute equals, a segment of the path, a host, or
// a label of it, the front of an address.
type trait struct {
	kind  traitKind
	name  string
	place int
}

type traitKind uint8

const (
	traitValue traitKind = iota
	traitHost
	traitLabel
	traitSegment
	traitNetwork
)

// maxTraits bounds the traits that are looked at, and those of one rule.
const maxTraits = 32

// traitsOf are the traits that some of the rules have.
func traitsOf(rules []*ranked) []trait {
	traits := []trait{{kind: traitHost}}
	for i := range 8 {
		traits = append(traits, trait{kind: traitSegment, place: i})
	}
	for i := range 4 {
		traits = append(traits, trait{kind: traitNetwork, place: i + 1})
	}
	if slices.ContainsFunc(rules, func(r *ranked) bool { return len(r.match.hosts.suffixes.values) > 0 }) {
		for i := range 6 {
			traits = append(traits, trait{kind: traitLabel, place: i})
		}
	}
	for _, r := range rules {
		for i := range r.facts {
			if f := &r.facts[i]; len(traits) < maxTraits && !f.not {
				if t := (trait{kind: traitValue, name: f.name}); !slices.Contains(traits, t) {
					traits = append(traits, t)
				}
			}
		}
	}
	return traits
}

// values are the values of the trait that the rule admits; none: any.
func (t trait) values(r *ranked) []string {
	m := &r.match
	switch t.kind {
	case traitHost:
		if len(m.hosts.suffixes.values) == 0 {
			return m.hosts.names.values
		}
	case traitLabel:
		return t.labels(&m.hosts)
	case traitValue:
		for i := range r.facts {
			if f := &r.facts[i]; f.name == t.name && !f.not {
				return f.values
			}
		}
	case traitSegment:
		return t.segments(m.paths)
	case traitNetwork:
		return t.fronts(m.networks.prefixes)
	}
	return nil
}

func (t trait) segments(paths []pattern) []string {
	var values []string
	for _, p := range paths {
		switch {
		case t.place < len(p.segments) && p.segments[t.place] != "*":
			values = append(values, p.segments[t.place])
		case t.place >= len(p.segments) && !p.rest:
			values = append(values, "/") // the path ends before
		default:
			return nil
		}
	}
	return values
}

// labels are those at a place of the hosts, counted from the end.
func (t trait) labels(h *hosts) []string {
	var values []string
	for i, list := range [][]string{h.names.values, h.suffixes.values} {
		for _, host := range list {
			rest, label := host, ""
			for range t.place + 1 {
				dot := strings.LastIndexByte(rest, '.')
				rest, label = rest[:max(0, dot)], rest[dot+1:]
			}
			if label == "" && i == 1 { // whatever is below the domain
				return nil
			}
			values = append(values, label) // none where the name has fewer
		}
	}
	return values
}

// fronts are the first bytes of the networks: of IPv6, twice as many.
func (t trait) fronts(prefixes []netip.Prefix) []string {
	var values []string
	for _, p := range prefixes {
		n := t.place
		if p.Addr().Is6() {
			n *= 2
		}
		if p.Bits() < 8*n {
			return nil
		}
		values = append(values, string(p.Addr().AsSlice()[:n])+family(p))
	}
	return values
}

func family(p netip.Prefix) string {
	if p.Addr().Is4() {
		return "4"
	}
	return "6"
}
