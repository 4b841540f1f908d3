package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// flooded is what a flood of keys finds at an aggregator.
type flooded struct {
	name  string
	uses  uint64 // of the limit of 100, by each key of the flood
	away  bool   // the store answers nothing once the flood begins
	cut   bool   // no frame to other regions is answered
	redis bool   // the store is a real Redis, which sheds
}

var atAggregator = []flooded{
	{name: "aggregator", uses: 1},
	{name: "peers cut", uses: 1, cut: true},
	{name: "store away, peers cut", uses: 1, away: true, cut: true},
	{name: "every key of the flood uses 80 %", uses: 80},
	{name: "the same, store away, peers cut", uses: 80, away: true, cut: true},
	{name: "redis", uses: 1, redis: true},
}

// aftermath is what became of it.
type aftermath struct {
	Name              string
	Peak, Heap        int64 // bytes
	Told              int   // keys of the flood
	Limited, Freed    int   // keys at 80 to 100 %, and those of which the region says less
	Late, LateFreed   int   // those that got there during the flood
	Wrong             int   // keys of the flood of which others were said to use something
	Refused           uint64
	Mid, Low          float64 // what is forgotten of the limit of a key at 40 %, and at 20 %
	Keys              int
	Bytes             int
	Evicted           uint64
	Unexported, Alone uint64
	Micros            float64
	Redis             *shedding
}

// missed are the targets that it misses.
func (r aftermath) missed(o options) (errs []error) {
	miss := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("%s: %s", r.Name, fmt.Sprintf(format, args...)))
		}
	}
	miss(r.Peak > o.budget*11/10, "%d MB of memory, want %d and a tenth at most", r.Peak>>20, o.budget>>20)
	miss(r.Freed > 0, "%d of %d limited keys were forgotten", r.Freed, r.Limited)
	miss(r.Wrong*100 > r.Told, "of %d of %d other keys something was told that nobody had used", r.Wrong, r.Told)
	if s := r.Redis; s != nil {
		miss(s.Peak > s.Max*11/10, "Redis took %d MB, want %d and a tenth at most", s.Peak>>20, s.Max>>20)
		miss(!s.EpochKept, "Redis shed a canary")
	}
	return errs
}

const (
	limitOf   = 100
	flooders  = 4     // edges that tell of the flood, in turn
	frameKeys = 3_000 // to a frame
	lanes     = 8
	hubTick   = 20_000 // keys of the flood between two exchanges with other regions
)

var shape = deltasync.Shape{Generation: 7, Width: 15 * time.Second, Slices: 40, Limit: limitOf}

// hub is an aggregator under flood, and its world.
type hub struct {
	flooded
	*regional.Aggregator
	store  *keeper
	real   *server // nil: no Redis
	now    time.Time
	seq    uint64
	turn   int
	ticked time.Time
	began  crdt.Slice               // when what came before the flood was told
	filled [lanes][]deltasync.Delta // frames of the flood
	result *aftermath
}

func (f flooded) run(o options) (r aftermath, err error) {
	debug.SetMemoryLimit(o.budget)
	r.Name = f.name
	h, err := f.hub(o, &r)
	if err != nil {
		return r, err
	}
	defer h.close()
	told := o.keys
	if h.real != nil {
		told /= scaleOfRedis
	}
	known := min(20_000, told/25)
	h.began = h.slice()
	const (
		limited = iota << 40
		mid
		low
		late
		stream
	)
	had := func(i int) uint64 { return limitOf*4/5 + uint64(i)%(limitOf/5+1) }
	h.tellAll("before", limited, known, had)
	h.tellAll("before", mid, known/10, func(int) uint64 { return limitOf * 2 / 5 })
	h.tellAll("before", low, known/10, func(int) uint64 { return limitOf / 5 })
	for range 20 {
		h.tick(100 * time.Millisecond)
	}
	h.store.away = f.away
	h.tick(100 * time.Millisecond)

	began := time.Now()
	for i := range told {
		if h.add(keyOf(stream+i), f.uses); i%hubTick == hubTick-1 {
			h.tick(0)
		}
		if i == told/2 {
			h.tellAll("late", late, known/10, had)
			r.Late = known / 10
		}
	}
	h.flush()
	r.Told, r.Micros = told, float64(time.Since(began).Microseconds())/float64(told)
	h.tick(100 * time.Millisecond)

	r.Limited = known
	h.ask(limited, known, func(i int, used uint64) {
		if used < had(i) {
			r.Freed++
		}
	})
	h.ask(late, r.Late, func(i int, used uint64) {
		if used < had(i) {
			r.LateFreed++
		}
	})
	forgotten := func(of int, had uint64) (sum float64) {
		h.ask(of, known/10, func(_ int, used uint64) { sum += float64(had-min(had, used)) / limitOf })
		return sum / float64(known/10)
	}
	r.Mid, r.Low = forgotten(mid, limitOf*2/5), forgotten(low, limitOf/5)
	st := h.Stats(h.now)
	r.Refused, r.Keys, r.Bytes, r.Evicted, r.Unexported, r.Alone = st.Full, st.Keys, st.Bytes, st.Evicted, st.EvictedUnexported, st.EvictedUnstored
	if h.real != nil {
		if r.Redis, err = h.real.measure(h, limited, known, had); err != nil {
			return r, err
		}
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.Heap = int64(m.HeapAlloc)
	runtime.KeepAlive(h)
	r.Peak, err = peak()
	return r, err
}

func (f flooded) hub(o options, r *aftermath) (*hub, error) {
	h := &hub{flooded: f, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), result: r}
	h.store = &keeper{inner: memstore.New(memstore.Config{Now: func() time.Time { return h.now }})}
	var store regional.Store = h.store
	if f.redis {
		var err error
		if h.real, err = startRedis(o); err != nil {
			return nil, err
		}
		h.now, store = time.Now(), h.real.store
	}
	var err error
	h.Aggregator, err = regional.New(regional.Config{
		Region: "eu", Name: "flood", Peers: []string{"us", "ap"}, Lanes: lanes, MaxBytes: o.budget / 4 * 3,
		StoreTimeout: time.Minute, // a busy machine is not what is measured
	}, store)
	if err != nil {
		return nil, err
	}
	return h, h.Sync(context.Background(), h.now)
}

