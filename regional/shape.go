package regional

import (
	"time"
	"unsafe"

	"github.com/spillgate/spillgate/sync"
)

// ballot is what nodes say of a key's shape while they do not agree: because its
// limit was changed and they learn of that one after the other, or because one of
// them is lying. By a limit of its choice it could turn all pushes of a key off,
// or have a bucket drain as it likes. So what counts is what most of those say
// that have counted something of late. (The largest limit, or the latest, would be
// a single node's to choose.)
//
// A vote costs the same however many nodes there are, which anybody can invent.
type ballot struct {
	of      map[uint64]int8 // by node the place of its choice in tally; or unlisted
	tally   []choice
	swept   int64 // when votes last lapsed
	entries int   // that there were at the last vote
}

// choice is a shape, and how many say it.
type choice struct {
	shape deltasync.Shape
	votes int
}

const (
	// mostChoices bounds how many shapes are voted for; who says another one still
	// has none of these.
	mostChoices = 64
	unlisted    = -1
	// lapse is how often it is looked at whose votes lapse with their counts, at
	// least, and whether all are of one mind again.
	lapse = int64(time.Second)
)

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
func (c *counter) vote(node uint64, told deltasync.Shape, now int64) {
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
	entries := c.edges.Len() + c.regions.Len()
	if c.votes == nil { // all were of one mind so far
		c.votes = &ballot{of: map[uint64]int8{}, swept: now, entries: entries}
		for _, source := range []Source{FromEdge, FromRegion} {
			for _, e := range c.of(source).Entries() {
				c.votes.cast(e.Replica.Node, c.shape)
			}
		}
	}
	b := c.votes
	b.cast(node, told)
	look := entries < b.entries || passed(b.swept, now, lapse)
	if b.entries = entries; look {
		b.swept = now
		for node, at := range b.of {
			if !c.counts(node) {
				b.drop(node, at)
			}
		}
	}
	c.elect(look)
}

// counts says that a node has an entry.
func (c *counter) counts(node uint64) bool {
	return len(entriesOf(c.edges.Entries(), node)) > 0 || len(entriesOf(c.regions.Entries(), node)) > 0
}

// cast notes a node's vote instead of its last.
func (b *ballot) cast(node uint64, shape deltasync.Shape) {
	at := b.place(shape)
	if was, has := b.of[node]; has {
		if was == at {
			return
		}
		b.drop(node, was)
	}
	if b.of[node] = at; at != unlisted {
		b.tally[at].votes++
	}
}

func (b *ballot) drop(node uint64, at int8) {
	if delete(b.of, node); at != unlisted {
		b.tally[at].votes--
	}
}

// place is where the votes for a shape are counted.
func (b *ballot) place(shape deltasync.Shape) int8 {
	free := len(b.tally)
	for i := range b.tally {
		switch c := &b.tally[i]; {
		case sameTerms(c.shape, shape):
			c.shape.Slices = max(c.shape.Slices, shape.Slices)
			return int8(i)
		case c.votes == 0:
			free = min(free, i)
		}
	}
	switch {
	case free < len(b.tally):
		b.tally[free].shape = shape
	case free == mostChoices:
		return unlisted
	default:
		b.tally = append(b.tally, choice{shape: shape})
	}
	return int8(free)
}

// bytes is the memory that it takes.
func (b *ballot) bytes() int {
	return int(unsafe.Sizeof(ballot{})) + cap(b.tally)*int(unsafe.Sizeof(choice{})) + 24*len(b.of)
}

// elect adopts what more say than what is in force. Where all say the same there is
// nothing left to vote on; that is not looked at with each vote, as it begins anew
// with a look at all nodes.
func (c *counter) elect(look bool) {
	b := c.votes
	inForce := 0
	for i := range b.tally {
		if sameTerms(b.tally[i].shape, c.shape) {
			inForce = b.tally[i].votes
		}
	}
	best := choice{shape: c.shape, votes: inForce}
	for i := range b.tally {
		if b.tally[i].votes > best.votes {
			best = b.tally[i]
		}
	}
	if !sameTerms(best.shape, c.shape) {
		c.adopt(best.shape)
	}
	if look && best.votes == len(b.of) {
		c.votes = nil
	}
}
