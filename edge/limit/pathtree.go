package limit

import (
	"maps"
	"slices"
	"strings"
)

// pathTree finds the patterns that take a path: by a walk, or by rows where that
// could lead to many places.
type pathTree struct {
	root pathNode
	rows *pathRows
}

// pathNode is a place in a tree of path patterns, a level for each segment.
type pathNode struct {
	names map[string]*pathNode // by the segment
	star  *pathNode            // any segment that is not empty
	end   *index               // rules of the patterns that end here
	rest  *index               // and of those that take whatever follows
}

// at is the place of a pattern, made where it is missing.
func (n *pathNode) at(p pattern) *pathNode {
	for _, seg := range p.segments {
		next := n.star
		if seg != "*" {
			next = n.names[seg]
		}
		if next == nil {
			next = &pathNode{}
			switch {
			case seg == "*":
				n.star = next
			case n.names == nil:
				n.names = map[string]*pathNode{seg: next}
			default:
				n.names[seg] = next
			}
		}
		n = next
	}
	return n
}

func (n *pathNode) put(p pattern, ix *index) {
	if at := n.at(p); p.rest {
		at.rest = ix
	} else {
		at.end = ix
	}
}

// treeOf is the tree of a rule's own patterns.
func treeOf(paths []pattern) *pathTree {
	tree, found := &pathTree{}, &index{}
	for _, p := range paths {
		tree.root.put(p, found)
	}
	tree.settle()
	return tree
}

// settle chooses how patterns are found, once all are there.
func (t *pathTree) settle() { t.rows = rowsOf(&t.root) }

// has says whether some pattern takes the path with these segments.
func (t *pathTree) has(path string) bool {
	if t.rows != nil {
		return t.rows.has(path)
	}
	return t.root.has(path, true)
}

// lowest is the first rule that applies of all whose patterns take the path, or before
// where none comes before that.
func (t *pathTree) lowest(q *query, path string, before int32) int32 {
	if t.rows != nil {
		return t.rows.lowest(q, path, before)
	}
	return t.root.lowest(q, path, true, before)
}

// width is how many places a walk may come to, at the most.
func (n *pathNode) width() int {
	if n == nil {
		return 0
	}
	most := 0
	for _, next := range n.names {
		most = max(most, next.width())
	}
	return 1 + n.star.width() + most
}

// taking is how many rules one path may have to be asked, at the most, and the first of
// them.
func (n *pathNode) taking() (most asking) {
	if n == nil {
		return most
	}
	for _, next := range n.names {
		if below := next.taking(); below.rules > most.rules || below.rules == most.rules && below.first < most.first {
			most = below
		}
	}
	if most = most.and(n.star.taking()); n.end.asking().rules > most.rules {
		most = n.end.asking()
	}
	return most.and(n.rest.asking())
}

// asking is rules that are asked in turn, and the rank of the first.
type asking struct {
	rules int
	first int32
}

func (a asking) and(o asking) asking {
	switch {
	case a.rules == 0:
		return o
	case o.rules == 0:
		return a
	}
	return asking{a.rules + o.rules, min(a.first, o.first)}
}

// asking is what of an index is asked at the least.
func (ix *index) asking() asking {
	if ix == nil {
		return asking{}
	}
	return asking{max(1, len(ix.scan)), ix.min}
}

// count is how many patterns there are at this place and below it.
func (n *pathNode) count() (total int) {
	if n == nil {
		return 0
	}
	for _, ix := range []*index{n.end, n.rest} {
		if ix != nil {
			total++
		}
	}
	for _, next := range n.names {
		total += next.count()
	}
	return total + n.star.count()
}

// list adds the patterns at this place and below it.
func (n *pathNode) list(all []placed, to []string) []placed {
	if n == nil {
		return all
	}
	here := slices.Clone(to)
	if n.end != nil {
		all = append(all, placed{pattern{segments: here}, n.end})
	}
	if n.rest != nil {
		all = append(all, placed{pattern{segments: here, rest: true}, n.rest})
	}
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		all = n.names[name].list(all, append(here, name))
	}
	return n.star.list(all, append(here, "*"))
}

// has says whether some pattern takes the path whose segments below this
// place are left; more is whether there is any.
func (n *pathNode) has(left string, more bool) bool {
	if n.rest != nil {
		return true
	}
	if !more {
		return n.end != nil
	}
	seg, left, more := strings.Cut(left, "/")
	if next := n.names[seg]; next != nil && next.has(left, more) {
		return true
	}
	return n.star != nil && seg != "" && n.star.has(left, more)
}

// lowest is that of the patterns below this place.
func (n *pathNode) lowest(q *query, left string, more bool, before int32) int32 {
	before = n.rest.lowest(q, before)
	if !more {
		return n.end.lowest(q, before)
	}
	if n.names == nil && n.star == nil {
		return before
	}
	seg, left, more := strings.Cut(left, "/")
	if next := n.names[seg]; next != nil {
		before = next.lowest(q, left, more, before)
	}
	if n.star != nil && seg != "" {
		before = n.star.lowest(q, left, more, before)
	}
	return before
}
