package regional

import (
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// What other regions tell of a key without a place here passes through: its counter is a guest
// until it is written to the store, from which whoever asks is answered, and pushed to
// the edges if it uses much of its limit. Else a region with more keys in use than
// places would never hear what others did of most of them: each would have to find a
// place among those that are about to be written, and keep it until it is.
//
// Guests have a part of what a lane may take, and push out what is worth least there
// rather than each other. For whom there is no room the others are asked again. A part of
// the store that goes away leaves its guests behind: they make way for others.

const guestShare = 4 // the part of a lane's room

// find is the counter of a key, be it a guest.
func (l *lane) find(key deltasync.Key) *counter {
	if c := l.counters[key]; c != nil {
		return c
	}
	return l.guests[key]
}

// meet is a counter for what a peer told of a key that has none here, as it was only
// asked about, or made room for others meanwhile: a guest, where keys compete for
// places. nil: it told nothing, or there is no room.
func (a *Aggregator) meet(l *lane, peer int, asked *deltasync.Delta, shape deltasync.Shape, t *deltasync.Totals, now int64) *counter {
	key := asked.Key
	if len(t.Peers)+len(t.Others) == 0 && t.Carry.Zero() && t.Until == 0 && !more(t.Own, asked.Cells) {
		return nil
	}
	if c := l.guests[key]; c != nil {
		return c
	}
	c := &counter{fresh: true}
	c.reshape(shape)
	switch {
	case !l.crowded():
		l.enter(key, c)
	case a.store.lost(key, c): // it could not leave
		return nil
	case l.guestsFull():
		a.stats.unmet.Add(1)
		l.room.unmet = true
		// The frame that asked has left the room that this takes.
		l.peers[peer].outbox.Put(shape, 0, deltasync.Delta{Key: key, Flags: deltasync.FlagTouch | asked.Flags&deltasync.FlagOwn})
		return nil
	default:
		c.guest = true
		if l.guests == nil {
			l.guests = map[deltasync.Key]*counter{}
		}
		l.guests[key] = c
		l.weigh(c)
		l.again(key, c)
		a.relieve(l, now)
	}
	return c
}

// more says that some cell is above what was told of its slice: of each new key a home
// holds what it has just been told.
func more(cells, told []crdt.Cell) bool {
	for _, cell := range cells {
		for len(told) > 0 && told[0].Slice < cell.Slice {
			told = told[1:]
		}
		has := crdt.Cell{Slice: cell.Slice}
		if len(told) > 0 && told[0].Slice == cell.Slice {
			has = told[0]
		}
		if has.Join(cell) != has {
			return true
		}
	}
	return false
}

// guestsFull says that there is no room for one more: they have their part, or others
// cannot make room as yet, and would have to go unstored.
func (l *lane) guestsFull() bool {
	return l.size()+freshBytes > l.room.bytes/64*65 || len(l.guests) >= max(1, l.room.keys/guestShare) || l.room.guests+freshBytes > l.room.bytes/guestShare
}

// seeOff lets a guest go that is stored and pushed. One that still owes the store
// something stays, though it may stand on no list: it is about to be written.
func (l *lane) seeOff(key deltasync.Key, c *counter) {
	owes := c.owes() || c.abroad != nil && c.abroad.unkept != nothing
	if c.guest && !owes && !c.retried && c.writing == 0 && !c.pushed {
		l.dismiss(key, c)
	}
}

// seeAllOff lets guests go that wait for a push which is somebody else's to make.
func (l *lane) seeAllOff() {
	for key, c := range l.guests {
		c.pushed = false
		l.seeOff(key, c)
	}
}

// sendAway lets guests go that wait for parts of the store which are away, if others
// found no room since it was last asked: those may be of parts that answer. What homes
// told of who goes they still have. A push that is due comes first, for it may be of a
// penalty.
func (l *lane) sendAway(away partSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.room.unmet {
		return
	}
	l.room.unmet = false
	if away == nil {
		return
	}
	gone := false
	for key, c := range l.guests {
		if !c.pushed && c.writing == 0 && away.has(l.retry.store.of(key, c)) {
			l.dismiss(key, c)
			gone = true
		}
	}
	if gone {
		l.clearRetries()
	}
}

// dismiss forgets a guest.
func (l *lane) dismiss(key deltasync.Key, c *counter) {
	l.unload(c)
	delete(l.guests, key)
}

// settle gives a guest a place.
func (l *lane) settle(key deltasync.Key, c *counter) {
	delete(l.guests, key)
	l.room.guests -= int(c.weight)
	c.guest = false
}
