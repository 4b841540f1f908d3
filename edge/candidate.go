package edge

import (
	"slices"

	"github.com/spillgate/spillgate/edge/limit"
)

// firstOf is the place of a rule's first counter: of a path with several readings it may have more.
func firstOf(rule *limit.Rule, counters []counter) int {
	return slices.IndexFunc(counters, func(c counter) bool { return c.rule == rule })
}

// tryCandidates counts what candidates say of a request, beside the rules that they are candidates of, and
// charges those that would have admitted what their rule alone denies: as if they were live.
func (n *Node) tryCandidates(counters []counter) {
	for i := range counters {
		c := &counters[i]
		if c.rule.Live == nil || firstOf(c.rule, counters) != i {
			continue
		}
		var live, candidate, others bool // deny it
		for j := range counters {
			switch o := &counters[j]; {
			case !o.over || o.lends:
			case o.rule == c.rule:
				candidate = true
			case o.rule.Index == c.rule.Live.Index:
				live = true
			default:
				others = others || o.rule.Mode == limit.Enforce
			}
		}
		c.rule.Live.Tried(live, candidate)
		if !live || c.rule.Live.Mode != limit.Enforce || candidate || others || c.rule.CountsAfter() {
			continue
		}
		for j := range counters {
			if o := &counters[j]; o.rule == c.rule && !o.chargedDenied() { // else it was charged
				n.book(o)
				o.tried = true
			}
		}
	}
}
