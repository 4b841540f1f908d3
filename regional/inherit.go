package regional

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// Who comes to own a lane has never heard of most of its keys. Those near their
// limit are listed in the store: he reads them there, and tells the other regions
// what whoever owned the lane before may have stored and not told them, without
// waiting until some edge touches the key. So does an owner when another region
// lost what it was told: what was forgotten here to make room is in the store
// alone.

// warm is the part of its limit, in percent, from which on a key is listed.
const warm = 25

// warms says that a key is to be listed: it is near its limit, or kept out.
func (l *lane) warms(c *counter, now int64) bool {
	limit := c.shape.Limit
	return limit > 0 && l.used(c, now) >= percent(limit, warm) || c.penalty.at(now) != 0 || limit > 0 && c.bequeaths()
}

// note is what the store lists a key with: its shape, by which anybody can load
// it. Empty: it is not to be listed.
func (l *lane) note(c *counter, now int64) string {
	if !l.warms(c, now) {
		return ""
	}
	var room [MaxNote]byte
	note, err := c.shape.AppendBinary(room[:0])
	if err != nil || len(note) > MaxNote { // our own bug: it came in a frame
		return ""
	}
	return string(note)
}

// legacy is what is still to be read of lanes that were gained.
type legacy struct {
	busy atomic.Bool // somebody reads, who alone may touch pass
	pass

	unread atomic.Uint64 // laneSet: nobody should be told yet what is hot in them
	lacks  atomic.Uint64 // laneSet: not all that is listed of them was read yet
	again  atomic.Uint64 // laneSet: to be read once more, for another region
}

// pass is one way through the store's list.
type pass struct {
	lanes laneSet
	from  int    // the page of the store's list that is next
	last  bool   // there is none
	keys  []heir // of the page before, not read yet
	extra []heir // of those to be read, the ones that no list may have: see takeRefused
	err   error  // the first of this pass
	rest  int64  // nothing is read before this instant
	found int    // keys that were listed, in this pass
}

// heir is a listed key.
type heir struct {
	key   deltasync.Key
	shape deltasync.Shape
	parts []float64 // see bequest.go
	since int64     // they are so
	note  string    // that has them
}

const (
	// inheritAtOnce is how many keys one Inherit reads: it takes a part of a
	// second, and the next write of what the store missed comes after it.
	inheritAtOnce = 32 * storeBatch
	// inheritAgain is how long after a part of the store did not answer all is
	// read once more.
	inheritAgain = time.Second
)

// Inherit reads from the store the listed keys of lanes that this aggregator
// gained, some thousands a call, until it has all. Call it after Sync; it waits for
// the store, for Config.StoreTimeout a batch. An error says that some could not be
// read: a later call tries again.
func (a *Aggregator) Inherit(ctx context.Context, now time.Time) error {
	g := &a.legacy
	if !g.busy.CompareAndSwap(false, true) {
		return nil
	}
	defer g.busy.Store(false)
	t := a.clock.At(now)
	if gained := a.takeGained() | laneSet(g.again.Swap(0)); gained != 0 {
		if g.err != nil { // some of what this pass has read was not answered
			g.keys = slices.Clone(g.extra)
		}
		g.pass = pass{lanes: g.lanes | gained, keys: g.keys, extra: g.extra, rest: t}
		for lane, l := range a.lanes {
			if gained.has(lane) && len(g.extra) < mostRefused*len(a.lanes) {
				refused := l.takeRefused()
				g.keys, g.extra = append(g.keys, refused...), append(g.extra, refused...)
			}
		}
	}
	if g.lanes == 0 || t < g.rest && g.rest-t <= int64(inheritAgain) {
		return nil
	}
	for left := inheritAtOnce; left > 0; left -= storeBatch {
		for len(g.keys) == 0 && !g.last {
			if err := a.listLegacy(ctx, t); err != nil {
				g.err = cmp.Or(g.err, err)
			}
		}
		if len(g.keys) == 0 {
			break
		}
		if err := a.readLegacy(ctx, t); err != nil {
			g.err = cmp.Or(g.err, err)
		}
	}
	if len(g.keys) > 0 || !g.last {
		return nil
	}
	a.stats.inherited.Add(uint64(g.found))
	a.cfg.Logger.Debug("lanes inherited", "lanes", g.lanes.len(), "keys", g.found, "err", g.err)
	err := g.err
	g.unread.Store(0) // or it would be told nothing for as long as the store is away
	extra := g.extra
	if g.pass = (pass{lanes: g.lanes, rest: t + int64(inheritAgain)}); err == nil {
		g.lacks.And(^uint64(g.lanes))
		g.lanes = 0
		return nil
	}
	g.keys, g.extra = slices.Clone(extra), extra
	return fmt.Errorf("read listed keys: %w", err)
}

