package regional

import (
	"slices"
	"time"
	"unsafe"

	"github.com/spillgate/spillgate/sync"
)

// ballot is what is said of a key's shape while not all agree: because its limit was
// changed and nodes learn of that one after the other, or because one of them is
// lying. By a limit of its choice it could turn all pushes of a key off, or have a
// bucket drain as it likes. So what counts is what most say of those that have counted
// something of late. (The largest limit, or the latest, would be one's own to choose.)
//
// A PoP has one vote, which is split among what its edges say: edges can be invented,
// and PoPs cannot. What another region says is what is in force there, and weighs so
// little that it decides only where PoPs are at odds: else regions would hold each other
// to what was in force before. Of two that as much says, that stays which is in force. A
// vote costs the same however many nodes there are.
type ballot struct {
	of      map[uint64]vote // by node
	pops    map[uint64]*caucus
	tally   []choice // by all; those without a vote are gone
	places  int      // room for choices in all caucuses
	serial  uint32
	swept   int64 // when votes last lapsed
	entries int   // that there were at the last vote
}

// vote is what a node says, in its PoP. A choice that is not listed there any more
// counts for nothing.
type vote struct {
	pop    uint64
	choice uint32
}

// caucus is what the edges of a PoP say.
type caucus struct {
	whole uint64 // its vote
	nodes int
	tally []choice
}

// choice is a shape, and how much says it: nodes in a caucus, parts of PoPs' votes in
// a ballot.
type choice struct {
	shape  deltasync.Shape
	votes  uint64
	serial uint32
}

const (
	// whole is a PoP's vote.
	whole = 1 << 32
	// mostChoices bounds how many shapes are voted for in a PoP. Who comes with
	// another takes the place of the one that fewest say, and of several that of the one
	// that was said first: who said it has no say until he says something else. So a PoP
	// can have its own edges unheard, and no other's.
	mostChoices = 16
	// lapse is how often it is looked at whose votes lapse with their counts, at
	// least, and whether all are of one mind again.
	lapse = int64(time.Second)
)

// vote hears what a node says of the shape, which is an edge of a PoP, or a region of
// its own. Only who has counts here has a say: dead nodes' votes lapse with their
// counts.
func (c *counter) vote(node, pop uint64, told deltasync.Shape, now int64) {
	told = c.complete(told)
	same := sameTerms(told, c.shape)
	if same && told.Bucket() {
		c.shape.Slices = max(c.shape.Slices, told.Slices)
	}
	if same && c.vouched && c.votes == nil || !c.counts(node) {
		return
	}
	if !c.vouched {
		c.vouched = true
		c.adopt(told)
		return
	}
	entries := c.edges.Len() + c.regions.Len()
	if c.votes == nil { // all were of one mind so far
		c.votes = &ballot{of: map[uint64]vote{}, pops: map[uint64]*caucus{}, swept: now, entries: entries}
		for _, e := range c.edges.Entries() {
			c.votes.cast(e.Replica.Node, deltasync.PopOf(e.Replica.Node), c.shape)
		}
		for _, e := range c.regions.Entries() {
			c.votes.cast(e.Replica.Node, e.Replica.Node, c.shape)
		}
	}
	b := c.votes
	b.cast(node, pop, told)
	look := entries < b.entries || passed(b.swept, now, lapse)
	if b.entries = entries; look {
		b.swept = now
		b.dropAll(func(node uint64) bool { return !c.counts(node) })
	}
	c.elect(look)
}

