package regional

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// Sync writes what the store missed, and, when its epoch says that it may have
// lost counts, everything that is live. Call it every Interval; it waits for
// the store, for Config.StoreTimeout a batch. What it wrote stays written if ctx
// ends or the store fails on the way; the next call goes on from there.
func (a *Aggregator) Sync(ctx context.Context, now time.Time) error {
	t := now.UnixNano()
	poll, cancel := context.WithTimeout(ctx, a.cfg.StoreTimeout)
	epoch, err := a.store.Epoch(poll)
	cancel()
	if err != nil {
		a.down(err)
		return fmt.Errorf("store epoch: %w", err)
	}
	if old := a.storeEpoch.Load(); epoch != old {
		if old != 0 {
			a.cfg.Logger.Warn("store may have lost counts, writing all live ones", "epoch", epoch)
			a.stats.storeEpochs.Add(1)
		}
		a.setEpoch(epoch)
		a.lacksEverything()
	}
	for _, l := range a.lanes {
		if !a.catchUp(ctx, l, t) {
			return fmt.Errorf("write what the store missed: %w", ErrStore)
		}
	}
	a.down(nil) // not before all is written: a store may answer and refuse
	return nil
}

// storeBatch is how many keys go to the store at once: few enough that a slow
// one answers within Config.StoreTimeout, or it would never catch up.
const storeBatch = 256

// catchUp writes the keys that wait on the lane's list as it is entered, and
// says whether all of them are stored. Each batch has Config.StoreTimeout to
// itself: a backlog of any length gets shorter with each call.
func (a *Aggregator) catchUp(ctx context.Context, l *lane, now int64) bool {
	for left := l.backlog(); left > 0; left -= storeBatch {
		ctx, cancel := context.WithTimeout(ctx, a.cfg.StoreTimeout)
		ok := a.writeBatch(ctx, l, l.takeRetries(), now)
		cancel()
		if !ok {
			return false
		}
	}
	return true
}

// writeFrame merges what the store lacks of a frame's keys, joins its answers,
// and says whether all of it is stored. All batches of the frame share one
// deadline, as its sender waits. What is not stored is tried again by Sync.
func (a *Aggregator) writeFrame(ctx context.Context, l *lane, keys []deltasync.Key, now int64) bool {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StoreTimeout)
	defer cancel()
	for batch := range slices.Chunk(keys, storeBatch) {
		if !a.writeBatch(ctx, l, batch, now) {
			l.postpone(keys)
			return false
		}
	}
	return true
}

// writeBatch merges a batch, joins the answers, and says whether it is stored.
// What is not goes on the lane's list.
func (a *Aggregator) writeBatch(ctx context.Context, l *lane, keys []deltasync.Key, now int64) bool {
	batch := make([]Item, 0, len(keys))
	l.mu.Lock()
	for _, key := range keys {
		c := l.counters[key]
		if c == nil {
			continue
		}
		batch = append(batch, c.item(key))
		c.written()
	}
	l.mu.Unlock()
	start := time.Now()
	answer, err := a.store.Merge(ctx, batch)
	a.stats.stored(time.Since(start), err)
	if err == nil && len(answer) != len(batch) {
		err = fmt.Errorf("%w: %d answers to %d keys", ErrStore, len(answer), len(batch))
	}
	if err != nil {
		a.down(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range batch {
		if c := l.counters[batch[i].Key]; c != nil && c.writing > 0 { // else it was forgotten meanwhile
			c.writing--
		}
	}
	if err != nil {
		for i := range batch {
			a.unwritten(l, &batch[i])
		}
		return false
	}
	for i := range answer {
		a.joinStored(l, batch[i].Key, &answer[i], now)
	}
	return true
}

// down notes whether the store answers, and says so when that changes.
func (a *Aggregator) down(err error) {
	if errors.Is(err, context.Canceled) {
		return // we were told to stop: that says nothing of the store
	}
	if a.storeDown.Swap(err != nil) == (err != nil) {
		return
	}
	if err != nil {
		a.cfg.Logger.Error("store does not answer, serving from memory", "err", err)
	} else {
		a.cfg.Logger.Info("store answers again")
	}
}

// unwritten puts back what the store did not take.
func (a *Aggregator) unwritten(l *lane, it *Item) {
	c := l.counters[it.Key]
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
	l.again(it.Key, c)
}

// postpone leaves to Sync what the store lacks, or was not asked, of the keys.
func (l *lane) postpone(keys []deltasync.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if c := l.counters[key]; c != nil && c.unwritten() {
			l.again(key, c)
		}
	}
}

// again puts a key on the list of those to be written by Sync, once.
func (l *lane) again(key deltasync.Key, c *counter) {
	if !c.retried {
		c.retried = true
		l.retry = append(l.retry, key)
	}
}

// joinStored joins what the store knew besides.
func (a *Aggregator) joinStored(l *lane, key deltasync.Key, it *Item, now int64) {
	c := l.counters[key]
	if c == nil {
		return
	}
	c.version, c.asked = it.Version, now
	oldest := retirement(c.shape, now)
	for _, v := range it.Vectors {
		from, rose := c.join(v.Source, v.Replica, v.Cells, oldest)
		if !rose {
			continue
		}
		a.changed(l, key, c, now)
		if v.Source == FromEdge {
			a.export(l, key, c, from, 0, now)
		}
	}
	if l.hearStored(c, it, now) {
		a.changed(l, key, c, now)
	}
	if a.punish(l, key, c, it.Until, now) { // whoever wrote it may have stopped before it told the other regions
		a.export(l, key, c, math.MaxInt64, 0, now)
	}
}

// backlog is the number of keys to be written again.
func (l *lane) backlog() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.retry)
}

// takeRetries takes a batch off the list of keys to be written again.
func (l *lane) takeRetries() []deltasync.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.retry), storeBatch)
	keys := l.retry[:n:n]
	if l.retry = l.retry[n:]; len(l.retry) == 0 {
		l.retry = nil
	}
	for _, key := range keys {
		if c := l.counters[key]; c != nil {
			c.retried = false
		}
	}
	return keys
}

// lacksEverything marks all that is held as missing in the store.
func (a *Aggregator) lacksEverything() {
	for _, l := range a.lanes {
		l.mu.Lock()
		for _, key := range slices.Sorted(maps.Keys(l.counters)) { // the same order every run
			c := l.counters[key]
			c.lacksAll()
			c.version = 0
			l.again(key, c)
		}
		l.mu.Unlock()
	}
}
