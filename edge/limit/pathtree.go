package limit

import "strings"

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
func treeOf(paths []pattern) *pathNode {
	root, found := &pathNode{}, &index{}
	for _, p := range paths {
		root.put(p, found)
	}
	return root
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

// lowest is the first rule that applies of all whose patterns take the path,
// or before where none comes before that.
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
