package regional

import (
	"time"

	"github.com/spillgate/spillgate/sync"
)

const (
	// stretch is how many keys of a lane a Tick looks at: with more than that
	// it comes around in several. All would take it a second where a lane is
	// full, and what is retired has time.
	stretch = 1 << 14
	// strides is how many of them it looks at before it lets others at the
	// lane: edges wait for their answers.
	strides = 512
)

// Tick drops what is retired, tells peers again what they would not have, and closes
// slices that are over.
// Call it about once a second.
func (a *Aggregator) Tick(now time.Time) {
	a.turnClock(now)
	t := a.clock.At(now)
	a.pace.turn(t, a.cfg.Interval)
	a.spoken.awake(t)
	for i, l := range a.lanes {
		a.tellTruths(i, t)
		for left := l.held(stretch); left > 0; left -= strides {
			a.sweep(l, min(left, strides), t, !a.Serves(i))
		}
		for j := range l.peers {
			l.tellAgain(j, t)
			a.reread(i, j, t)
		}
		l.forgetSnapshot(t)
		l.forgetTerms(t)
	}
	a.tellWatch(now)
	a.decided.turn(now)
}

// held is the number of keys in the lane, at most as many as asked for.
func (l *lane) held(most int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(len(l.order), most)
}

// sweep looks at the next n keys of a lane. Of one that is another's now it
// forgets what is stored and told.
func (a *Aggregator) sweep(l *lane, n int, now int64, given bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rates map[uint64]known // of which something is noted
	if known := a.tallies.rates.Load(); known != nil && !given {
		rates = *known
	}
	given = given && l.told()
	l.room.all.enough = little
	a.relieve(l, now)
	for range n {
		if l.hand >= len(l.order) {
			l.hand = 0
		}
		if len(l.order) == 0 {
			return
		}
		key := l.order[l.hand]
		c := l.counters[key]
		holds := l.retire(c, retirement(c.shape, now), now) || c.contest != nil && c.contest.keeps(now, len(l.contests))
		if !holds || given && c.spare() {
			l.drop(l.hand)
			continue // another key has its place
		}
		if l.remember(c, now) {
			l.again(key, c)
		}
		l.arm(c, now)
		l.watchAgain(key, c, now)
		if rates != nil {
			a.notePassed(l, c, rates, now)
		}
		c.forgetRivals(now)
		l.weigh(c)
		l.hand++
	}
}

// told says that all that was taken in the lane is told to the other regions.
func (l *lane) told() bool {
	if len(l.hot) > 0 {
		return false
	}
	for j := range l.peers {
		if p := &l.peers[j]; p.unstored || p.outbox.Held() > 0 || len(p.again) > 0 {
			return false
		}
	}
	return true
}

// spare says that the store has all of the key: whoever is asked about it finds
// it there. Of a bucket that is not all, for its level is stored now and then.
func (c *counter) spare() bool {
	return c.past == nil && !c.unwritten() && c.writing == 0 && c.again == 0
}

// drop forgets the key at a place in order.
func (l *lane) drop(at int) {
	c := l.counters[l.order[at]]
	l.unload(c)
	l.strike(c)
	delete(l.counters, l.order[at])
	last := len(l.order) - 1
	l.order[at] = l.order[last]
	l.order = l.order[:last]
	if cap(l.order) > 4*len(l.order)+strides {
		l.order = append(make([]deltasync.Key, 0, 2*len(l.order)), l.order...)
	}
}
