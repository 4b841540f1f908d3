package regional

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// errAway says that counts wait for a part of the store that does not answer.
var errAway = fmt.Errorf("%w: a part of it did not answer before", ErrStore)

// Sync reads, and notes, what the store knows of the other regions, writes what it
// missed, and, when an epoch says that a part of it may have lost counts, everything
// that is live there. Call it every Interval; it waits for the store, for Config.StoreTimeout a batch. What it wrote stays
// written if ctx ends or the store fails on the way; the next call goes on from
// there. A part that fails holds up no other.
func (a *Aggregator) Sync(ctx context.Context, now time.Time) error {
	t := a.clock.At(now)
	poll, cancel := context.WithTimeout(ctx, a.cfg.StoreTimeout)
	epochs, err := a.store.epochs(poll)
	cancel()
	away := a.store.failed(err)
	if err != nil {
		a.down(away, err)
		err = fmt.Errorf("store epoch: %w", err)
	}
	if lost, again := a.store.learn(epochs, away); lost != nil {
		if again {
			a.cfg.Logger.Warn("store may have lost counts, writing all live ones", "epoch", a.store.epoch())
			a.stats.storeEpochs.Add(1)
		}
		a.setEpoch()
		a.lacksEverything(lost)
	}
	if it := a.tiesItem(); !away.has(a.store.part(&it)) {
		if terr := a.keepTies(ctx, t); err == nil {
			err = terr
		}
	}
	a.links.unread.Store(!a.ties.known())
	if it := a.leaversItem(); !away.has(a.store.part(&it)) {
		if lerr := a.keepLeavers(ctx, t); err == nil {
			err = lerr
		}
	}
	for _, l := range a.lanes {
		failed, werr := a.catchUp(ctx, l, t, away)
		away = away.with(failed)
		if err == nil && werr != nil {
			err = fmt.Errorf("write what the store missed: %w", werr)
		}
	}
	if ctx.Err() == nil {
		a.up(away) // not before all is written: a store may answer and refuse
	}
	return err
}

// storeBatch is how many keys go to the store at once: few enough that a slow
// one answers within Config.StoreTimeout, or it would never catch up.
const storeBatch = 256

// catchUp writes the keys that wait on the lane's list as it is entered, but for
// those of parts that are away, and returns the parts that fail with them. Each
// batch has Config.StoreTimeout to itself: a backlog of any length gets shorter
// with each call.
func (a *Aggregator) catchUp(ctx context.Context, l *lane, now int64, away partSet) (failed partSet, err error) {
	for left := l.backlog(away); left > 0; left -= storeBatch {
		if ctx.Err() != nil {
			return failed, fmt.Errorf("%w: %w", ErrStore, ctx.Err())
		}
		keys := l.takeRetries(away.with(failed))
		if len(keys) == 0 {
			break // all that is left is of parts that failed
		}
		bctx, cancel := context.WithTimeout(ctx, a.cfg.StoreTimeout)
		not, werr := a.writeBatch(bctx, l, keys, now, away)
		cancel()
		if werr != nil {
			failed, err = failed.with(not), werr
		}
	}
	l.sendAway(away.with(failed))
	return failed, err
}

// writeFrame merges what the store lacks of a frame's keys, asks it about those
// that are not known here, joins its answers, and says whether all is stored. All
// batches of the frame share one deadline, as its sender waits; nobody waits for a
// part that is away. What is not stored is tried again by Sync.
func (a *Aggregator) writeFrame(ctx context.Context, l *lane, m *merged, now int64) bool {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StoreTimeout)
	defer cancel()
	away, stored := a.store.down(), true
	for batch := range slices.Chunk(m.told, storeBatch) {
		failed, err := a.writeBatch(ctx, l, batch, now, away)
		away, stored = away.with(failed), stored && err == nil
	}
	for batch := range slices.Chunk(m.asked, storeBatch) {
		failed, err := a.ask(ctx, l, batch, m, now, away)
		away, stored = away.with(failed), stored && err == nil
	}
	// What made room for others meanwhile, unstored, may be of this frame.
	l.mu.Lock()
	defer l.mu.Unlock()
	return stored && l.room.displaced == m.displaced
}