func (h *hub) close() {
	if h.real != nil {
		h.real.stop()
	}
}

// keyOf is the i-th key.
func keyOf(i int) deltasync.Key {
	x := uint64(i) + 0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return deltasync.Key(x ^ x>>31 | 1<<63)
}

func (h *hub) slice() crdt.Slice { return crdt.Slice(h.now.UnixNano() / int64(shape.Width)) }

// add puts a key of the flood into its lane's frame, and sends that when it is
// full.
func (h *hub) add(key deltasync.Key, used uint64) {
	lane := key.Lane(lanes)
	h.filled[lane] = append(h.filled[lane], deltasync.Delta{Key: key, Flags: deltasync.FlagUrgent, Cells: []crdt.Cell{{Slice: h.slice(), Charges: used}}})
	if len(h.filled[lane]) == frameKeys {
		h.flushLane(lane)
	}
}

func (h *hub) flush() {
	for lane := range h.filled {
		h.flushLane(lane)
	}
}

func (h *hub) flushLane(lane int) {
	if len(h.filled[lane]) == 0 {
		return
	}
	h.turn++
	down := h.send(fmt.Sprint("flooder", h.turn%flooders), lane, h.filled[lane])
	for i := range down.Totals {
		if len(down.Totals[i].Peers)+len(down.Totals[i].Others) > 0 {
			h.result.Wrong++
		}
	}
	h.filled[lane] = h.filled[lane][:0]
}

// send has an edge tell of keys of one lane.
func (h *hub) send(name string, lane int, deltas []deltasync.Delta) (down deltasync.Down) {
	h.seq++
	h.pass(time.Duration(len(deltas)) * time.Microsecond)
	up := deltasync.Up{
		Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: name, Node: deltasync.NodeID("eu", "p", name), Incarnation: 1,
		Lane: lane, Lanes: lanes, Seq: h.seq, SentAt: h.now.UnixNano(), Sections: []deltasync.Section{{Shape: shape, Deltas: deltas}},
	}
	payload, err := up.AppendBinary(nil)
	if err != nil {
		panic(err) // our own bug
	}
	if err := down.UnmarshalBinary(h.Handle(context.Background(), h.now, deltasync.EdgeSubject("eu", lane, "p", name), payload)); err != nil {
		panic(err)
	}
	return down
}

// tellAll has an edge tell of keys from one on, and the store keep them, if it
// keeps anything.
func (h *hub) tellAll(name string, first, n int, used func(i int) uint64) {
	h.each(first, n, func(lane int, which []int, deltas []deltasync.Delta) {
		for i := range deltas {
			deltas[i].Cells = []crdt.Cell{{Slice: h.slice(), Charges: used(which[i])}}
			h.store.keep(deltas[i].Key)
		}
		h.send(name, lane, deltas)
	})
}

// ask has an edge that knows nothing ask about keys, and says what it hears that
// others used.
func (h *hub) ask(first, n int, heard func(i int, used uint64)) {
	h.each(first, n, func(lane int, which []int, deltas []deltasync.Delta) {
		for i := range deltas {
			deltas[i].Flags = deltasync.FlagTouch
		}
		down := h.send("asker", lane, deltas)
		for i := range deltas {
			used := uint64(0)
			if i < len(down.Totals) {
				for _, c := range down.Totals[i].Peers {
					used += c.Net()
				}
			}
			heard(which[i], used)
		}
	})
}