// dropAll takes back the votes of some nodes, in an order that is the same every run:
// of choices with as many votes the one that was listed first is elected.
func (b *ballot) dropAll(gone func(node uint64) bool) {
	var nodes []uint64
	for node := range b.of {
		if gone(node) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	for _, node := range nodes {
		b.drop(node)
	}
}

// counts says that a node has an entry.
func (c *counter) counts(node uint64) bool {
	return len(entriesOf(c.edges.Entries(), node)) > 0 || len(entriesOf(c.regions.Entries(), node)) > 0
}

// cast notes a node's vote instead of its last.
func (b *ballot) cast(node, pop uint64, shape deltasync.Shape) {
	in := b.pops[pop]
	if was, voted := b.of[node]; voted && was.pop == pop {
		if i := in.find(was.choice); i >= 0 && sameTerms(in.tally[i].shape, shape) {
			in.tally[i].shape.Slices = max(in.tally[i].shape.Slices, shape.Slices)
			return
		}
	}
	b.drop(node)
	if in = b.pops[pop]; in == nil {
		in = &caucus{whole: whole}
		if pop == node { // a region
			in.whole = whole / 256 // there are 63 others at most
		}
		b.pops[pop] = in
	}
	b.weigh(in, -1)
	in.nodes++
	b.of[node] = vote{pop, in.add(shape, &b.serial)}
	b.weigh(in, 1)
}

// drop takes back a node's vote.
func (b *ballot) drop(node uint64) {
	was, voted := b.of[node]
	if !voted {
		return
	}
	delete(b.of, node)
	in := b.pops[was.pop]
	b.weigh(in, -1)
	if in.nodes--; in.nodes == 0 {
		delete(b.pops, was.pop)
		return
	}
	if i := in.find(was.choice); i >= 0 {
		if in.tally[i].votes--; in.tally[i].votes == 0 {
			in.tally = slices.Delete(in.tally, i, i+1)
		}
	}
	b.weigh(in, 1)
}

// weigh counts a PoP's vote, or takes it back: 1 or -1.
func (b *ballot) weigh(in *caucus, times int) {
	b.places += times * cap(in.tally)
	for _, c := range in.tally {
		weight := c.votes * in.whole / uint64(in.nodes)
		i := slices.IndexFunc(b.tally, func(all choice) bool { return sameTerms(all.shape, c.shape) })
		switch {
		case times > 0 && i < 0:
			b.tally = append(b.tally, choice{shape: c.shape, votes: weight})
		case times > 0:
			b.tally[i].votes += weight
			b.tally[i].shape.Slices = max(b.tally[i].shape.Slices, c.shape.Slices)
		default:
			if b.tally[i].votes -= weight; b.tally[i].votes == 0 {
				b.tally = slices.Delete(b.tally, i, i+1)
			}
		}
	}
}

func (in *caucus) find(serial uint32) int {
	return slices.IndexFunc(in.tally, func(c choice) bool { return c.serial == serial })
}

// add counts a vote for a shape, and returns the serial of the choice that it is.
func (in *caucus) add(shape deltasync.Shape, serial *uint32) uint32 {
	fewest := 0
	for i := range in.tally {
		c := &in.tally[i]
		if sameTerms(c.shape, shape) {
			c.votes++
			c.shape.Slices = max(c.shape.Slices, shape.Slices)
			return c.serial
		}
		if c.votes < in.tally[fewest].votes {
			fewest = i
		}
	}
	*serial++
	if len(in.tally) == mostChoices {
		in.tally = slices.Delete(in.tally, fewest, fewest+1)
	}
	in.tally = append(in.tally, choice{shape, 1, *serial})
	return *serial
}

// bytes is the memory that it takes.
func (b *ballot) bytes() int {
	const place = int(unsafe.Sizeof(uint64(0)))
	return int(unsafe.Sizeof(ballot{})) + (cap(b.tally)+b.places)*int(unsafe.Sizeof(choice{})) +
		mapBytes(len(b.of), place+int(unsafe.Sizeof(vote{}))) +
		mapBytes(len(b.pops), 2*place) + len(b.pops)*int(unsafe.Sizeof(caucus{}))
}

// elect adopts what more say than what is in force. Where all say the same there is
// nothing left to vote on; that is not looked at with each vote, as it begins anew
// with a look at all nodes.
func (c *counter) elect(look bool) {
	b := c.votes
	best := choice{shape: c.shape}
	for i := range b.tally {
		if sameTerms(b.tally[i].shape, c.shape) {
			best.votes = b.tally[i].votes
		}
	}
	for i := range b.tally {
		if b.tally[i].votes > best.votes {
			best = b.tally[i]
		}
	}
	if !sameTerms(best.shape, c.shape) {
		c.adopt(best.shape)
	}
	all := uint64(0)
	for _, in := range b.pops {
		all += in.whole
	}
	if look && best.votes == all {
		c.votes = nil
	}
}
