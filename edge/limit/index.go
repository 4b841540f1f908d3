package limit

import "net/netip"

// group is the rules that a request meets at most one of: by falling priority,
// and by their place in the document where that is equal. A rule's rank is its
// place in this order.
type group struct {
	rules   []*Rule
	index   *index  // nil where the rules are so few that they are asked in turn
	inTurn  []*Rule // the most that stand under nothing that a request has, where they are many
	onePath asking  // the most whose patterns one path may fit, where they are many
	byPath  bool    // another reading of a path may find another rule, or counter; see readPaths
}

// first is the rule of the lowest rank that applies; nil where none does.
func (g *group) first(req *Request) *Rule {
	if g.index == nil {
		for _, r := range g.rules {
			if r.applies(req) {
				return r
			}
		}
		return nil
	}
	q := query{req: req, rules: g.rules}
	if rank := g.index.lowest(&q, int32(len(g.rules))); int(rank) < len(g.rules) {
		return g.rules[rank]
	}
	return nil
}

type query struct {
	req   *Request
	rules []*Rule
}

// applies is the whole truth about a rule: the index only says which rules are
// worth asking.
func (r *Rule) applies(req *Request) bool {
	return r.hasKey(req) && (r.match.all || r.match.matches(r, req))
}

// index finds the first rule that applies without asking those that cannot.
// Each rule stands under one thing that it wants, the one that fewest others
// want too, be it a path, a host, a network or the value of an attribute; and
// where many want the same, under a second thing within that. So a request
// meets only the rules that want what it has, and of these only such as rank
// before the best that was found.
type index struct {
	min      int32       // the lowest rank inside
	scan     []candidate // rules that stand under nothing more, by rank
	attrs    []attrIndex
	absent   []absentIndex
	bySlot   map[int][]int // places in attrs by attribute; nil where attrs is short
	paths    *pathTree
	names    map[string]*index // hosts
	suffixes map[string]*index // ".example.com"
	networks map[netip.Prefix]*index
	bits4    []int // lengths of the prefixes in networks
	bits6    []int
}

// candidate is a rule that a request may meet.
type candidate struct {
	rank  int32
	found bool // by all that it wants but its key: the rest need not be asked again
}

func (c candidate) applies(q *query) bool {
	r := q.rules[c.rank]
	if c.found {
		return r.hasKey(q.req)
	}
	return r.applies(q.req)
}

// attrIndex is the rules that want a name to be present, or to have a value.
type attrIndex struct {
	source
	present *index
	values  map[string]*index
}

// absentIndex is the rules that want a name to be absent, and nothing more that is there.
type absentIndex struct {
	source
	rules *index
}

// lowest is the rank of the first rule that applies, or before where none
// comes before that.
func (ix *index) lowest(q *query, before int32) int32 {
	if ix == nil || ix.min >= before {
		return before
	}
	for _, c := range ix.scan {
		if c.rank >= before {
			break
		}
		if c.applies(q) {
			before = c.rank
			break
		}
	}
	if before <= ix.min {
		return before
	}
	before = ix.lowestByAttr(q, before)
	for i := range ix.absent {
		if a := &ix.absent[i]; a.rules.min < before && q.req.first(a.slots) == "" {
			before = a.rules.lowest(q, before)
		}
	}
	if ix.paths != nil {
		if left, ok := pathSegments(q.req.attrs[slotPath]); ok {
			before = ix.paths.lowest(q, left, before)
		}
	}
	if ix.names != nil || ix.suffixes != nil {
		before = ix.lowestByHost(q, before)
	}
	if ix.networks != nil {
		before = ix.lowestByNetwork(q, before)
	}
	return before
}

func (ix *index) lowestByAttr(q *query, before int32) int32 {
	if ix.bySlot == nil {
		for i := range ix.attrs {
			before = ix.attrs[i].lowest(q, before)
		}
		return before
	}
	for _, slot := range q.req.set {
		for _, i := range ix.bySlot[slot] {
			before = ix.attrs[i].lowest(q, before)
		}
	}
	return before
}

func (a *attrIndex) lowest(q *query, before int32) int32 {
	value := q.req.first(a.slots)
	if value == "" {
		return before
	}
	return a.values[value].lowest(q, a.present.lowest(q, before))
}

func (ix *index) lowestByHost(q *query, before int32) int32 {
	host := q.req.host()
	before = ix.names[string(host)].lowest(q, before)
	for i := range host {
		if i > 0 && host[i] == '.' {
			before = ix.suffixes[string(host[i:])].lowest(q, before)
		}
	}
	return before
}

func (ix *index) lowestByNetwork(q *query, before int32) int32 {
	addr := q.req.addr()
	lengths := ix.bits6
	if addr.Is4() {
		lengths = ix.bits4
	}
	for _, bits := range lengths {
		// The prefix of an invalid address is invalid, and stands for nothing.
		p, _ := addr.Prefix(bits)
		before = ix.networks[p].lowest(q, before)
	}
	return before
}
