package regional

import (
	"slices"
	"time"
)

// Whoever takes a lane over knows nothing of what is asked for in other regions, and these
// tell it when it changes. Should one be cut off meanwhile, its part of a limit would be that
// of a region where nothing is asked for. So he says at once that he lacks it (FeatureLacks),
// and they tell him; and where they see that somebody else has the lane than had it so far.

// lackAgain is how long after it said so whoever took a lane over says it again, if keys came
// meanwhile that had no place when he was told.
const lackAgain = 400 * time.Millisecond

// answersLacks is how long it may take until those who are asked for something have told.
const answersLacks = 2 * time.Second

// lack has all peers be told that the lane was gained. mu is held.
func (l *lane) lack(now int64) {
	l.asked, l.lacks = now, false
	for j := range l.peers {
		l.peers[j].lacks = true
	}
}

// tellLacking tells a region that says so what is asked for here.
func (a *Aggregator) tellLacking(l *lane, node uint64, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j := slices.Index(a.nodes, node); j >= 0 {
		a.tellDemands(l, j, now)
	}
}

// tellDemands tells a peer what is asked for of the lane's keys, as somebody else has the
// lane there than had it so far. What holds still would not be told for long; and if regions
// are cut off from each other meanwhile, he would have them have no part of a limit.
func (a *Aggregator) tellDemands(l *lane, j int, now int64) {
	for _, key := range l.contests {
		c := l.counters[key]
		if c.shape.Regional {
			continue
		}
		d := l.delta(key, c, nothing, 0, now)
		if d.Demand = a.demand(key, c, now); d.Demand == nil || d.Demand.Mid == 0 {
			continue
		}
		if l.peers[j].outbox.HalfFull() {
			return // he hears of the others as they change
		}
		l.peers[j].outbox.Put(c.shape, 0, d)
	}
}
