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

// Tick drops what is retired, and tells peers again what they would not have.
// Call it about once a second.
func (a *Aggregator) Tick(now time.Time) {
	a.turnClock(now)
	t := a.clock.At(now)
	for _, l := range a.lanes {
		for left := l.held(stretch); left > 0; left -= strides {
			a.sweep(l, min(left, strides), t)
		}
		for j := range l.peers {
			l.tellAgain(j, t)
		}
	}
}

// held is the number of keys in the lane, at most as many as asked for.
func (l *lane) held(most int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(len(l.order), most)
}

// sweep looks at the next n keys of a lane.
func (a *Aggregator) sweep(l *lane, n int, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		if l.hand >= len(l.order) {
			l.hand = 0
		}
		if len(l.order) == 0 {
			return
		}
		key := l.order[l.hand]
		c := l.counters[key]
		if !l.retire(c, retirement(c.shape, now), now) {
			l.drop(l.hand)
			continue // another key has its place
		}
		if l.remember(c, now) {
			l.again(key, c)
		}
		if c.crossed != 0 {
			l.crossing(c, now) // arms thresholds again as slices leave
		}
		l.hand++
	}
}

// drop forgets the key at a place in order.
func (l *lane) drop(at int) {
	delete(l.counters, l.order[at])
	last := len(l.order) - 1
	l.order[at] = l.order[last]
	l.order = l.order[:last]
	if cap(l.order) > 4*len(l.order)+strides {
		l.order = append(make([]deltasync.Key, 0, 2*len(l.order)), l.order...)
	}
}
