package limit

import (
	"cmp"
	"net/netip"
	"slices"
)

const (
	// scanBelow is how many rules are asked one by one: to look them up takes
	// as long.
	scanBelow = 8
	// indexedSegments is how deep a path is looked up. Patterns that agree as
	// far are told apart by asking them.
	indexedSegments = 16
	// scanMany is how many rules are warned of that are asked one by one: they take
	// longer than all else of a decision.
	scanMany = 256
	// lackedBy is how many rules lack a name that is looked up: each such name is, by
	// every request.
	lackedBy = 32
)

// want is one of the things that rules stand under.
type want struct {
	kind  wantKind
	name  string // of an attribute
	value string
}

type wantKind uint8

const (
	wantPath wantKind = iota
	wantHost
	wantNetwork
	wantValue
	wantPresence
	wantAbsence
)

// facet is a want without its value: what an index within an index no longer
// looks at.
type facet struct {
	kind wantKind
	name string
}

func (w want) facet() facet { return facet{w.kind, w.name} }

// indexing builds the index of a group.
type indexing struct {
	rules   []*Rule
	wants   [][][]want // by rank: what the rule wants, each a choice
	sources map[string]source
	pattern map[string]pattern
	budget  int         // of wants yet to be looked at
	inTurn  []candidate // the most that are compared with a request that has nothing to look up
	onePath asking      // the most that one path may fit
}

func newGroup(rules []*Rule) group {
	if len(rules) <= scanBelow {
		return group{rules: rules}
	}
	b := indexing{rules: rules, wants: make([][][]want, len(rules)), sources: map[string]source{}, pattern: map[string]pattern{}}
	all := make([]int32, len(rules))
	for i, r := range rules {
		b.wants[i], all[i] = b.wantsOf(r), int32(i)
		for _, choice := range b.wants[i] {
			b.budget += len(choice)
		}
		b.budget += len(r.match.lacks)
	}
	// A rule with many paths and many hosts might stand in paths × hosts
	// places. Beyond this budget the rest is asked one by one.
	b.budget = 8*b.budget + 1024
	g := group{rules: rules, index: b.build(all, nil)}
	g.onePath = b.onePath
	for _, c := range b.inTurn {
		g.inTurn = append(g.inTurn, rules[c.rank])
	}
	return g
}

// wantsOf lists what a rule wants: of each choice at least one must hold.
func (b *indexing) wantsOf(r *Rule) (all [][]want) {
	m := &r.match
	var choice []want
	take := func() {
		if len(choice) > 0 {
			all = append(all, choice)
		}
		choice = nil
	}
	for _, p := range m.paths {
		p = p.trimmed(indexedSegments)
		text := p.String()
		b.pattern[text] = p
		choice = append(choice, want{kind: wantPath, value: text})
	}
	take()
	for _, h := range append(slices.Clip(m.hosts.names.values), m.hosts.suffixes.values...) {
		choice = append(choice, want{kind: wantHost, value: h})
	}
	take()
	for _, p := range m.networks.prefixes {
		choice = append(choice, want{kind: wantNetwork, value: p.String()})
	}
	take()
	for _, e := range append(slices.Clip(m.equals), equal{methodSource, m.methods}) {
		b.sources[e.name] = e.source
		for _, v := range e.values {
			choice = append(choice, want{kind: wantValue, name: e.name, value: v})
		}
		take()
	}
	present := func(s source) {
		b.sources[s.name] = s
		all = append(all, []want{{kind: wantPresence, name: s.name}})
	}
	for _, s := range m.has {
		present(s)
	}
	for i := range r.key {
		present(r.key[i].source)
	}
	for i := range m.wants {
		switch f := &m.wants[i]; {
		case !f.isPresent(): // what is absent stands under nothing
		case f.not:
			present(f.source)
		default:
			b.sources[f.name] = f.source
			for _, v := range f.values {
				choice = append(choice, want{kind: wantValue, name: f.name, value: v})
			}
			take()
		}
	}
	return all
}

// methodSource is the attribute itself, whatever keys: makes of its name.
var methodSource = source{name: "", slots: []int{slotMethod}}

// build indexes the rules of some ranks by what they want, except by what the
// indexes around this one have looked at.
func (b *indexing) build(ranks []int32, around []facet) *index {
	ix := &index{min: ranks[0]}
	if len(ranks) <= scanBelow || b.budget <= 0 {
		for _, rank := range ranks {
			ix.scan = append(ix.scan, b.candidate(rank, around))
		}
		b.scans(ix)
		return ix
	}
	wants := 0
	for _, rank := range ranks {
		for _, choice := range b.wants[rank] {
			wants += len(choice)
		}
	}
	popular := make(map[want]int, wants)
	for _, rank := range ranks {
		for _, choice := range b.wants[rank] {
			b.budget -= len(choice)
			for _, w := range choice {
				popular[w]++
			}
		}
	}
	lacked := b.lacked(ranks, around)
	var order []want // as they were met, so that equal rules make equal indexes
	under := make(map[want][]int32, len(popular))
	for _, rank := range ranks {
		choice := b.rarest(rank, around, popular)
		if len(choice) == 0 {
			choice = b.mostLacked(rank, around, lacked)
		}
		if len(choice) == 0 {
			ix.scan = append(ix.scan, b.candidate(rank, around))
		}
		for _, w := range choice {
			have := under[w]
			switch {
			case have == nil:
				order = append(order, w)
			case have[len(have)-1] == rank:
				continue // two of its paths look the same as deep as we look
			}
			under[w] = append(have, rank)
		}
	}
	places := map[string]int{}
	for _, w := range order {
		inner := b.build(under[w], append(slices.Clip(around), w.facet()))
		switch w.kind {
		case wantPath:
			ix.putPath(b.pattern[w.value], inner)
		case wantHost:
			ix.putHost(w.value, inner)
		case wantNetwork:
			ix.putNetwork(netip.MustParsePrefix(w.value), inner)
		case wantAbsence:
			ix.absent = append(ix.absent, absentIndex{b.sources[w.name], inner})
		default:
			ix.putAttr(b.sources[w.name], places, w, inner)
		}
	}
	if ix.paths != nil {
		ix.paths.settle()
		if most := ix.paths.root.taking(); most.rules >= scanMany && most.rules > b.onePath.rules {
			b.onePath = most
		}
	}
	ix.listSlots()
	b.scans(ix)
	return ix
}