// writeBatch merges a batch but for what is of parts that are away, and joins the
// answers. On an error it returns the parts that failed. What is not stored goes
// on the lane's list. What a frame told of a key that somebody else is writing
// is written besides: it may have gone with that, which may yet fail, and the
// frame is not to be acknowledged before it is stored.
func (a *Aggregator) writeBatch(ctx context.Context, l *lane, keys []told, now int64, away partSet) (failed partSet, err error) {
	batch, by := make([]Item, 0, len(keys)), make([]Source, 0, len(keys))
	late := ctx.Err() != nil // by another part's fault: that says nothing of those asked here
	l.mu.Lock()
	l.batches++
	for i := range keys {
		key := keys[i].key
		c := l.find(key)
		if c != nil && c.batch == l.batches {
			continue // of another life: what goes has it
		}
		if c != nil && c.writing > 0 {
			c.lacksTold(&keys[i])
		}
		switch {
		case c == nil:
		case late || away.has(a.store.of(key, c)):
			if c.unwritten() || c.guest {
				l.again(key, c)
			}
			err = errAway
		default:
			it := c.item(key)
			if c.partial != 0 && c.partial.before(now-int64(OwnersApart)) {
				it.Version = 0 // all of it is read again
			}
			it.Note, it.Former, it.NotedUntil = a.noteOf(l, key, c, now)
			batch, by = append(batch, it), append(by, keys[i].source)
			c.batch = l.batches
			c.written()
		}
	}
	l.mu.Unlock()
	if len(batch) == 0 {
		return nil, err
	}
	start := time.Now()
	answer, merr := a.store.Merge(ctx, batch)
	a.stats.stored(time.Since(start), merr)
	if _, some := errors.AsType[*PartsError](merr); len(answer) != len(batch) && (merr == nil || some) {
		merr = fmt.Errorf("%w: %d answers to %d keys", ErrStore, len(answer), len(batch))
	}
	if merr != nil {
		failed, err = a.store.failed(merr), merr
		a.down(failed, merr)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range batch {
		if c := l.find(batch[i].Key); c != nil && c.writing > 0 { // else it was forgotten meanwhile
			c.writing--
		}
	}
	for i := range batch {
		if failed != nil && failed.has(a.store.part(&batch[i])) {
			a.unwritten(l, &batch[i])
		} else {
			a.joinStored(l, batch[i].Key, &answer[i], by[i], now)
			l.list(&batch[i], &answer[i], now)
		}
	}
	l.room.all.rested() // what was written can make room
	for _, p := range l.pops {
		p.rested()
	}
	return failed, err
}

// list has a key be written once more, to be listed, where what the store knew of it, and
// was forgotten here to make room, is what brings it near its limit.
func (l *lane) list(wrote, answer *Item, now int64) {
	if wrote.Note != "" || len(answer.Vectors) == 0 {
		return
	}
	if c := l.find(wrote.Key); c != nil && l.warms(c, now) {
		l.again(wrote.Key, c)
	}
}

// down notes that parts of the store do not answer, and says so when they are the
// first.
func (a *Aggregator) down(failed partSet, err error) {
	if errors.Is(err, context.Canceled) {
		return // we were told to stop: that says nothing of the store
	}
	if a.store.set(failed, true) {
		a.cfg.Logger.Error("store does not answer, serving from memory", "err", err)
	}
}

// up notes that all parts but those that are away have all that they should.
func (a *Aggregator) up(away partSet) {
	back := make(partSet, len(a.store.known))
	for p := range back {
		back[p] = !away.has(p)
	}
	if a.store.set(back, false) {
		a.cfg.Logger.Info("store answers again")
	}
}

// unwritten puts back what the store did not take.
func (a *Aggregator) unwritten(l *lane, it *Item) {
	c := l.find(it.Key)
	if c == nil {
		return
	}
	for _, v := range it.Vectors {
		c.lacks(v.Source, v.Replica, v.Cells[0].Slice)
	}
	if (len(it.Carries) > 0 || !it.Rest.Zero()) && c.past != nil {
		c.past.lacks = true // of a later one, if there is one by now
	}
	if it.Until != 0 {
		c.penalty.lacks = true
	}
	c.unnoted(it.Note)
	l.again(it.Key, c)
}

// again puts a key on the list of those to be written by Sync, once.
func (l *lane) again(key deltasync.Key, c *counter) {
	if !c.retried {
		if l.retry.total > 2*(len(l.counters)+len(l.guests)) {
			l.clearRetries()
		}
		c.retried = true
		l.retry.add(key, c)
	}
}

// clearRetries drops from the list what was forgotten since, and second places
// of what came back.
func (l *lane) clearRetries() {
	l.retry.total = 0
	for part, keys := range l.retry.keys {
		keys = slices.DeleteFunc(keys, func(key deltasync.Key) bool {
			c := l.find(key)
			if c == nil || !c.retried {
				return true
			}
			c.retried = false
			return false
		})
		for _, key := range keys {
			l.find(key).retried = true
		}
		l.retry.keys[part] = keys
		l.retry.total += len(keys)
	}
}

// joinStored joins what the store knew besides, as a frame of some kind of sender
// had it asked; 0: as none did. Where another region named a key that was not known
// here, it has its answer, and that is all: were the other regions told then, those
// that do not know the key either would read it and tell it to all, who would read
// it, without end. They are told with the first frame of an edge that names it.
func (a *Aggregator) joinStored(l *lane, key deltasync.Key, it *Item, by Source, now int64) {
	c := l.find(key)
	if c == nil {
		return
	}
	a.freshen(l, key, c, it)
	known := c.version != 0
	quiet := c.guest || !known && by == FromRegion
	c.version, c.asked = it.Version, now
	if it.knows() {
		c.partial = 0
	}
	oldest := retirement(c.shape, now)
	l.arm(c, now)
	var places [FromHomes + 1]crdt.Place // by sources: of one, stores name about all in order
	for _, v := range it.Vectors {
		at := &places[min(v.Source, FromHomes)]
		if !c.admits(at, v.Source, v.Replica) { // what other aggregators took
			a.stats.crowded.Add(1)
			continue
		}
		if v.Source == FromEdge && (len(l.pops) > 1 || deltasync.PopOf(v.Replica.Node) != c.pop) {
			l.weigh(c) // with those before
			if !a.hasRoom(l, c, v.Replica, v.Cells, oldest, now) {
				c.partial = stampOf(now)
				continue
			}
		}
		from, rose := c.joinAt(at, v.Source, v.Replica, v.Cells, oldest, l.since(now))
		if !rose {
			continue
		}
		a.changed(l, key, c, now)
		switch {
		case v.Source != FromEdge && v.Source != FromPeers:
		case quiet:
			c.unasked = true
		default:
			a.export(l, key, c, from, 0, now)
		}
	}
	if l.hearStored(c, it, now) {
		a.changed(l, key, c, now)
	}
	if a.punish(l, key, c, it.Until, now) { // whoever wrote it may have stopped before it told the other regions
		if quiet {
			c.unasked = true
		} else {
			a.exportTo(l, key, c, math.MaxInt64, 0, a.homes.all, now)
		}
	}
	if known && it.complete() && l.shed(c, it, now) {
		a.stats.restored.Add(1)
		l.again(key, c)
	}
	l.weigh(c)
	if c.guest {
		a.changed(l, key, c, now)
		l.seeOff(key, c)
	}
}

// retries are keys that the store refused or may have lost, by its parts.
type retries struct {
	store *parts
	keys  [][]deltasync.Key
	total int // of keys
}

func (r *retries) add(key deltasync.Key, c *counter) {
	part := r.store.of(key, c)
	r.keys[part] = append(r.keys[part], key)
	r.total++
}

// len is the number of keys but for those of parts that are away.
func (r *retries) len(away partSet) (n int) {
	for part := range r.keys {
		if !away.has(part) {
			n += len(r.keys[part])
		}
	}
	return n
}

// take takes off up to n keys of parts that are not away.
func (r *retries) take(n int, away partSet) (out []deltasync.Key) {
	for part, keys := range r.keys {
		if m := min(len(keys), n-len(out)); m > 0 && !away.has(part) {
			out = append(out, keys[:m]...)
			r.total -= m
			if r.keys[part] = keys[m:]; len(keys) == m {
				r.keys[part] = nil // and the memory that it slid through
			}
		}
	}
	return out
}

// backlog is the number of keys to be written again to parts that are not away.
func (l *lane) backlog(away partSet) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retry.len(away)
}

// takeRetries takes a batch off the list of keys to be written again.
func (l *lane) takeRetries(away partSet) (keys []told) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range l.retry.take(storeBatch, away) {
		if c := l.find(key); c != nil {
			c.retried = false
		}
		keys = append(keys, told{key: key})
	}
	return keys
}

// lacksEverything marks all that is held as missing in parts of the store.
func (a *Aggregator) lacksEverything(lost partSet) {
	for _, l := range a.lanes {
		l.mu.Lock()
		for _, key := range slices.Sorted(maps.Keys(l.counters)) { // the same order every run
			c := l.counters[key]
			if !lost.has(a.store.of(key, c)) {
				continue
			}
			c.lacksAll()
			l.weigh(c)
			c.version = 0
			l.again(key, c)
		}
		l.mu.Unlock()
	}
}