// each makes frames of keys from one on.
func (h *hub) each(first, n int, send func(lane int, which []int, deltas []deltasync.Delta)) {
	const most = 1000 // so that answers fit
	var which [lanes][]int
	var deltas [lanes][]deltasync.Delta
	for i := range n {
		key := keyOf(first + i)
		lane := key.Lane(lanes)
		which[lane], deltas[lane] = append(which[lane], i), append(deltas[lane], deltasync.Delta{Key: key})
		if len(which[lane]) == most {
			send(lane, which[lane], deltas[lane])
			which[lane], deltas[lane] = which[lane][:0], deltas[lane][:0]
		}
	}
	for lane := range which {
		if len(which[lane]) > 0 {
			send(lane, which[lane], deltas[lane])
		}
	}
}

// tick is what an aggregator does ten times a second, and once.
func (h *hub) tick(d time.Duration) {
	h.pass(d)
	for rounds := 0; rounds < 64; rounds++ {
		out := h.Exports(h.now)
		for _, o := range out {
			if h.cut {
				h.Lost(h.now, o)
				continue
			}
			h.answer(o)
		}
		if len(out) == 0 || h.cut {
			break
		}
	}
	h.Pushes(h.now)
	_ = h.Sync(context.Background(), h.now) // with the store away it fails, which is the point
	if h.now.Sub(h.ticked) >= time.Second {
		h.ticked = h.now
		h.Tick(h.now)
	}
}

// pass lets time pass; a real Redis has its own.
func (h *hub) pass(d time.Duration) {
	if h.now = h.now.Add(d); h.real != nil {
		h.now = time.Now()
	}
}

// answer is that of a region that takes everything and has nothing.
func (h *hub) answer(o regional.Outgoing) {
	var up deltasync.Up
	if err := up.UnmarshalBinary(o.Payload); err != nil {
		panic(err) // our own bug
	}
	down := deltasync.Down{
		Status: deltasync.StatusOK, Region: o.Peer, Node: deltasync.NodeID(o.Peer, "", ""), Seq: up.Seq,
		EchoSentAt: up.SentAt, ReceivedAt: h.now.UnixNano(), SentAt: h.now.UnixNano(), StoreEpoch: 1,
	}
	for i := range up.Sections {
		down.Totals = append(down.Totals, make([]deltasync.Totals, len(up.Sections[i].Deltas))...)
	}
	payload, err := down.AppendBinary(nil)
	if err == nil {
		err = h.Receive(h.now, o, payload)
	}
	if err != nil {
		panic(err)
	}
}

// keeper is a store that has what came before the flood, and of the flood says
// that it has it: it shares the process with the aggregator.
type keeper struct {
	inner *memstore.Store
	kept  map[deltasync.Key]bool
	away  bool
}

func (k *keeper) keep(key deltasync.Key) {
	if k.kept == nil {
		k.kept = map[deltasync.Key]bool{}
	}
	k.kept[key] = true
}

func (k *keeper) each(items []regional.Item, do func(item []regional.Item) ([]regional.Item, error)) ([]regional.Item, error) {
	if k.away {
		return nil, regional.ErrStore
	}
	out := make([]regional.Item, len(items))
	for i := range items {
		if !k.kept[items[i].Key] {
			out[i] = regional.Item{Key: items[i].Key, Version: items[i].Version + 1}
			continue
		}
		answer, err := do(items[i : i+1])
		if err != nil {
			return nil, err
		}
		out[i] = answer[0]
	}
	return out, nil
}

// Merge implements regional.Store.
func (k *keeper) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	return k.each(batch, func(item []regional.Item) ([]regional.Item, error) { return k.inner.Merge(ctx, item) })
}

// Load implements regional.Store.
func (k *keeper) Load(ctx context.Context, keys []regional.Item) ([]regional.Item, error) {
	return k.each(keys, func(item []regional.Item) ([]regional.Item, error) { return k.inner.Load(ctx, item) })
}

// Hot implements regional.Store.
func (k *keeper) Hot(ctx context.Context, from int) (page []regional.Noted, next int, err error) {
	if k.away {
		return nil, 0, regional.ErrStore
	}
	return k.inner.Hot(ctx, from)
}

// Epoch implements regional.Store.
func (k *keeper) Epoch(ctx context.Context) (uint64, error) {
	if k.away {
		return 0, regional.ErrStore
	}
	return k.inner.Epoch(ctx)
}

// Close implements regional.Store.
func (k *keeper) Close() error { return k.inner.Close() }
