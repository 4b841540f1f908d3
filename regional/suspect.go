package regional

import (
	"math/bits"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// A region that is cut off from another goes on with its part of each limit, and so
// does the other with the rest: see frozen.go. Here is who is cut off, and how long news
// is on its way where nobody is.

// between is how long it takes another region to hear from this one, on average of
// those that are not cut off: as was measured, and longer where answers are overdue.
func (a *Aggregator) between(now int64) time.Duration {
	a.links.mu.Lock()
	defer a.links.mu.Unlock()
	sum, known := int64(0), int64(0)
	for j, way := range a.links.ways {
		if way == 0 || a.links.overdue(j, now) > int64(2*a.cfg.Interval+suspicion) {
			continue
		}
		sum, known = sum+way+max(0, a.links.overdue(j, now)), known+1
	}
	if known == 0 {
		return 0
	}
	return time.Duration(sum / known)
}

// overdue is how long ago a peer's answer should have come; below zero where it need
// not have. l.mu is held.
func (l *links) overdue(j int, now int64) int64 {
	since := l.waiting[j].Load()
	if since == 0 {
		return -1
	}
	return now - since - l.ways[j]*26/10
}

// unseen is how long after they are told the other regions can have seen counts.
func (a *Aggregator) unseen(now int64) int64 {
	return int64(a.between(now)*11/10) + int64(a.cfg.Interval/2)
}

// sent notes that a frame was sent to a peer.
func (l *links) sent(j int, now int64) {
	if l.waiting[j].Load() == 0 {
		l.waiting[j].Store(now)
	}
}

// heard notes that a peer spoke. One that was suspected has yet to tell what it
// counted meanwhile.
func (l *links) heard(j int, interval time.Duration, now int64) {
	if l.waiting[j].Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.overdue(j, now) > int64(2*interval+suspicion) {
		l.back[j] = now + int64(2*interval) + l.ways[j]*26/10
	}
	l.waiting[j].Store(0)
}

// suspects says that a peer may be cut off: it owes an answer for longer than one
// takes, and has said nothing since. Both sides go on with their parts of limits then.
func (l *links) suspects(j int, interval time.Duration, now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ways[j] == 0 {
		return false // it was never heard: who is not there yet has no part
	}
	return l.overdue(j, now) > int64(2*interval+suspicion) || now < l.back[j] && l.back[j]-now < int64(time.Minute)
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
