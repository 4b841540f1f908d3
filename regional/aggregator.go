package regional

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// Aggregator serves one region. Its methods may be called by many goroutines.
type Aggregator struct {
	cfg   Config
	store Store
	inbox *deltasync.Inbox
	self  deltasync.Up // head of frames to other regions
	lanes []*lane

	hurry      atomic.Bool   // some export or push should not wait
	epoch      atomic.Uint64 // of the store and of this aggregator, as told to edges
	storeEpoch atomic.Uint64 // of the store alone; 0: not yet read
	storeDown  atomic.Bool
	stats      stats
}

// lane is a part of the key space under one lock.
type lane struct {
	mu       sync.Mutex // guards what follows; never held across a call to the store
	counters map[deltasync.Key]*counter
	retry    []deltasync.Key // keys that the store refused or may have lost
	push     []deltasync.Key // keys to push
	peers    []peer          // by Config.Peers
}

// peer is one lane's exchange with another region.
type peer struct {
	outbox  *deltasync.Outbox
	epochs  []uint64        // seen of late in its replies
	sent    int64           // when the last frame left
	until   int64           // it is left alone before this instant
	refused []deltasync.Key // it would not have them; told again with the next Tick
	fails   int             // frames in a row that it did not answer
}

// New makes an aggregator over a store, which stays the caller's to close. It
// starts nothing: call Run.
func New(cfg Config, store Store) (*Aggregator, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("aggregator config: %w", err)
	}
	if cfg.Incarnation == 0 {
		cfg.Incarnation = uint64(time.Now().UnixMilli())
	}
	a := &Aggregator{
		cfg: cfg, store: store, inbox: deltasync.NewInbox(cfg.Region, cfg.Lanes),
		self: deltasync.Up{
			Kind: deltasync.KindRegion, Region: cfg.Region, Name: cfg.Name,
			Node: deltasync.NodeID(cfg.Region, "", ""), Lanes: cfg.Lanes,
		},
	}
	for range cfg.Lanes {
		l := &lane{counters: map[deltasync.Key]*counter{}}
		for range cfg.Peers {
			l.peers = append(l.peers, peer{outbox: deltasync.NewOutbox(deltasync.OutboxConfig{})})
		}
		a.lanes = append(a.lanes, l)
	}
	a.setEpoch(0)
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(newCollector(a))
	}
	return a, nil
}

// setEpoch tells edges and peers apart what they have told us from what they
// have not: a new store and a new aggregator both start without their counts.
func (a *Aggregator) setEpoch(store uint64) {
	a.storeEpoch.Store(store)
	a.epoch.Store(deltasync.NodeID(a.cfg.Region, a.cfg.Name, fmt.Sprintf("%d/%d", a.cfg.Incarnation, store)))
}

// Handle answers one frame. It joins the counts, stores them, joins what the
// store knew besides, and replies; it waits for the store, for
// Config.StoreTimeout at most.
func (a *Aggregator) Handle(ctx context.Context, now time.Time, subject string, payload []byte) []byte {
	t := now.UnixNano()
	up, status, err := a.inbox.Admit(t, subject, payload)
	if err != nil {
		a.cfg.Logger.Debug("frame refused", "subject", subject, "err", err)
		return a.encode(&deltasync.Down{Status: status, Region: a.cfg.Region, Node: a.self.Node, ReceivedAt: t, SentAt: t})
	}
	l := a.lanes[up.Lane]
	keys, worst := a.merge(l, up, t)
	stored := false
	if a.storeDown.Load() {
		l.postpone(keys) // Sync finds out when it is back; nobody waits for it here
	} else {
		stored = a.write(ctx, l, keys, t)
	}
	if !stored && worst == deltasync.StatusOK { // a refusal says more: the sender has to come again
		worst = deltasync.StatusStoreDown
	}
	down := a.reply(l, up, t)
	down.Status = worst
	return a.encode(down)
}

