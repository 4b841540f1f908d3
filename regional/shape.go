package regional

import (
	"slices"

	"github.com/spillgate/spillgate/sync"
)

// ballot is what nodes say of a key's shape while they do not agree: because its
// limit was changed and they learn of that one after the other, or because one of
// them is lying. By a limit of its choice it could turn all pushes of a key off,
// or have a bucket drain as it likes. So what counts is what most of those say
// that have counted something of late. (The largest limit, or the latest, would be
// a single node's to choose.)
type ballot []vote

type vote struct {
	node  uint64
	shape deltasync.Shape
}

// reshape takes over what may change of a rate without a new generation, as long
// as nobody who counted has spoken for what it is.
func (c *counter) reshape(told deltasync.Shape) {
	if !c.vouched || c.shape.Limit == 0 {
		c.adopt(told)
	}
}

// adopt makes a shape the counter's.
func (c *counter) adopt(told deltasync.Shape) {
	told = c.complete(told)
	if told.Bucket() {
		told.Slices = max(told.Slices, c.shape.Slices)
		if c.past == nil {
			c.past = &past{}
		}
	}
	if told.Limit != c.shape.Limit {
		c.crossed = 0 // of another limit
	}
	c.shape = told
}

// complete fills in what a node does not know: its limit, or, of an older build,
// how a bucket drains.
func (c *counter) complete(told deltasync.Shape) deltasync.Shape {
	if told.Limit == 0 {
		told.Limit = c.shape.Limit
	}
	if c.shape.Bucket() && !told.Bucket() {
		told.Refill, told.RefillPer, told.Floor = c.shape.Refill, c.shape.RefillPer, c.shape.Floor
	}
	return told
}

// sameTerms says that two shapes of a key differ by no more than for how long a
// bucket's counts are kept, which follows from the rest.
func sameTerms(a, b deltasync.Shape) bool {
	if a.Bucket() {
		a.Slices = b.Slices
	}
	return a == b
}

// vote hears what a node says of the shape. Only who has counts here has a say:
// dead nodes' votes lapse with their counts.
func (c *counter) vote(node uint64, told deltasync.Shape) {
	told = c.complete(told)
	same := sameTerms(told, c.shape)
	if same && told.Bucket() {
		c.shape.Slices = max(c.shape.Slices, told.Slices)
	}
	if same && c.vouched && c.votes == nil {
		return
	}
	if !c.vouched {
		c.vouched = true
		c.adopt(told)
		return
	}
	if c.votes == nil { // all were of one mind so far
		for _, source := range []Source{FromEdge, FromRegion} {
			for _, e := range c.of(source).Entries() {
				c.votes.cast(e.Replica.Node, c.shape)
			}
		}
	}
	c.votes.cast(node, told)
	c.votes = slices.DeleteFunc(c.votes, func(v vote) bool { return !c.counts(v.node) })
	c.elect()
}

// counts says that a node has an entry.
func (c *counter) counts(node uint64) bool {
	return len(entriesOf(c.edges.Entries(), node)) > 0 || len(entriesOf(c.regions.Entries(), node)) > 0
}

// cast notes a node's vote instead of its last.
func (b *ballot) cast(node uint64, shape deltasync.Shape) {
	for i := range *b {
		if (*b)[i].node == node {
			(*b)[i].shape = shape
			return
		}
	}
	*b = append(*b, vote{node, shape})
}

// elect adopts what more say than what is in force.
func (c *counter) elect() {
	tally := []struct {
		shape deltasync.Shape
		votes int
	}{{shape: c.shape}}
	for _, v := range c.votes {
		i := 0
		for i < len(tally) && !sameTerms(tally[i].shape, v.shape) {
			i++
		}
		if i == len(tally) {
			tally = append(tally, tally[0])
			tally[i].shape, tally[i].votes = v.shape, 0
		}
		tally[i].votes++
	}
	best := 0
	for i := range tally {
		if tally[i].votes > tally[best].votes {
			best = i
		}
	}
	if best > 0 {
		c.adopt(tally[best].shape)
	}
	if tally[best].votes == len(c.votes) {
		c.votes = nil
	}
}
