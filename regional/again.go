package regional

import (
	"maps"
	"math"
	"slices"

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

// tellAgain exports in full what stands on a peer's list, as far as there is
// room in its outbox.
func (a *Aggregator) tellAgain(l *lane, j int, now int64) {
	p := &l.peers[j]
	for len(p.again) > 0 && !p.outbox.Full() {
		key := p.again[0]
		p.again = p.again[1:]
		c := l.counters[key]
		if c == nil || c.again&(1<<j) == 0 {
			continue // retired meanwhile
		}
		c.again &^= 1 << j
		l.tellAll(p, key, c, now)
	}
	if len(p.again) == 0 {
		p.again = nil // and the memory that it slid through
	}
}

// tellAll exports the region's whole subtotal of a key to one peer, and says
// whether there was room.
func (l *lane) tellAll(p *peer, key deltasync.Key, c *counter, now int64) bool {
	if c.shape.Regional {
		return true
	}
	d := l.delta(key, c, math.MinInt64, deltasync.FlagRefresh, now)
	return len(d.Cells) == 0 && d.Carry.Zero() || p.outbox.Put(c.shape, 0, d)
}

// learnEpoch sends all live subtotals to a peer whose store, or aggregator, is
// one that we do not know: it may lack them.
func (a *Aggregator) learnEpoch(l *lane, j int, epoch uint64, now int64) {
	p := &l.peers[j]
	if slices.Contains(p.epochs, epoch) {
		return
	}
	first := len(p.epochs) == 0
	const known = 16
	p.epochs = append(p.epochs, epoch)
	if len(p.epochs) > known {
		p.epochs = slices.Delete(p.epochs, 0, 1)
	}
	if first {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(l.counters)) { // the same order every run
		if c := l.counters[key]; p.outbox.Full() || !l.tellAll(p, key, c, now) {
			a.tellLater(l, j, key, c)
		}
	}
}