// encode writes a reply. One that would be too large stops early: what it says
// of the first keys is good, and the sender asks again for the rest.
func (a *Aggregator) encode(down *deltasync.Down) []byte {
	for {
		b, err := down.AppendBinary(nil)
		if err == nil {
			return b
		}
		if !errors.Is(err, deltasync.ErrTooLarge) || len(down.Totals) < 2 { // our own bug
			a.cfg.Logger.Error("reply dropped", "seq", down.Seq, "err", err)
			return nil
		}
		a.stats.cutShort.Add(1)
		down.Totals = down.Totals[:len(down.Totals)*2/3]
	}
}

// source is the kind of entry that a frame's counts become.
func source(kind deltasync.Kind) Source {
	if kind == deltasync.KindRegion {
		return FromRegion
	}
	return FromEdge
}

// merge joins a frame's counts and returns the keys that the store must hear
// of, or be asked about.
func (a *Aggregator) merge(l *lane, up *deltasync.Up, now int64) (keys []deltasync.Key, worst deltasync.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	worst = deltasync.StatusOK
	for si := range up.Sections {
		sec := &up.Sections[si]
		if err := (&Item{Width: sec.Shape.Width, Slices: sec.Shape.Slices}).Check(); err != nil {
			a.stats.misshapen.Add(uint64(len(sec.Deltas)))
			worst = max(worst, deltasync.StatusForbidden)
			continue
		}
		replica := up.Replica(sec.Life)
		oldest := retirement(sec.Shape, now)
		horizon := sliceAt(sec.Shape, now+int64(maxAhead))
		for di := range sec.Deltas {
			d := &sec.Deltas[di]
			cells, ahead := within(d.Cells, horizon)
			if ahead {
				a.stats.ahead.Add(1)
				worst = max(worst, deltasync.StatusClock)
			}
			c := l.counters[d.Key]
			if c == nil {
				if len(l.counters) >= a.cfg.MaxKeys/a.cfg.Lanes {
					a.stats.full.Add(1)
					worst = max(worst, deltasync.StatusOverloaded)
					continue
				}
				c = &counter{shape: sec.Shape}
				l.counters[d.Key] = c
			}
			c.shape.Limit = sec.Shape.Limit
			from, rose := c.join(source(up.Kind), replica, cells, oldest)
			a.stats.merges.Add(uint64(len(cells)))
			if rose {
				c.lacks(source(up.Kind), replica, from)
				a.changed(l, d.Key, c, now)
			}
			if up.Kind == deltasync.KindEdge && (rose || d.Flags&deltasync.FlagRefresh != 0) {
				if !rose && len(cells) > 0 {
					from = cells[0].Slice
				}
				a.export(l, d.Key, c, from, d.Flags)
			}
			if len(c.missing) > 0 || c.version == 0 {
				keys = append(keys, d.Key)
			}
		}
	}
	return keys, worst
}

// within cuts off the cells that lie too far ahead.
func within(cells []crdt.Cell, horizon crdt.Slice) (kept []crdt.Cell, ahead bool) {
	n := len(cells)
	for n > 0 && cells[n-1].Slice > horizon {
		n--
	}
	return cells[:n], n < len(cells)
}

// changed notes that a key's totals rose: edges may have to hear at once.
func (a *Aggregator) changed(l *lane, key deltasync.Key, c *counter, now int64) {
	if !c.pushed && c.crossing(reach(c.shape, now)) {
		c.pushed = true
		l.push = append(l.push, key)
		a.hurry.Store(true)
	}
}

// export puts the region's subtotal of a key, from a slice on, into the
// outboxes to all peers.
func (a *Aggregator) export(l *lane, key deltasync.Key, c *counter, from crdt.Slice, flags deltasync.Flags) {
	if c.shape.Regional || len(l.peers) == 0 {
		return
	}
	cells := c.edges.Sums().From(from, nil)
	if len(cells) == 0 {
		return
	}
	flags &= deltasync.FlagUrgent | deltasync.FlagRefresh
	for i := range l.peers {
		if !l.peers[i].outbox.Put(c.shape, 0, deltasync.Delta{Key: key, Flags: flags, Cells: cells}) {
			a.stats.exportFull.Add(1) // the edges' refresh brings it again
		}
	}
	if flags&deltasync.FlagUrgent != 0 {
		a.hurry.Store(true)
	}
}

