package deltasync

import (
	"slices"
	"time"
)

// A PoP may have as many edges as it says, of names that it invents: nothing tells them from
// those that are there. So for what an edge may take of a limit of which nothing was told
// yet each PoP counts alike, and its part is its own edges' to share: who invents some makes
// its own parts smaller, and all parts together are the whole, whatever anybody says.

// popsEvery is how often more than fewSenders are counted by PoP, if none comes that was
// not there: each frame's answer tells how many there are.
const (
	popsEvery  = 100 * time.Millisecond
	fewSenders = 256
)

// mostBeside is how many times as many edges as another PoP has count of any, where all
// are counted together.
const mostBeside = 3

// census is how many edges of each PoP were heard of lately, and how many that comes to
// with no more of any PoP than mostBeside times as many as half of them have.
type census struct {
	at     int64
	of     map[uint64]int // by PopOf; nil: they are to be counted
	evenly int
}

// LiveBeside is how many edges an edge's region would have if all PoPs had as many as its
// own; of those heard of not longer than within before now. See LiveEvenly for evenly.
func (in *Inbox) LiveBeside(now int64, within time.Duration, node uint64) (beside, evenly int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.count(now, within)
	return max(1, in.census.of[PopOf(node)]) * max(1, len(in.census.of)), in.census.evenly
}

// LiveEvenly is how many edges there are, of those heard of not longer than within before
// now, but that of no PoP many more count than of others.
func (in *Inbox) LiveEvenly(now int64, within time.Duration) (evenly int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.count(now, within)
	return in.census.evenly
}

// count takes the census, if it is time; in.mu is held.
func (in *Inbox) count(now int64, within time.Duration) {
	c := &in.census
	if age := now - c.at; c.of != nil && in.byArrival.Len() > fewSenders && age >= 0 && age < int64(popsEvery) {
		return
	}
	if c.at, c.evenly = now, 0; c.of == nil {
		c.of = map[uint64]int{}
	}
	clear(c.of)
	for at := in.byArrival.Front(); at != nil; at = at.Next() {
		if s := at.Value.(*sender); s.id.kind == KindEdge && now-s.seen <= int64(within) {
			c.of[PopOf(s.id.node)]++
		}
	}
	pops := make([]int, 0, len(c.of))
	for _, n := range c.of {
		pops = append(pops, n)
	}
	slices.Sort(pops)
	for _, n := range pops {
		c.evenly += min(n, mostBeside*pops[(len(pops)-1)/2])
	}
}

// places is how many senders of each PoP are remembered.
type places struct {
	of    map[uint64]int // by PopOf
	crowd uint64         // that had more than half of all last
}

func (p *places) add(id senderID, n int) {
	if id.kind != KindEdge {
		return
	}
	pop := PopOf(id.node)
	if p.of[pop] += n; p.of[pop] == 0 {
		delete(p.of, pop)
	}
	if p.of[pop] > maxSenders/2 {
		p.crowd = pop
	}
}

// forget makes room for a sender; in.mu is held.
func (in *Inbox) forget() {
	at := in.byArrival.Back()
	if in.places.of[in.places.crowd] > maxSenders/2 {
		for s := at.Value.(*sender); s.id.kind != KindEdge || PopOf(s.id.node) != in.places.crowd; s = at.Value.(*sender) {
			at = at.Prev() // there are some
		}
	}
	id := in.byArrival.Remove(at).(*sender).id
	delete(in.senders, id)
	in.places.add(id, -1)
}