// scans takes note of what is many: a list, and those within it of names that a request need
// not have.
func (b *indexing) scans(ix *index) {
	all := ix.unasked(nil)
	if len(all) >= scanMany && len(all) > len(b.inTurn) {
		slices.SortFunc(all, func(x, y candidate) int { return cmp.Compare(x.rank, y.rank) })
		b.inTurn = all
	}
}

// unasked is the rules that a request with nothing to look up is compared with.
func (ix *index) unasked(all []candidate) []candidate {
	all = append(all, ix.scan...)
	for i := range ix.absent {
		all = ix.absent[i].rules.unasked(all)
	}
	return all
}

// candidate is a rule among those that are found by what is around.
func (b *indexing) candidate(rank int32, around []facet) candidate {
	byPath := slices.Contains(around, facet{kind: wantPath})
	return candidate{rank: rank, found: byPath && b.rules[rank].match.pathsAlone()}
}

// rarest is the choice of a rule whose most popular want is wanted by fewest.
func (b *indexing) rarest(rank int32, around []facet, popular map[want]int) (best []want) {
	least := 0
	for _, choice := range b.wants[rank] {
		if slices.Contains(around, choice[0].facet()) {
			continue
		}
		most := 0
		for _, w := range choice {
			most = max(most, popular[w])
		}
		if best == nil || most < least {
			best, least = choice, most
		}
	}
	return best
}

// lacked counts the rules of some ranks that lack a name, but for those around.
func (b *indexing) lacked(ranks []int32, around []facet) map[string]int {
	var by map[string]int
	for _, rank := range ranks {
		for _, s := range b.rules[rank].match.lacks {
			if slices.Contains(around, facet{wantAbsence, s.name}) {
				continue
			}
			if by == nil {
				by = map[string]int{}
			}
			b.budget--
			by[s.name]++
		}
	}
	return by
}

// mostLacked is the name that a rule lacks which most lack; none where these are few. A
// request hardly ever has a name that one rule alone lacks.
func (b *indexing) mostLacked(rank int32, around []facet, lacked map[string]int) []want {
	var best source
	most := lackedBy - 1
	for _, s := range b.rules[rank].match.lacks {
		if n := lacked[s.name]; n > most && !slices.Contains(around, facet{wantAbsence, s.name}) {
			best, most = s, n
		}
	}
	if most < lackedBy {
		return nil
	}
	b.sources[best.name] = best
	return []want{{kind: wantAbsence, name: best.name}}
}

func (ix *index) putPath(p pattern, inner *index) {
	if ix.paths == nil {
		ix.paths = &pathTree{}
	}
	ix.paths.root.put(p, inner)
}

func (ix *index) putHost(name string, inner *index) {
	hosts := &ix.names
	if name[0] == '.' {
		hosts = &ix.suffixes
	}
	if *hosts == nil {
		*hosts = map[string]*index{}
	}
	(*hosts)[name] = inner
}

func (ix *index) putNetwork(p netip.Prefix, inner *index) {
	if ix.networks == nil {
		ix.networks = map[netip.Prefix]*index{}
	}
	ix.networks[p] = inner
	bits := &ix.bits6
	if p.Addr().Is4() {
		bits = &ix.bits4
	}
	if !slices.Contains(*bits, p.Bits()) {
		*bits = append(*bits, p.Bits())
	}
}

// putAttr has places say where in attrs a name stands.
func (ix *index) putAttr(s source, places map[string]int, w want, inner *index) {
	i, ok := places[s.name]
	if !ok {
		i = len(ix.attrs)
		places[s.name] = i
		ix.attrs = append(ix.attrs, attrIndex{source: s})
	}
	a := &ix.attrs[i]
	if w.kind == wantPresence {
		a.present = inner
		return
	}
	if a.values == nil {
		a.values = map[string]*index{}
	}
	a.values[w.value] = inner
}

// listSlots lists where attributes stand, if there are so many that it is
// faster to go by what the request has.
func (ix *index) listSlots() {
	if len(ix.attrs) <= 2*scanBelow {
		return
	}
	ix.bySlot = map[int][]int{}
	for i := range ix.attrs {
		for _, slot := range ix.attrs[i].slots {
			ix.bySlot[slot] = append(ix.bySlot[slot], i)
		}
	}
}
