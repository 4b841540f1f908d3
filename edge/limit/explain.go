package limit

import (
	"fmt"
	"slices"
	"strings"
)

// Why says why a rate denies a request.
type Why uint8

const (
	WhyNot     Why = iota // it does not
	WhyLimit              // the limit is used up
	WhyShare              // this edge's share of it is, or its rights are
	WhyPenalty            // who asks is kept out for what was before
	WhyGap                // the last request is too near
	WhyChance             // drop: probabilistic
	WhyCutOff             // others cannot be heard of, and the rate is closed then
)

var whyNames = map[string]Why{"": WhyNot, "limit": WhyLimit, "share": WhyShare, "penalty": WhyPenalty, "min_gap": WhyGap, "drop": WhyChance, "cut_off": WhyCutOff}

func (w Why) String() string { return nameOf(whyNames, w) }

// Explanation is how a request stands with the rules of its namespace: what a peek
// would say, and why.
type Explanation struct {
	Decision Decision
	Rules    []Finding // those that apply first, then others by group and priority
	More     int       // rules that do not apply, and are not told of
}

// Finding is one rule of an Explanation; of one that applies by several readings of the
// request's path, as many as they give it keys.
type Finding struct {
	Rule  *Rule // as it is for the request's tenant
	Miss  Miss  // why it does not apply; zero where it does
	Key   string
	Rates []Standing // none of a rule that does not apply, allows or denies

	Tenancy    *Tenancy    // nil where no tenant has other limits
	Exceptions []Exception // that hold for the key
}

// Miss is the first thing of a rule that a request does not have.
type Miss struct {
	Field  string // of the rule: "match.path", "key", or "priority" where another one of the group applies
	Detail string
}

// Standing is how one counter of a request stands.
type Standing struct {
	State
	Local   uint64 // cost that this edge counted in the window
	Merged  uint64 // cost that others counted, as last heard
	Seen    bool   // this edge had the key before it was asked
	Heard   int64  // ns ago that the key was last heard of; -1: never
	Own     Share  // of an adaptive rate: what its grant was made of; zero: it has all
	Granted Grant
	Held    uint64 // of a strict rate: rights of this edge
	Bound   Bound
}

// mostMisses is how many rules that do not apply are told of.
const mostMisses = 100

// Explain says of each rule of the namespace whether it applies to the request, and if
// not why. Rates are not asked.
func (req *Request) Explain() (out Explanation) {
	req.Rules()
	req.Readings(func(r *Rule) {
		if !slices.ContainsFunc(out.Rules, func(f Finding) bool { return f.Of(req, r) }) {
			out.Rules = append(out.Rules, r.finding(req))
			if t := r.Candidate; t != nil {
				out.Rules = append(out.Rules, t.For(req).finding(req))
			}
		}
	})
	applied := len(out.Rules)
	for i := range req.ns.groups {
		g := &req.ns.groups[i]
		first, others := g.first(req), g.firstOfOthers(req)
		for _, r := range g.rules {
			switch {
			case r == first || slices.Contains(others, r):
				continue
			case len(out.Rules)-applied >= mostMisses:
				out.More++
				continue
			}
			miss := r.misses(req)
			if miss.Field == "" {
				miss = Miss{"priority", fmt.Sprintf("rule %q of the same group applies, and has the higher priority", first.Name)}
			}
			out.Rules = append(out.Rules, Finding{Rule: r, Miss: miss})
		}
	}
	return out
}

// finding is one of a rule that applies.
func (r *Rule) finding(req *Request) Finding {
	f := Finding{Rule: r, Key: r.KeyText(req)}
	if t, ok := r.Tenancy(req); ok {
		f.Tenancy = &t
	}
	return f
}

// Of says that the finding is of a rule that applies, as the request stands: see Readings.
func (f *Finding) Of(req *Request, r *Rule) bool {
	return f.Rule == r && f.Miss.Field == "" && f.Key == r.KeyText(req)
}

// firstOfOthers are those that are first by other readings of the path.
func (g *group) firstOfOthers(req *Request) (found []*Rule) {
	for i := range req.otherPaths {
		req.swapPath(i)
		if r := g.first(req); r != nil {
			found = append(found, r)
		}
		req.swapPath(i)
	}
	return found
}

// misses is the first thing that keeps the rule from applying, in the order of
// match.matches; zero where it applies.
func (r *Rule) misses(req *Request) Miss {
	m := &r.match
	if !m.methods.none() && !m.methods.has(req.attrs[slotMethod]) {
		return missed("match.methods", "method", req.attrs[slotMethod], m.methods.values)
	}
	for i := range m.equals {
		if e := &m.equals[i]; !e.has(req.first(e.slots)) {
			return missed("match.equals", e.name, req.first(e.slots), e.values)
		}
	}
	for i := range m.has {
		if req.first(m.has[i].slots) == "" {
			return Miss{"match.has", fmt.Sprintf("%s is absent", m.has[i].name)}
		}
	}
	for i := range m.lacks {
		if req.first(m.lacks[i].slots) != "" {
			return Miss{"match.lacks", fmt.Sprintf("%s is there", m.lacks[i].name)}
		}
	}
	if !m.hosts.any() && !m.hosts.matches(req.host()) {
		names := slices.Clone(m.hosts.names.values)
		for _, s := range m.hosts.suffixes.values {
			names = append(names, "*"+s)
		}
		return missed("match.host", "host", req.attrs[slotHost], names)
	}
	if len(m.networks.ranges) > 0 && !m.networks.has(req.addr()) {
		var nets []string
		for _, p := range m.networks.prefixes {
			nets = append(nets, p.String())
		}
		return missed("match.cidr", "client_ip", req.attrs[slotClientIP], nets)
	}
	if len(m.paths) > 0 && !m.matchesPath(req.attrs[slotPath]) {
		var texts []string
		for i := range m.paths {
			texts = append(texts, m.paths[i].String())
		}
		return missed("match.path", "path", req.attrs[slotPath], texts)
	}
	if m.when != nil {
		if ok, err := m.when.Holds(req); err != nil {
			return Miss{"match.when", fmt.Sprintf("%s cannot be told: %v", m.text, err)}
		} else if !ok {
			return Miss{"match.when", fmt.Sprintf("%s does not hold", m.text)}
		}
	}
	for i := range r.key {
		if req.first(r.key[i].slots) == "" {
			return Miss{"key", fmt.Sprintf("%s is absent", r.key[i].name)}
		}
	}
	return Miss{}
}

func (c *choice) none() bool { return len(c.values) == 0 }

// mostWords is how many words of a list are told.
const mostWords = 5

func missed(field, name, value string, words []string) Miss {
	const longest = 200
	told := strings.Join(words[:min(len(words), mostWords)], ", ")
	if len(words) > mostWords {
		told += fmt.Sprintf(" and %d more", len(words)-mostWords)
	}
	if value == "" {
		return Miss{field, fmt.Sprintf("%s is absent; want %s", name, told)}
	}
	if len(value) > longest {
		value = value[:longest] + "…"
	}
	return Miss{field, fmt.Sprintf("%s is %q; want %s", name, value, told)}
}
