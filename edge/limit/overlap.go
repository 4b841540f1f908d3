package limit

import (
	"net/netip"
	"slices"
	"strings"
)

// overlaps says whether some request meets both rules. Conditions are not
// looked into: with them it is not known, and taken for false.
func (r *Rule) overlaps(o *Rule) bool {
	a, b := &r.match, &o.match
	return a.when == nil && b.when == nil &&
		a.methods.meets(&b.methods) && r.equalsMeet(o) && !r.wantsWhatLacks(o) && !o.wantsWhatLacks(r) &&
		a.hosts.meets(&b.hosts) && a.networks.meets(&b.networks) && pathsMeet(a.paths, b.paths)
}

// meets says whether a word is in both; no words stand for all.
func (c *choice) meets(o *choice) bool {
	return len(c.values) == 0 || len(o.values) == 0 || slices.ContainsFunc(c.values, o.has)
}

func (r *Rule) equalsMeet(o *Rule) bool {
	for i := range r.match.equals {
		for k := range o.match.equals {
			if e, f := &r.match.equals[i], &o.match.equals[k]; e.name == f.name && !e.meets(&f.choice) {
				return false
			}
		}
	}
	return true
}

// wantsWhatLacks says whether r wants a name that o wants to be absent.
func (r *Rule) wantsWhatLacks(o *Rule) bool {
	for i := range o.match.lacks {
		name := o.match.lacks[i].name
		named := func(s source) bool { return s.name == name }
		if slices.ContainsFunc(r.match.has, named) ||
			slices.ContainsFunc(r.key, func(p keyPart) bool { return named(p.source) }) ||
			slices.ContainsFunc(r.match.equals, func(e equal) bool { return named(e.source) }) {
			return true
		}
	}
	return false
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

// trait is something that two rules with different values of it cannot both
// be met by: the word that an attribute equals, a segment of the path, a host,
// the front of an address.
type trait struct {
	kind  traitKind
	name  string
	place int
}

type traitKind uint8

const (
	traitMethod traitKind = iota
	traitValue
	traitHost
	traitSegment
	traitNetwork
)

// maxTraits bounds the traits that are looked at, and those of one rule.
const maxTraits = 32

// traitsOf are the traits that some of the rules have.
func traitsOf(rules []*Rule) []trait {
	traits := []trait{{kind: traitMethod}, {kind: traitHost}}
	for i := range 8 {
		traits = append(traits, trait{kind: traitSegment, place: i})
	}
	for i := range 4 {
		traits = append(traits, trait{kind: traitNetwork, place: i + 1})
	}
	for _, r := range rules {
		for _, e := range r.match.equals {
			if t := (trait{kind: traitValue, name: e.name}); len(traits) < maxTraits && !slices.Contains(traits, t) {
				traits = append(traits, t)
			}
		}
	}
	return traits
}

// values are the values of the trait that the rule admits; none: any.
func (t trait) values(m *match) []string {
	switch t.kind {
	case traitMethod:
		return m.methods.values
	case traitHost:
		if len(m.hosts.suffixes.values) == 0 {
			return m.hosts.names.values
		}
	case traitValue:
		for i := range m.equals {
			if m.equals[i].name == t.name {
				return m.equals[i].values
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
