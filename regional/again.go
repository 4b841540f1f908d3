package regional

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// tellLater puts a key on the list of those that a peer is told in full with a
// later Tick: it would not have them, or they found no room in the outbox. Each
// stands there once; of keys that retired the list is cleared before it is twice
// as long as there are keys.
func (a *Aggregator) tellLater(l *lane, j int, key deltasync.Key, c *counter) {
	p := &l.peers[j]
	if c.again&(1<<j) != 0 {
		return
	}
	a.stats.toldLater.Add(1)
	if len(p.again) > 2*len(l.counters) {
		l.clearAgain(j)
	}
	c.again |= 1 << j
	p.again = append(p.again, key)
}

// clearAgain drops the places of keys that retired from a peer's list, and the
// second ones of those that came back since.
func (l *lane) clearAgain(j int) {
	p := &l.peers[j]
	p.again = slices.DeleteFunc(p.again, func(key deltasync.Key) bool {
		c := l.counters[key]
		if c == nil || c.again&(1<<j) == 0 {
			return true
		}
		c.again &^= 1 << j
		return false
	})
	for _, key := range p.again {
		l.counters[key].again |= 1 << j
	}
}

// round is what a peer was told again at one time, and what became of it.
type round struct {
	at            int64 // when it was told
	told, refused int   // deltas, and those that the peer would not have this time either
	fails         int   // rounds in a row, before this one, that came back for the most part
}

// mostFailed is the number of failed rounds after which the next ones come no
// later: a peer is left alone for 16 seconds at most.
const mostFailed = 4

// failed is the number of rounds in a row that came back, this one included.
// Of a peer that takes the smaller part each time nothing is gained by hurry.
func (r *round) failed() int {
	if r.told == 0 || 2*r.refused < r.told {
		return 0
	}
	return min(r.fails+1, mostFailed)
}

// rests says that it is too early for the next round.
func (p *peer) rests(now int64) bool {
	r := &p.round
	failed := r.failed()
	if p.unstored && r.at != now { // not between the stretches of a round
		failed = mostFailed
	}
	until := r.at + int64(time.Second)<<failed
	return failed > 0 && now < until && now >= r.at // earlier: a clock was set back
}

// tellStretch is how many keys are told again under one lock: frames that wait
// for it shall not notice.
const tellStretch = 256

// mostRefused is how many keys are remembered that a peer refused, and that were
// forgotten here before it did.
const mostRefused = 64

// forgetsTold notes that the store alone has what a peer was told of a key and would not
// have. As many as there is room to remember are read again like the listed ones.
func (l *lane) forgetsTold(j int, key deltasync.Key, shape deltasync.Shape) {
	l.forgot |= 1 << j
	if p := &l.peers[j]; len(p.refused) < mostRefused && !l.heavy() {
		p.refused = append(p.refused, heir{key: key, shape: shape})
	}
}

// takeRefused takes what is remembered of such keys.
func (l *lane) takeRefused() (keys []heir) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for j := range l.peers {
		keys = append(keys, l.peers[j].refused...)
		l.peers[j].refused = nil
	}
	return keys
}

// reread has listed keys read from the store where some were forgotten here that a
// peer was yet to be told of, once it answers and has heard of those that were not; as
// seldom as those are told while it refuses them.
func (a *Aggregator) reread(lane, j int, now int64) {
	l := a.lanes[lane]
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.peers[j]
	if l.forgot&(1<<j) != 0 && p.fails == 0 && len(p.again) == 0 && p.outbox.InFlight() == 0 && !p.rests(now) {
		l.forgot &^= 1 << j
		p.round = round{at: now, fails: p.round.failed()}
		a.legacy.again.Or(1 << lane)
	}
}

// tellAgain exports in full what stands on a peer's list, as far as half of its
// outbox goes: what edges count meanwhile comes first. A peer that goes on
// refusing is told less and less often.
func (l *lane) tellAgain(j int, now int64) {
	for l.tellSome(j, now) {
	}
}

// tellSome is a stretch of tellAgain, and says whether there is more to do.
func (l *lane) tellSome(j int, now int64) (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.peers[j]
	if len(p.again) == 0 || p.outbox.HalfFull() || p.rests(now) {
		return false
	}
	if p.round.at != now {
		p.round = round{at: now, fails: p.round.failed()} // of nothing, if all that was refused has retired
	}
	for n := 0; n < tellStretch && len(p.again) > 0 && !p.outbox.HalfFull(); n++ {
		key := p.again[0]
		p.again = p.again[1:]
		c := l.counters[key]
		if c == nil || c.again&(1<<j) == 0 {
			continue // retired meanwhile
		}
		c.again &^= 1 << j
		l.tellAll(p, key, c, now)
		p.round.told++
	}
	if len(p.again) == 0 {
		p.again = nil // and the memory that it slid through
	}
	return len(p.again) > 0
}

// tellAll exports the region's whole subtotal of a key to one peer, and says
// whether there was room.
func (l *lane) tellAll(p *peer, key deltasync.Key, c *counter, now int64) bool {
	if c.shape.Regional {
		return true
	}
	d := l.delta(key, c, math.MinInt64, deltasync.FlagRefresh, now)
	return !d.Tells() || p.outbox.Put(c.shape, 0, d)
}

// learnEpoch sends all live subtotals of a lane to a peer whose aggregator, or
// store, is one that we do not know there: it may lack them. A new aggregator
// over the store of the one before does not, if that one stored what it took.
func (a *Aggregator) learnEpoch(l *lane, j int, down *deltasync.Down, now int64) {
	p, epoch := &l.peers[j], down.StoreEpoch
	same := down.Store != 0 && down.Store == p.store && !p.unstored
	p.store = down.Store
	if n := len(p.epochs); n > 0 && p.epochs[n-1] != epoch {
		a.tellDemands(l, j, now)
	}
	if at := slices.Index(p.epochs, epoch); at >= 0 { // the latest stands last
		copy(p.epochs[at:], p.epochs[at+1:])
		p.epochs[len(p.epochs)-1] = epoch
		return
	}
	first := len(p.epochs) == 0
	p.epochs = append(p.epochs, epoch)
	if len(p.epochs) > deltasync.KnownEpochs {
		p.epochs = slices.Delete(p.epochs, 0, 1)
	}
	if first {
		return
	}
	p.round = round{} // whoever refused is gone
	if same {
		return
	}
	l.forgot |= 1 << j                                         // what is in the store alone
	for _, key := range slices.Sorted(maps.Keys(l.counters)) { // the same order every run
		if !a.homes.targets(key).has(j) && l.counters[key].crossed == 0 {
			continue // what it is told of that one is no more than a warning
		}
		if c := l.counters[key]; p.outbox.Full() || !l.tellAll(p, key, c, now) {
			a.tellLater(l, j, key, c)
		}
	}
}