// storeBatch is how many keys go to the store at once: few enough that a slow
// one answers within Config.StoreTimeout, or it would never catch up.
const storeBatch = 256

// write merges what the store lacks of the keys, joins its answers, and says
// whether all of it is stored. What is not is tried again by Sync.
func (a *Aggregator) write(ctx context.Context, l *lane, keys []deltasync.Key, now int64) bool {
	for batch := range slices.Chunk(keys, storeBatch) {
		if !a.writeBatch(ctx, l, batch, now) {
			l.postpone(keys)
			return false
		}
	}
	return true
}

func (a *Aggregator) writeBatch(ctx context.Context, l *lane, keys []deltasync.Key, now int64) bool {
	batch := make([]Item, 0, len(keys))
	l.mu.Lock()
	for _, key := range keys {
		c := l.counters[key]
		if c == nil {
			continue
		}
		batch = append(batch, c.item(key))
		c.missing = c.missing[:0]
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StoreTimeout)
	defer cancel()
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
	l.again(it.Key, c)
}

// postpone leaves to Sync what the store lacks, or was not asked, of the keys.
func (l *lane) postpone(keys []deltasync.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if c := l.counters[key]; c != nil && (len(c.missing) > 0 || c.version == 0) {
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
	c.version = it.Version
	oldest := retirement(c.shape, now)
	for _, v := range it.Vectors {
		from, rose := c.join(v.Source, v.Replica, v.Cells, oldest)
		if !rose {
			continue
		}
		a.changed(l, key, c, now)
		if v.Source == FromEdge {
			a.export(l, key, c, from, 0)
		}
	}
}

// reply tells the sender what everybody else did.
func (a *Aggregator) reply(l *lane, up *deltasync.Up, now int64) *deltasync.Down {
	liveFor := int64(max(time.Second, 10*a.cfg.Interval))
	edges, regions := a.inbox.Live(now, time.Duration(liveFor))
	down := &deltasync.Down{
		Status: deltasync.StatusOK, Region: a.cfg.Region, Node: a.self.Node, Seq: up.Seq,
		EchoSentAt: up.SentAt, ReceivedAt: now, SentAt: now,
		StoreEpoch: a.epoch.Load(), LiveEdges: edges, LiveRegions: regions,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for si := range up.Sections {
		sec := &up.Sections[si]
		oldest := reach(sec.Shape, now)
		for di := range sec.Deltas {
			var t deltasync.Totals
			if c := l.counters[sec.Deltas[di].Key]; c != nil {
				if up.Kind == deltasync.KindRegion {
					t.Peers = c.edges.Sums().From(oldest, nil)
				} else {
					t = c.totals(up.Replica(sec.Life), oldest)
				}
			}
			down.Totals = append(down.Totals, t)
		}
	}
	return down
}

// Tick drops what is retired. Call it about once a second.
func (a *Aggregator) Tick(now time.Time) {
	t := now.UnixNano()
	for _, l := range a.lanes {
		l.mu.Lock()
		for key, c := range l.counters {
			oldest := retirement(c.shape, t)
			c.edges.Retire(oldest)
			c.regions.Retire(oldest)
			if c.edges.Len()+c.regions.Len() == 0 {
				delete(l.counters, key)
				continue
			}
			c.crossing(reach(c.shape, t)) // arms thresholds again as slices leave
		}
		for j := range l.peers {
			a.tellAgain(l, &l.peers[j])
		}
		l.mu.Unlock()
	}
}

// Sync writes what the store missed, and, when its epoch says that it may have
// lost counts, everything that is live. Call it every Interval; it waits for
// the store.
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
		if !a.write(ctx, l, l.takeRetries(), t) {
			return fmt.Errorf("write what the store missed: %w", ErrStore)
		}
	}
	a.down(nil) // not before all is written: a store may answer and refuse
	return nil
}

// takeRetries empties the list of keys to be written again.
func (l *lane) takeRetries() []deltasync.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := l.retry
	l.retry = nil
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
