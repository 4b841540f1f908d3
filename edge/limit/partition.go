package limit

import (
	"cmp"
	"slices"
)

// Partition says what becomes of a limit while an edge is cut off from those who share
// it: nobody answers it, or its region hears of no more than half of the regions.
type Partition uint8

const (
	// PartitionShare keeps to the share that the edge had, so that all edges together
	// still admit about the limit. Of adaptive rates alone, and their default.
	PartitionShare Partition = iota + 1
	// PartitionOpen admits as if the others did nothing from then on: each side of a
	// cut admits the limit. Loose rates know nothing else.
	PartitionOpen
	// PartitionClosed denies.
	PartitionClosed
)

var partitionNames = map[string]Partition{"share": PartitionShare, "open": PartitionOpen, "closed": PartitionClosed}

func (p Partition) String() string { return nameOf(partitionNames, p) }

// partition is what a rate of a consistency does that is told nothing.
func (c Consistency) partition() Partition {
	switch c {
	case Adaptive:
		return PartitionShare
	case Strict:
		return 0 // what it holds is its own, cut off or not, until the lease ends
	}
	return PartitionOpen
}

// has says that rates of a consistency can do so.
func (c Consistency) has(p Partition) bool {
	return c == Adaptive || c == Loose && p != PartitionShare
}

// onPartition reads what a rate does when its edge is cut off. The rule's word and the
// document's are for those rates that can do so; the rate's own has to fit.
func (c *compiler) onPartition(path string, rule *RuleSpec, spec *RateSpec, r *Rate) {
	r.OnPartition = r.Consistency.partition()
	if spec.OnPartition != "" {
		p := enum(c, partitionNames, word{path + ".on_partition", spec.OnPartition})
		if p != 0 && r.Consistency != 0 && !r.Consistency.has(p) {
			hint, why := "open, closed, or consistency: adaptive", "a loose rate has no share to keep to"
			if r.Consistency == Strict {
				hint, why = "leave it out, or consistency: adaptive", "a strict rate goes on with the rights that it holds, cut off or not"
			}
			c.problem(path+".on_partition", "E225", hint, "%s", why)
		}
		r.OnPartition = p
		return
	}
	if p := partitionNames[cmp.Or(rule.OnPartition, c.doc.Defaults.OnPartition)]; r.Consistency.has(p) && p != 0 { // what is no word of it is told where it stands
		r.OnPartition = p
	}
}

// partitions refuses a rule's word that none of its rates can do.
func (c *compiler) partitions(path string, spec *RuleSpec, r *Rule) {
	p := partitionNames[spec.OnPartition]
	if p == 0 || len(r.Rates) == 0 {
		return
	}
	for _, rate := range r.Rates {
		if rate.Consistency == 0 || rate.Consistency.has(p) {
			return
		}
	}
	c.problem(path+".on_partition", "E225", "leave it out, or consistency: adaptive", "none of its rates can do so: loose ones have no share to keep to, and strict ones go on with the rights that they hold")
}

// cutFromNobody warns of words for a cut in rates that no cut concerns.
func (c *compiler) cutFromNobody(path string, spec *RuleSpec, r *Rule) {
	warn := func(at, whose string) {
		c.warn(at+".on_partition", "W218", "leave it out, or scope: global or region", "%s scope: edge: the edge shares the limit with nobody whom it could be cut off from", whose)
	}
	for k := range spec.Rates {
		if spec.Rates[k].OnPartition != "" && r.Rates[k].Scope == ScopeEdge {
			warn(indexed(path+".rates", k), r.Rates[k].Name+" has")
		}
	}
	if spec.OnPartition != "" && len(r.Rates) > 0 && !slices.ContainsFunc(r.Rates, func(rate *Rate) bool { return rate.Scope != ScopeEdge }) {
		warn(path, "all rates have")
	}
}
