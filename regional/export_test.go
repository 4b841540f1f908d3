package regional

import (
	"time"

	"github.com/spillgate/spillgate/sync"
)

// ShrinkOutboxes gives a new aggregator outboxes of so many deltas, as tests
// that fill those of 65,536 take seconds.
func (a *Aggregator) ShrinkOutboxes(deltas int) {
	for _, l := range a.lanes {
		for j := range l.peers {
			l.peers[j].outbox = deltasync.NewOutbox(deltasync.OutboxConfig{MaxDeltas: deltas})
		}
	}
}

// Waiting is how many deltas wait for other regions.
func (a *Aggregator) Waiting() (deltas int) {
	for _, l := range a.lanes {
		for j := range l.peers {
			deltas += l.peers[j].outbox.Held()
		}
	}
	return deltas
}

// Guests is how many keys without a place wait for the store, or for a push.
func (a *Aggregator) Guests() (n int) {
	for _, l := range a.lanes {
		n += len(l.guests)
	}
	return n
}

// MostRefused is how many keys of a lane and peer are remembered that were refused and
// forgotten, and Refused how many are.
const MostRefused = mostRefused

func (a *Aggregator) Refused() (n int) {
	for _, l := range a.lanes {
		for j := range l.peers {
			n += len(l.peers[j].refused)
		}
	}
	return n
}

// Refuse has a peer refuse keys that were forgotten here.
func (a *Aggregator) Refuse(keys []deltasync.Key, shape deltasync.Shape) {
	for _, key := range keys {
		lane := key.Lane(len(a.lanes))
		l := a.lanes[lane]
		l.mu.Lock()
		l.peers[0].refused = append(l.peers[0].refused, heir{key: key, shape: shape})
		l.mu.Unlock()
		a.legacy.again.Or(1 << lane)
	}
}

// Paid is what PoPs have of the lanes, as it is kept from change to change, and Due as it
// is worked out anew.
func (a *Aggregator) Paid() (paid, due map[uint64]int) {
	paid, due = map[uint64]int{}, map[uint64]int{}
	for _, l := range a.lanes {
		for pop, p := range l.pops {
			paid[pop] += p.bytes
		}
		for _, counters := range []map[deltasync.Key]*counter{l.counters, l.guests} {
			for _, c := range counters {
				switch {
				case c.parts != nil:
					for _, part := range *c.parts {
						due[part.pop] += part.bytes
					}
				case c.soleOf() != nobody:
					due[c.soleOf()] += int(c.paid)
				}
			}
		}
	}
	return paid, due
}

// MeetPeer notes that another region answered after so long.
func (a *Aggregator) MeetPeer(j int, took time.Duration, now time.Time) {
	a.heardAfter(j, int64(took))
	a.links.answered(j, now.UnixNano(), a.cfg.Interval, now.UnixNano())
	a.spoken.heard(j, now.UnixNano())
}

// AskPeer notes that a frame was sent to another region.
func (a *Aggregator) AskPeer(j int, now time.Time) { a.links.sent(j, now.UnixNano()) }

// Awaits says that a region which is known to be there has yet to answer, and CutOff which
// of them may be cut off.
func (a *Aggregator) Awaits(now time.Time) bool { return a.awaits(now.UnixNano()) }

func (a *Aggregator) CutOff(now time.Time) uint64 { return a.cutOff(now.UnixNano()) }

// NoteOf is what a key of a shape is listed with from an instant on, at which peers that
// are cut off have such parts of its limit.
func (a *Aggregator) NoteOf(shape deltasync.Shape, at time.Time, parts ...float64) string {
	c := &counter{shape: shape, contest: &contest{regions: make([]regionDemand, len(parts)), changed: at.UnixNano()}}
	for j, part := range parts {
		c.contest.regions[j].frozen = part
	}
	shaped, _ := shape.AppendBinary(nil)
	return string(append(a.bequeath(nil, c), shaped...))
}

// Bequest is what was noted that a peer has of a key.
func (a *Aggregator) Bequest(key deltasync.Key, j int) float64 {
	l := a.lanes[key.Lane(len(a.lanes))]
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.counters[key]; c != nil && c.contest != nil {
		return c.contest.regions[j].bequest
	}
	return 0
}
