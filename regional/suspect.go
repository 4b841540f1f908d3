package regional

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// A region that is cut off from another goes on with its part of each limit, and so
// does the other with the rest: see frozen.go. Here is who is cut off, and how long news
// is on its way where nobody is.
//
// Both must find it, though frames be lost in one direction alone: then one of them is
// deaf, and the other hears it. So who hears nothing of another says so in its frames
// (FeatureDeaf), and who is told that, and has none of its own answered, takes it to be cut
// off until one is, or it says that it hears (FeatureHears): an aggregator that starts there
// has yet to find that it is deaf. That none are answered is not enough to begin with: those of
// a lane are not while a region's aggregator that served it is replaced, and those that come
// too late, over a long way, are none.

// between is how long it takes another region to hear from this one, on average of
// those that are not cut off: as was measured, and longer where answers are overdue.
func (a *Aggregator) between(now int64) time.Duration {
	a.links.mu.Lock()
	defer a.links.mu.Unlock()
	sum, known := int64(0), int64(0)
	for j, way := range a.links.ways {
		if way == 0 || a.links.late(j, a.cfg.Interval, now) {
			continue
		}
		sum, known = sum+way+max(0, a.links.overdue(j, now)), known+1
	}
	if known == 0 {
		return 0
	}
	return time.Duration(sum / known)
}

// owes is since when a peer owes an answer: of one that says it is deaf to our frames,
// and of another to these, or any word. 0: it does not.
func (l *links) owes(j int) int64 {
	if l.deaf[j].Load() {
		return l.unanswered[j].Load()
	}
	return l.waiting[j].Load()
}

// overdue is how long ago a peer's answer should have come; below zero where it need
// not have. l.mu is held.
func (l *links) overdue(j int, now int64) int64 { return l.after(l.owes(j), j, now) }

// after is how long ago an answer to what was sent at an instant should have come.
func (l *links) after(since int64, j int, now int64) int64 {
	if since == 0 {
		return -1
	}
	return now - since - l.ways[j]*26/10
}

// late says that a peer's answer is overdue for longer than chance tells. l.mu is held.
func (l *links) late(j int, interval time.Duration, now int64) bool {
	return l.overdue(j, now) > int64(2*interval+suspicion)
}

// there says that a peer is known to be, or may be as nothing tells who is. l.mu is held.
func (l *links) there(j int) bool { return l.ways[j] != 0 || l.unread.Load() }

// unseen is how long after they are told the other regions can have seen counts.
func (a *Aggregator) unseen(now int64) int64 {
	return int64(a.between(now)*11/10) + int64(a.cfg.Interval/2)
}

// sent notes that a frame was sent to a peer.
func (l *links) sent(j int, now int64) {
	for _, since := range []*atomic.Int64{&l.waiting[j], &l.unanswered[j]} {
		if since.Load() == 0 {
			since.Store(now)
		}
	}
}

// heard notes that a peer spoke, and whether it says that it is deaf, or hears.
func (l *links) heard(j int, deaf, hears bool, interval time.Duration, now int64) {
	if l.waiting[j].Load() == 0 && l.deaf[j].Load() == deaf {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spoke(j, deaf || !hears && l.deaf[j].Load() && l.late(j, interval, now), interval, now)
}

// spoke notes that a peer was heard, which is deaf or not. One that was suspected has yet to
// tell what it counted meanwhile, or to hear what was counted here; and that may be lost from
// now on, as one that was deaf may be mute the next moment, or the other way round. So either
// it answers what was sent since, or it is suspected for as long as it takes the peer to find
// that it is deaf now, and to tell. l.mu is held.
func (l *links) spoke(j int, deaf bool, interval time.Duration, now int64) {
	was := l.there(j) && l.late(j, interval, now) // else it may be as far away as that
	// Who is heard after a cut says for a while yet that it is deaf.
	if spoke := !l.deaf[j].Load(); was && (spoke || !deaf && now >= l.back[j]) {
		l.again[j], l.back[j] = now, now+int64(finds*interval+suspicion)+l.ways[j]*36/10
		l.awake[j].Store(true)
	}
	l.waiting[j].Store(0)
	l.deaf[j].Store(deaf)
}

// finds is the intervals that it takes one to find that it hears nothing, and to tell: who has
// nothing to tell sends a beat, to which he misses an answer, and one that says so.
const finds = 2*beat + 2

// answered notes that a peer answered a frame, sent at an instant: it is not deaf.
func (l *links) answered(j int, sent int64, interval time.Duration, now int64) {
	l.mu.Lock()
	if l.waiting[j].Load() != 0 || l.deaf[j].Load() {
		l.spoke(j, false, interval, now)
	}
	if sent >= l.again[j] && now < l.back[j] {
		l.back[j] = min(l.back[j], max(now, l.again[j]+int64(2*interval)+l.ways[j]*26/10))
	}
	l.mu.Unlock()
	l.unanswered[j].Store(0)
}

// suspects says that a peer may be cut off: it owes an answer for longer than one
// takes, and has said nothing since, or that it hears nothing. Both sides go on with their parts of limits then.
func (l *links) suspects(j int, interval time.Duration, now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.there(j) && !l.deaf[j].Load() {
		return false // it was never heard: who is not there yet has no part
	}
	return l.late(j, interval, now) || now < l.back[j] && l.back[j]-now < int64(time.Minute)
}

// hearsNothing says that nothing was heard of a region that is there for longer than an
// answer takes, or since this aggregator started.
func (a *Aggregator) hearsNothing(j int, now int64) bool {
	if a.unmet(j) {
		return true
	}
	l := &a.links
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ways[j] != 0 && l.after(l.waiting[j].Load(), j, now) > int64(2*a.cfg.Interval+suspicion)
}

// suspicion is how much longer than usual an answer may take.
const suspicion = 20 * time.Millisecond

// heardAfter takes in how long an exchange with a peer took, there and back, less
// what it took there.
func (a *Aggregator) heardAfter(j int, took int64) {
	if took < 0 || took > int64(deltasync.LongestTrip) {
		return // a clock was set
	}
	a.links.mu.Lock()
	defer a.links.mu.Unlock()
	ways := a.links.ways
	if ways[j] == 0 {
		ways[j] = took / 2
	}
	ways[j] += (took/2 - ways[j]) / 8
}

// cutOff is the peers that may be cut off, a bit each.
func (a *Aggregator) cutOff(now int64) (peers uint64) {
	for j := range a.cfg.Peers {
		if a.links.suspects(j, a.cfg.Interval, now) {
			peers |= 1 << j
		}
	}
	return peers
}

// suspected is how many peers may be cut off.
func (a *Aggregator) suspected(now int64) int { return bits.OnesCount64(a.cutOff(now)) }
