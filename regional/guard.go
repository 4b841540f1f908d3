package regional

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// Lives and incarnations are the sender's to invent, each with an entry of its
// own. An edge has a new life of a key when it forgot it under a flood of keys,
// and a new incarnation with each start: in a calendar month, several a day of
// each of a hundred edges.
const (
	maxLives   = 1024 // entries of a node to a key
	maxEntries = 8192 // entries of a key: half a megabyte or more
	// popShare is how many times what is left of them a PoP may have, so that some
	// always is: one that invents lives has three quarters, two three sevenths each.
	popShare = 3
)

// admits says whether there is room for a replica's entry in a counter, and counts why
// there is none: the key has all it may have, or the lane or a PoP there takes more than
// it may.
func (a *Aggregator) admits(l *lane, c *counter, source Source, replica crdt.Replica, cells []crdt.Cell, oldest crdt.Slice, now int64) bool {
	var at crdt.Place
	switch {
	case !c.admits(&at, source, replica):
		a.stats.crowded.Add(1)
		return false
	case l.heavy() && c.of(source).OfAt(&at, replica) == nil:
		a.stats.heavy.Add(1)
		return false
	}
	return source != FromEdge || a.hasRoom(l, c, replica, cells, oldest, now)
}

// admits says whether there is room for a replica's entry.
func (c *counter) admits(at *crdt.Place, source Source, replica crdt.Replica) bool {
	entries := c.of(source).Entries()
	if len(entries) < maxLives || c.of(source).OfAt(at, replica) != nil {
		return true
	}
	pop := deltasync.PopOf(replica.Node)
	return len(entriesOf(entries, replica.Node)) < maxLives && len(entriesIn(entries, pop)) < popShare*(maxEntries-len(entries))
}

// entriesOf are a node's entries: they stand next to each other.
func entriesOf(entries []crdt.Entry, node uint64) []crdt.Entry {
	from, to := firstOf(entries, node), len(entries)
	if node < math.MaxUint64 {
		to = firstOf(entries, node+1)
	}
	return entries[from:to]
}

// entriesIn are those of a PoP's edges, which do so, too.
func entriesIn(entries []crdt.Entry, pop uint64) []crdt.Entry {
	from, to := firstOf(entries, pop), len(entries)
	if last := pop | ^deltasync.PopOf(math.MaxUint64); last < math.MaxUint64 {
		to = firstOf(entries, last+1)
	}
	return entries[from:to]
}

// firstOf is where the entries of nodes from one on begin.
func firstOf(entries []crdt.Entry, node uint64) int {
	at, _ := slices.BinarySearchFunc(entries, node, func(e crdt.Entry, node uint64) int {
		return cmp.Or(cmp.Compare(e.Replica.Node, node), 1)
	})
	return at
}

// open is the counter of a key, a new one if need be, which may matter more than
// others, for a PoP's edge or nobody's; nil: there is no room.
func (a *Aggregator) open(l *lane, key deltasync.Key, shape deltasync.Shape, pop uint64, matters bool, now int64) *counter {
	c := l.counters[key]
	if c != nil {
		return c
	}
	if !a.makeRoom(l, pop, matters, now) {
		return nil
	}
	if c = l.guests[key]; c != nil {
		l.settle(key, c)
		l.enter(key, c)
		a.changed(l, key, c, now) // what was to be pushed once it was stored
		return c
	}
	c = &counter{shape: shape, fresh: true, pop: pop}
	l.enter(key, c)
	return c
}

// question is a key that is not known here and that somebody only asks about.
// It gets no record unless the store knows it and there is room: by asking alone,
// anybody could fill the memory, or have others forgotten.
type question struct {
	key   deltasync.Key
	shape deltasync.Shape
}

// visitor is a counter that has no place in the lane.
func (l *lane) visitor(shape deltasync.Shape, it *Item, now int64) *counter {
	c := &counter{}
	c.reshape(shape)
	oldest := retirement(shape, now)
	for _, v := range it.Vectors {
		c.join(v.Source, v.Replica, v.Cells, oldest, now)
	}
	l.hearStored(c, it, now)
	c.penalty.join(it.Until, now)
	return c
}

// ask reads such keys from the store, but for those of parts that are away. On an
// error it returns the parts that failed. Nothing is put off: who asked in vain
// asks again.
func (a *Aggregator) ask(ctx context.Context, l *lane, asked []question, m *merged, now int64, away partSet) (failed partSet, err error) {
	items := make([]Item, 0, len(asked))
	shapes := make([]deltasync.Shape, 0, len(asked))
	late := ctx.Err() != nil // see writeBatch
	for _, q := range asked {
		it := stored(q.shape)
		it.Key = q.key
		if late || away.has(a.store.part(&it)) {
			err = errAway
			continue
		}
		items, shapes = append(items, it), append(shapes, q.shape)
	}
	if len(items) == 0 {
		return nil, err
	}
	start := time.Now()
	answer, lerr := a.store.Load(ctx, items)
	a.stats.stored(time.Since(start), lerr)
	if _, some := errors.AsType[*PartsError](lerr); len(answer) != len(items) && (lerr == nil || some) {
		lerr = fmt.Errorf("%w: %d answers to %d keys", ErrStore, len(answer), len(items))
	}
	if lerr != nil {
		failed, err = a.store.failed(lerr), lerr
		a.down(failed, lerr)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range items {
		if failed != nil && failed.has(a.store.part(&items[i])) || !answer[i].knows() {
			continue
		}
		if l.counters[items[i].Key] == nil && (l.crowded() || l.overdrawn(m.pop, freshBytes)) {
			m.guest(items[i].Key, l.visitor(shapes[i], &answer[i], now))
			continue
		}
		if c := a.open(l, items[i].Key, shapes[i], m.pop, false, now); c != nil {
			if c.shape.Width != shapes[i].Width {
				continue
			}
			c.reshape(shapes[i])
			a.joinStored(l, items[i].Key, &answer[i], m.by, now)
		}
	}
	return failed, err
}

// knows says that a store has something of the key.
func (i *Item) knows() bool {
	return len(i.Vectors) > 0 || len(i.Carries) > 0 || !i.Rest.Zero() || i.Until != 0
}
