package regional

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// Whatever nodes vote for, one after the other, and whoever's counts retire: what is
// in force has as many votes as anything else.
func TestMostVotesAreInForce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		c, said := &counter{}, map[uint64]uint64{}
		nodes, limits := 1+rnd.IntN(12), 1+rnd.IntN(4)
		var slice crdt.Slice
		for range 80 {
			if rnd.IntN(10) == 0 {
				slice++ // and who counted in the one before last has counted nothing of late
				c.edges.Retire(slice - 1)
			}
			node := 1 + rnd.Uint64N(uint64(nodes))
			shape := deltasync.Shape{Width: time.Second, Slices: 2, Limit: 1 + rnd.Uint64N(uint64(limits))}
			c.edges.Join(crdt.Replica{Node: node, Incarnation: 1}, crdt.Cell{Slice: slice, Charges: uint64(1 + rnd.IntN(9))})
			c.vote(node, 0, shape, int64(slice)*lapse)
			said[node] = shape.Limit
			votes, most := map[uint64]int{}, 0
			for n, limit := range said {
				if c.counts(n) {
					votes[limit]++
					most = max(most, votes[limit])
				} else {
					delete(said, n)
				}
			}
			if votes[c.shape.Limit] != most {
				t.Fatalf("round %d: a limit of %d is in force, of the votes %v", round, c.shape.Limit, votes)
			}
		}
	}
}

// Of more shapes than are listed each may be a liar's; that the others have most
// votes still counts, and the memory is weighed.
func TestManyShapesAreVotedFor(t *testing.T) {
	c := &counter{}
	for node := range uint64(3 * mostChoices) {
		c.edges.Join(crdt.Replica{Node: node + 1, Incarnation: 1}, crdt.Cell{Slice: 5, Charges: 1})
		limit := 1000 + node
		if node%3 == 1 {
			limit = 7
		}
		c.vote(node+1, 0, deltasync.Shape{Width: time.Second, Slices: 2, Limit: limit}, 1)
	}
	if c.shape.Limit != 7 || len(c.votes.tally) != mostChoices || c.votes.places != mostChoices {
		t.Errorf("a limit of %d is in force, of %d that are listed; want 7, and %d", c.shape.Limit, len(c.votes.tally), mostChoices)
	}
	l := &lane{}
	l.weigh(c)
	with := l.room.held
	c.votes = nil
	if l.weigh(c); with-l.room.held < 3*mostChoices*8 {
		t.Errorf("the votes of %d nodes weigh %d bytes", 3*mostChoices, with-l.room.held)
	}
}

// What is listed first is no obstacle: once the others are of one mind it counts.
func TestListOfShapesIsNoObstacle(t *testing.T) {
	c := &counter{}
	says := func(node, limit uint64) {
		c.edges.Join(crdt.Replica{Node: node, Incarnation: 1}, crdt.Cell{Slice: 5, Charges: 1})
		c.vote(node, 0, deltasync.Shape{Width: time.Second, Slices: 2, Limit: limit}, 1)
	}
	const honest = 200
	for node := range uint64(honest) {
		says(1+node, 100)
	}
	for node := range uint64(2 * mostChoices) {
		says(1000+node, 1000+node)
	}
	for node := range uint64(honest - 1) { // the last of them is dead
		says(1+node, 10)
	}
	if c.shape.Limit != 10 {
		t.Errorf("a limit of %d is in force, want 10, which %d of %d say", c.shape.Limit, honest-1, honest)
	}
}

// nodeIn is an edge of a PoP.
func nodeIn(pop, edge uint64) uint64 { return pop*(^deltasync.PopOf(math.MaxUint64)+1) + edge }

// A PoP has one vote, however many edges it invents; its own are of one weight.
func TestEachPoPHasOneVote(t *testing.T) {
	c := &counter{}
	node := uint64(0)
	says := func(pop, limit uint64, edges int) {
		for range edges {
			node++
			n := nodeIn(pop, node)
			c.edges.Join(crdt.Replica{Node: n, Incarnation: 1}, crdt.Cell{Slice: 5, Charges: 1})
			c.vote(n, deltasync.PopOf(n), deltasync.Shape{Width: time.Second, Slices: 2, Limit: limit}, 1)
		}
	}
	for i, step := range []struct {
		pop, limit uint64
		edges      int
		want       uint64 // in force
	}{
		{1, 100, 1, 100},
		{2, 100, 1, 100}, // who said the same from the start has a vote, too
		{3, 9, 50, 100},  // one against two
		{5, 9, 1, 100},   // two against two
		{6, 9, 2, 9},
		{7, 100, 3, 9}, // three against three
		{7, 9, 1, 9},   // one in four of that PoP
		{8, 100, 1, 100},
	} {
		if says(step.pop, step.limit, step.edges); c.shape.Limit != step.want {
			t.Fatalf("step %d: a limit of %d is in force, want %d", i, c.shape.Limit, step.want)
		}
	}
}

// Votes that lapse together leave the same shape in force every run.
func TestVotesThatLapseTogether(t *testing.T) {
	for range 50 {
		c := &counter{}
		says := func(node, limit uint64, slice crdt.Slice, now int64) {
			n := nodeIn(1+(node-1)%2, node)
			c.edges.Join(crdt.Replica{Node: n, Incarnation: 1}, crdt.Cell{Slice: slice, Charges: 1})
			c.vote(n, deltasync.PopOf(n), deltasync.Shape{Width: time.Second, Slices: 2, Limit: limit}, now)
		}
		says(1, 10, 5, 1)
		says(2, 10, 5, 1)
		says(3, 30, 9, 1)
		says(4, 40, 9, 1)
		if c.shape.Limit != 10 {
			t.Fatalf("a limit of %d is in force, want 10", c.shape.Limit)
		}
		c.edges.Retire(6) // nodes 1 and 2 have no say any more, and one PoP stands against one
		says(4, 40, 9, 1+lapse)
		if c.shape.Limit != 30 {
			t.Fatalf("a limit of %d is in force, want 30: that of the PoP whose node's vote lapsed first", c.shape.Limit)
		}
	}
}

// What a vote costs while nodes do not agree, of so many.
func BenchmarkVote(b *testing.B) {
	c := &counter{}
	shape := deltasync.Shape{Width: time.Minute, Slices: 2, Limit: 100}
	for node := range uint64(maxEntries) {
		c.edges.Join(crdt.Replica{Node: node + 1, Incarnation: 1}, crdt.Cell{Slice: 5, Charges: 1})
		c.vote(node+1, 0, shape, 1)
	}
	for i := 0; b.Loop(); i++ {
		shape.Limit = uint64(100 + i%2)
		c.vote(1, 0, shape, 1)
	}
}