// inherits says that a lane was gained and most of its hot keys may not be known
// yet.
func (a *Aggregator) inherits(lane int) bool {
	a.share.mu.Lock()
	defer a.share.mu.Unlock()
	return (a.share.gained | laneSet(a.legacy.unread.Load())).has(lane)
}

// listed says that all was read that the store lists of a lane, if it was gained.
func (a *Aggregator) listed(lane int) bool {
	a.share.mu.Lock()
	defer a.share.mu.Unlock()
	return !(a.share.gained | laneSet(a.legacy.lacks.Load())).has(lane)
}

// listLegacy reads the next page of the list.
func (a *Aggregator) listLegacy(ctx context.Context, now int64) error {
	g := &a.legacy
	if int(a.store.away.Load()) == len(a.store.known) {
		g.last = true
		return errAway
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StoreTimeout)
	defer cancel()
	page, next, err := a.store.Hot(ctx, g.from)
	g.from, g.last = next, next <= g.from // 0, or it would never end
	for _, n := range page {
		var shape deltasync.Shape
		lane := n.Key.Lane(len(a.lanes))
		if n.Key == 0 || !g.lanes.has(lane) || !a.Owns(lane) || shape.UnmarshalBinary([]byte(n.Note)) != nil {
			continue
		}
		if it := stored(shape); it.Check() == nil {
			parts, since := a.bequest(n.Note, now)
			g.keys = append(g.keys, heir{n.Key, shape, parts, since, n.Note})
		}
	}
	slices.SortStableFunc(g.keys, func(x, y heir) int {
		return cmp.Or(cmp.Compare(x.key.Lane(len(a.lanes)), y.key.Lane(len(a.lanes))), cmp.Compare(x.key, y.key), cmp.Compare(x.since, y.since)) // the latest has the last word
	})
	for i := range g.keys {
		if i+1 < len(g.keys) && g.keys[i].key == g.keys[i+1].key {
			g.keys[i].parts = nil
		} else {
			g.found++
		}
	}
	return err
}

// readLegacy reads a batch of keys of one lane, and what the store has besides of
// those that are known.
func (a *Aggregator) readLegacy(ctx context.Context, now int64) error {
	g := &a.legacy
	lane := g.keys[0].key.Lane(len(a.lanes))
	l := a.lanes[lane]
	var known []told
	var unknown []question
	var heirs []heir
	l.mu.Lock()
	for len(known)+len(unknown) < storeBatch && len(g.keys) > 0 && g.keys[0].key.Lane(len(a.lanes)) == lane {
		h := g.keys[0]
		g.keys, heirs = g.keys[1:], append(heirs, h)
		c := l.counters[h.key]
		if c == nil {
			unknown = append(unknown, question{h.key, h.shape})
			continue
		}
		known = append(known, told{key: h.key})
		if c.unasked { // another region named it before it was read here
			c.unasked = false
			a.exportRead(l, h.key, c, now)
		}
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StoreTimeout)
	defer cancel()
	away := a.store.down()
	_, err := a.writeBatch(ctx, l, known, now, away)
	var m merged
	_, aerr := a.ask(ctx, l, unknown, &m, now, away)
	a.exportGuests(l, &m, now)
	a.inheritParts(l, heirs, now)
	return errors.Join(err, aerr)
}

// exportGuests tells the other regions of keys that were read and have no place.
func (a *Aggregator) exportGuests(l *lane, m *merged, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(m.guests)) { // the same order every run
		c := m.guests[key]
		a.exportRead(l, key, c, now)
		l.forgot |= c.again // there was no room in an outbox
	}
}

// exportRead tells the other regions all that is known of a key which is listed.
func (a *Aggregator) exportRead(l *lane, key deltasync.Key, c *counter, now int64) {
	to := a.concerned(key, c, now)
	a.exportTo(l, key, c, math.MinInt64, deltasync.FlagRefresh, to, now)
	for j := range to.each {
		l.peers[j].round.told++
	}
}

// concerned are those whom all of a key is told: its homes, and everybody of one that is
// kept out.
func (a *Aggregator) concerned(key deltasync.Key, c *counter, now int64) peerSet {
	if c.penalty.at(now) != 0 {
		return a.homes.all
	}
	return a.homes.targets(key)
}
