package regional

import "time"

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

// says notes whom a peer hears, as it says.
func (l *links) says(j int, hears uint64, now int64) {
	l.hears[j].Store(hears)
	l.hearsAt[j].Store(now)
}

// compareHearing compares whom this region hears with whom those do, and notes since when
// that differs.
func (a *Aggregator) compareHearing(now int64) (nodes uint64) {
	nodes = a.hears(now)
	differs, silent := false, a.cutOff(now)
	for j := range a.nodes {
		theirs, lately := a.links.hears[j].Load(), !passed(a.links.hearsAt[j].Load(), now, int64(quietFor))
		differs = differs || lately && theirs != 0 && theirs != nodes && a.hearsPeer(j, now)
	}
	l := &a.links
	l.mu.Lock()
	defer l.mu.Unlock()
	l.differ.Store(l.holds(silent, differs, now))
	switch {
	case !differs:
		l.differs = 0
	case l.differs == 0 || l.differs > now: // or a clock was set back
		l.differs = now
	}
	return nodes
}

// holds is the peers, a bit each, that are not to be taken back: those that were silent, and all
// as long as some hear others. That is for as long as it takes this region to be apart: who is so
// far away that he seems to be silent ever anew would have what he had for good. l.mu is held.
func (l *links) holds(silent uint64, differs bool, now int64) (held uint64) {
	most := int64(2*apartAfter) + 4*l.longest()
	for j := range l.held {
		switch since := l.waiting[j].Load(); {
		case silent>>j&1 != 0:
			if since != 0 && passed(since, now, int64(quietFor)) {
				l.held[j] = 0
			}
		case !differs:
			l.held[j] = 0
			continue
		case l.held[j] == 0 || l.held[j] > now: // or a clock was set back
			l.held[j] = now
		}
		if l.held[j] == 0 || now-l.held[j] < most {
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
