package regional

import (
	"slices"
	"time"
)

// Not all regions need see the same cut: two may be cut off from each other that a third
// hears both of. Were each to share what is left of a limit with those that it hears, it
// would be given out more than once. So regions tell each other whom they hear
// (deltasync.Up.Hears). Who hears one that hears others than he does, for longer than it
// takes all to find the same cut, is apart: he shares a limit as one who is cut off from all,
// and each has of it what he had before. The parts of all are as of the same time, and so
// come to the whole. And who is heard again of those who had their parts goes on to have them
// until all agree whom they hear, from the first moment on: of regions that are all cut off from
// each other one may hear two that do not hear each other yet, and each of the two would take
// what that one leaves.

// apartAfter is how much longer than four ways it takes all to find the same cut: who has
// nothing to tell says whom he hears every beat.
const apartAfter = time.Second

// Who has kept to its part for holdFlicker, as it seemed to be silent ever anew, is taken back
// as soon as it is heard, if all regions have said that they hear all within hearAll, and none
// has said nothing for a while since: where links are cut off in turn all hear all now and then.
const (
	holdFlicker = 10 * time.Second
	hearAll     = 6 * time.Second
)

// hears is the nodes of this region and of those that it hears, by exclusive or.
func (a *Aggregator) hears(now int64) (nodes uint64) {
	nodes = a.self.Node
	for j, node := range a.nodes {
		if a.hearsPeer(j, now) {
			nodes ^= node
		}
	}
	return nodes
}

func (a *Aggregator) hearsPeer(j int, now int64) bool {
	v := a.spoken.read(j)
	return v.last != 0 && !v.recalled && !a.links.suspects(j, a.cfg.Interval, now)
}

// unbroken says that no peer has said nothing for a while within holdFlicker.
func (a *Aggregator) unbroken(now int64) bool {
	for j := range a.nodes {
		if now-a.spoken.read(j).since <= int64(holdFlicker) {
			return false
		}
	}
	return true
}

// says notes whom a peer hears, as it says.
func (l *links) says(j int, hears uint64, now int64) {
	l.hears[j].Store(hears)
	l.paused(j, now-l.hearsAt[j].Swap(now))
}

// compareHearing compares whom this region hears with whom those do, and notes since when
// that differs.
func (a *Aggregator) compareHearing(now int64) (nodes uint64) {
	nodes = a.hears(now)
	differs, aside, all, agree := false, a.cutOff(now), a.self.Node, true
	for j, node := range a.nodes {
		theirs, lately, heard := a.links.hears[j].Load(), !passed(a.links.hearsAt[j].Load(), now, int64(quietFor)), a.hearsPeer(j, now)
		differs = differs || lately && theirs != 0 && theirs != nodes && heard
		agree, all = agree && lately && theirs == nodes && heard, all^node
	}
	l, unbroken := &a.links, a.unbroken(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if nodes == all {
		l.allAt[len(a.nodes)] = now
	}
	for j := range a.nodes {
		if l.hears[j].Load() == all {
			l.allAt[j] = l.hearsAt[j].Load()
		}
	}
	if l.agreed == 0 && l.differs == 0 { // it has just started: who is heard first may say what was noted is over
		for j := range l.held {
			l.held[j] = now
		}
	}
	switch {
	case differs:
		if l.agreed = 0; l.differs == 0 || l.differs > now { // or a clock was set back
			l.differs = now
		}
	default:
		if l.differs = 0; l.agreed == 0 || l.agreed > now {
			l.agreed = now
		}
	}
	if l.isApart(now) {
		aside = 1<<len(a.nodes) - 1
	}
	settles := int64(finds*a.cfg.Interval+suspicion) + l.longest()*36/10
	if agree { // that they hear all
		settles = 0
	}
	l.differ.Store(l.holds(aside, settles, unbroken, now))
	return nodes
}

// holds is the peers, a bit each, that are not to be taken back: those aside, which keep to
// their parts, and all as long as some hear others, and until that settles. Where all regions
// say that they hear all it has; else it takes as long as one may take to find that a cut is
// over, and to tell: who finds that of one peer before the next says what others may happen to
// say. But not for longer than it takes this region to be apart, once who was aside is not. Nor
// for ever where all hear all now and then: who is so far away that he seems to be silent ever
// anew would have what he had for good, though his word is unbroken. l.mu is held.
func (l *links) holds(aside uint64, settles int64, unbroken bool, now int64) (held uint64) {
	most := int64(2*apartAfter) + 4*l.longest() + settles
	agreed := l.differs == 0 && now-l.agreed >= settles
	noCut := unbroken && !slices.ContainsFunc(l.allAt, func(at int64) bool { return passed(at, now, int64(hearAll)) })
	for j := range l.held {
		if l.differ.Load()>>j&1 == 0 || l.since[j] > now {
			l.since[j] = now
		}
		switch {
		case aside>>j&1 != 0:
			l.held[j] = now
			held |= 1 << j
			continue
		case noCut && now-l.since[j] > int64(holdFlicker):
			l.held[j] = 0
			continue
		case l.held[j] == 0 && l.differs != 0 || l.held[j] > now: // or a clock was set back
			l.held[j] = now
		case agreed && now-l.held[j] >= settles:
			l.held[j] = 0
		}
		if l.held[j] != 0 && now-l.held[j] < most {
			held |= 1 << j
		}
	}
	return held
}

// longest is the longest way to a peer. l.mu is held.
func (l *links) longest() (way int64) {
	for _, w := range l.ways {
		way = max(way, w)
	}
	return way
}

// apart says that this region is; see above.
func (a *Aggregator) apart(now int64) bool {
	l := &a.links
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isApart(now)
}

// isApart is apart; l.mu is held.
func (l *links) isApart(now int64) bool {
	return l.differs != 0 && now-l.differs > int64(apartAfter)+4*l.longest()
}

// aside is the peers that a limit is not shared with, a bit each, as they keep to the part
// that they had: those that may be cut off, or all if this region is apart.
func (a *Aggregator) aside(now int64) (peers uint64) {
	if a.apart(now) {
		return 1<<len(a.nodes) - 1
	}
	return a.cutOff(now)
}

// parted is since when a peer is silent; or, where it is not, and this region is apart, since
// when about one of those that are, here or elsewhere. Not one that was silent long before: all
// agreed then, and go by what was asked for as they cease to.
func (a *Aggregator) parted(j int, now int64) int64 {
	l := &a.links
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.differs == 0 || l.late(j, a.cfg.Interval, now) {
		return l.owes(j)
	}
	since := l.differs - l.longest()*36/10 - int64(2*a.cfg.Interval+suspicion) // it was found, and told
	long := since - int64(apartAfter) - 4*l.longest()
	for k := range l.ways {
		if l.late(k, a.cfg.Interval, now) && l.owes(k) > long {
			since = min(since, l.owes(k))
		}
	}
	return since
}
