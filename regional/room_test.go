package regional_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// small is a region with so many bytes, or keys, for what it holds.
func small(t *testing.T, cfg regional.Config, store regional.Store) *region {
	t.Helper()
	cfg.Region, cfg.Name, cfg.Lanes, cfg.Incarnation, cfg.StoreTimeout = "eu", "a1", 1, 1, time.Second
	a, err := regional.New(cfg, store)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return &region{Aggregator: a, t: t, name: "eu", now: start, store: store}
}

// used tells that keys have so much of their 100 used.
func (e *edge) used(r *region, charges uint64, first deltasync.Key, n int) deltasync.Down {
	r.t.Helper()
	sec := many(r.now, first, n)
	for i := range sec.Deltas {
		sec.Deltas[i].Cells = []crdt.Cell{charge(r.now, charges)}
	}
	return e.send(r, sec)
}

func holds(r *region, first deltasync.Key, n int) (held int) {
	for k := range deltasync.Key(n) {
		if len(r.Vectors(first+k)) > 0 {
			held++
		}
	}
	return held
}

// A flood of keys takes no more than its budget, and puts out those that use
// least of their limit; they are read again when somebody asks.
func TestFloodPutsOutWhoUsesLeast(t *testing.T) {
	alone.Mark(t)
	const budget, hot, flood = 1 << 20, 100, 50_000
	r := small(t, regional.Config{Boot: still, MaxBytes: budget}, newStore(&start))
	e := &edge{name: "e1"}
	e.used(r, 40, 1, hot)
	for first := deltasync.Key(1000); first < 1000+flood; first += 1000 {
		if down := e.used(r, 1, first, 1000); down.Status != deltasync.StatusOK {
			t.Fatalf("keys from %d on: %v, want OK", first, down.Status)
		}
		if st := r.Stats(start); st.Bytes > budget {
			t.Fatalf("%d bytes after %d keys, want at most %d", st.Bytes, first, budget)
		}
	}
	st := r.Stats(start)
	if st.Keys < 1000 || st.Evicted < flood/2 || st.Full+st.EvictedUnstored+st.EvictedUnexported != 0 {
		t.Errorf("%+v, want many keys held, most put out and none refused or lost", st)
	}
	if n := holds(r, 1, hot); n != hot {
		t.Errorf("%d of %d keys at 40 %% are held", n, hot)
	}
	asker := &edge{name: "e2"}
	for _, key := range []deltasync.Key{1000, 1500, 2000} { // of the first ones
		if len(r.Vectors(key)) > 0 {
			t.Fatalf("key %d is still held", key)
		}
		if down := asker.tell(r, key, charge(start, 3)); charges(down.Totals[0].Peers) != 1 {
			t.Errorf("key %d, come back: others have %d, want 1", key, charges(down.Totals[0].Peers))
		}
		if down := asker.tell(r, key+1); charges(down.Totals[0].Peers) != 1 {
			t.Errorf("key %d, asked about: others have %d, want 1", key+1, charges(down.Totals[0].Peers))
		}
	}
}

// What is counted as the keys' memory is what they take, be it that a PoP says of each
// what others do not.
func TestBytesAreWhatKeysTake(t *testing.T) {
	alone.Mark(t)
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for name, liar := range map[string]func(*deltasync.Section){
		"agreed":        nil,
		"another limit": func(s *deltasync.Section) { s.Shape.Limit++ },
		"another width": func(s *deltasync.Section) {
			s.Shape.Width *= 2
			for i := range s.Deltas {
				s.Deltas[i].Cells = []crdt.Cell{{Slice: sliceOf(s.Shape, start), Charges: 1}}
			}
		},
		"a penalty": func(s *deltasync.Section) {
			for i := range s.Deltas {
				s.Deltas[i].Until = start.Add(time.Hour).UnixNano()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := small(t, regional.Config{Boot: still, MaxBytes: 64 << 20}, forgetful{})
			before := heap()
			for first := deltasync.Key(1); first < 60_000; first += 1000 {
				for i, name := range []string{"e1", "e2", "e3"} {
					sec := many(start, first, 1000)
					for k := range sec.Deltas {
						if sec.Deltas[k].Cells[0] = charge(start, 700); i == 1 {
							sec.Deltas[k].Cells = []crdt.Cell{charge(start.Add(-minute.Width), 1), charge(start, 7)}
						}
					}
					(&edge{name: name, seq: uint64(first)}).send(r, sec)
				}
				if liar != nil {
					sec := many(start, first, 1000)
					liar(&sec)
					(&edge{name: "e", pop: "liar", seq: uint64(first)}).send(r, sec)
					r.Pushes(start)
				}
			}
			took, said := heap()-before, r.Stats(start).Bytes
			if took > said*11/10 || took < said*8/10 {
				t.Errorf("60,000 keys take %d bytes, counted are %d; want nearly as many, and no fewer", took, said)
			}
			runtime.KeepAlive(r)
		})
	}
}

// forgetful is a store that takes everything and remembers nothing.
type forgetful struct{}

func (forgetful) Merge(_ context.Context, batch []regional.Item) ([]regional.Item, error) {
	out := make([]regional.Item, len(batch))
	for i := range batch {
		out[i] = regional.Item{Key: batch[i].Key, Version: batch[i].Version + 1}
	}
	return out, nil
}
func (forgetful) Load(_ context.Context, keys []regional.Item) ([]regional.Item, error) {
	return make([]regional.Item, len(keys)), nil
}
func (forgetful) Hot(context.Context, int) ([]regional.Noted, int, error) { return nil, 0, nil }
func (forgetful) Epoch(context.Context) (uint64, error)                   { return 1, nil }
func (forgetful) Close() error                                            { return nil }

// What a frame told that then made room for another of its keys is not
// acknowledged, though all the rest is stored.
func TestWhatMadeRoomIsNotAcknowledged(t *testing.T) {
	const keys = 257 // one more than Sync writes at once
	mem := newStore(&start)
	h := &hooked{Store: mem}
	r := small(t, regional.Config{Boot: still, MaxKeys: keys}, h)
	e := &edge{name: "e1"}
	if err := r.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	e.used(r, 1, 1, keys)
	mem.Wipe()
	var down deltasync.Down
	h.merge = func() { // while the others are written, the last one waits
		h.merge = nil
		sec := many(start, keys, 1)
		sec.Deltas[0].Cells[0].Charges = 2
		sec.Deltas = append(sec.Deltas, deltasync.Delta{Key: 1000, Cells: []crdt.Cell{charge(start, 60)}})
		down = e.send(r, sec)
	}
	if err := r.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	if holds(r, keys, 1) != 0 || holds(r, 1000, 1) != 1 || stored(t, mem, 1000) != 60 {
		t.Fatal("the key that waited did not make room for the one that matters")
	}
	if down.Status != deltasync.StatusStoreDown {
		t.Errorf("a frame of which a key was put out is answered %v, want store_down", down.Status)
	}
}

// hooked is a store that has something happen before it merges.
type hooked struct {
	*memstore.Store
	merge func()
}

func (h *hooked) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	if h.merge != nil {
		h.merge()
	}
	return h.Store.Merge(ctx, batch)
}

// A key that another region has yet to be told goes after those that all know,
// and it shows.
func TestUnexportedGoesLast(t *testing.T) {
	eu := small(t, regional.Config{Boot: still, MaxKeys: 20, Peers: []string{"us"}}, newStore(&start))
	e := &edge{name: "e1"}
	e.used(eu, 1, 1, 10)
	far{epoch: 1, refuses: true}.answer(t, eu) // they wait to be told again
	e.used(eu, 2, 11, 10)
	far{epoch: 1}.answer(t, eu)
	e.used(eu, 1, 21, 10)
	if n := holds(eu, 1, 10); n != 10 {
		t.Errorf("%d of 10 keys that us does not have are held, want all", n)
	}
	e.used(eu, 1, 31, 15)
	if st := eu.Stats(start); st.EvictedUnexported != 5 || st.Evicted != 20 {
		t.Errorf("%d and %d put out, want 20, and 5 that us does not have", st.Evicted, st.EvictedUnexported)
	}
	far{epoch: 1, refuses: true}.answer(t, eu)
	if st := eu.Stats(start); st.EvictedUnexported != 5+10 { // 21 to 30 are gone
		t.Errorf("%d put out that us does not have, want 15 when it refuses what was forgotten meanwhile", st.EvictedUnexported)
	}
}

// A store that is full sheds what expires soonest, and its epoch stays. What of
// it is held here is written again when somebody tells it again.
func TestWhatTheStoreShedIsWrittenAgain(t *testing.T) {
	swap := &swapped{memstore.New(memstore.Config{Now: func() time.Time { return start }, Seed: 1})}
	r := small(t, regional.Config{}, swap)
	e1, e2 := &edge{name: "e1"}, &edge{name: "e2"}
	e1.tell(r, 9, charge(start.Add(-minute.Width), 50), charge(start, 30))
	e2.tell(r, 9, charge(start, 10))
	if err := r.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	shed := memstore.New(memstore.Config{Now: func() time.Time { return start }, Seed: 1}) // of the same epoch
	swap.Store = shed
	e1.tell(r, 9, charge(start.Add(-minute.Width), 50), charge(start, 31))
	if err := r.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, shed, 9); got != 50+31+10 {
		t.Errorf("after a new count the store has %d, want all 91", got)
	}
	swap.Store = memstore.New(memstore.Config{Now: func() time.Time { return start }, Seed: 1})
	r.now = start.Add(reread)
	again := hits(start, 31, 9)
	again.Shape = minute
	again.Deltas[0].Cells = []crdt.Cell{charge(start.Add(-minute.Width), 50), charge(start, 31)}
	again.Deltas[0].Flags = deltasync.FlagRefresh
	e1.send(r, again)
	if err := r.Sync(context.Background(), r.now); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, swap.Store, 9); got != 50+31+10 {
		t.Errorf("after a refresh the store has %d, want all 91", got)
	}
	if st := r.Stats(r.now); st.Restored != 2 || st.Unstored != 0 {
		t.Errorf("%d keys restored, %d unstored; want 2 and 0", st.Restored, st.Unstored)
	}
}

// reread is longer than an answer of the store is good for.
const reread = 2 * time.Second

// swapped is a store that can be swapped for another.
type swapped struct{ *memstore.Store }

// What the store knows besides of the keys of a frame makes them larger than when they
// were merged: others make room for that before the next frame comes.
func TestWhatTheStoreAddsMakesRoom(t *testing.T) {
	const budget, keys, edges = 1 << 19, 100, 20
	store := newStore(&start)
	large := small(t, regional.Config{Boot: still, MaxBytes: 64 << 20}, store)
	for i := range edges {
		(&edge{name: "e" + strconv.Itoa(i)}).used(large, 1, 1, keys)
	}
	r := small(t, regional.Config{Boot: still, MaxBytes: budget}, store)
	e := &edge{name: "e"}
	e.used(r, 1, 1000, 1000)
	down := e.used(r, 1, 1, keys)
	if n := charges(down.Totals[keys-1].Peers); n != edges {
		t.Errorf("others have %d charges of the last key, want %d", n, edges)
	}
	if st := r.Stats(start); st.Bytes > budget || st.Evicted == 0 {
		t.Errorf("%d bytes with %d forgotten, want at most %d", st.Bytes, st.Evicted, budget)
	}
}

// Nobody needs more than the outboxes' part for what waits to be told.
func TestOutboxesHaveAPart(t *testing.T) {
	alone.Mark(t)
	const budget = 8 << 20
	eu := small(t, regional.Config{Boot: still, MaxBytes: budget, Peers: []string{"us", "ap"}}, forgetful{})
	e := &edge{name: "e1"}
	for first := deltasync.Key(1); first < 30_000; first += 1000 {
		e.used(eu, 1, first, 1000)
	}
	if n, most := eu.Waiting(), budget/4/256; n < most*9/10 || n > most {
		t.Errorf("%d deltas wait for two peers, want %d at most and nearly so", n, most)
	}
	if _, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a", Peers: []string{"us"}, Lanes: 64, MaxBytes: 1 << 20}, forgetful{}); err == nil {
		t.Error("a megabyte for 64 lanes: no error")
	}
}

// For who only asks nobody makes room: the answer comes from the store. And of a
// frame that has more keys than there are places all are taken and answered, one
// after the other.
func TestQuestionsPutNobodyOut(t *testing.T) {
	store := newStore(&start)
	r := small(t, regional.Config{Boot: still, MaxKeys: 2}, store)
	e, asker := &edge{name: "e1"}, &edge{name: "e2"}
	for key := deltasync.Key(1); key <= 6; key++ {
		e.tell(r, key, charge(start, 7))
	}
	held := holds(r, 5, 2)
	sec := many(start, 1, 6)
	for i := range sec.Deltas {
		sec.Deltas[i] = deltasync.Delta{Key: sec.Deltas[i].Key, Flags: deltasync.FlagTouch}
	}
	for i, total := range asker.send(r, sec).Totals {
		if charges(total.Peers) != 7 {
			t.Errorf("key %d, asked about: others have %d, want 7", i+1, charges(total.Peers))
		}
	}
	if n := holds(r, 5, 2); n != held || held == 0 {
		t.Errorf("%d of the keys that were held are, want %d", n, held)
	}
	down := asker.used(r, 1, 1, 6)
	for i, total := range down.Totals {
		if charges(total.Peers) != 7 {
			t.Errorf("key %d, told: others have %d, want 7", i+1, charges(total.Peers))
		}
	}
	if len(down.Refused) > 0 || down.Status != deltasync.StatusOK {
		t.Errorf("six keys at once in the room of two: %v, refused %v; want OK and none", down.Status, down.Refused)
	}
	for key := deltasync.Key(1); key <= 6; key++ {
		if got := stored(t, store, key); got != 8 {
			t.Errorf("of key %d the store has %d, want 8", key, got)
		}
	}
}

// Who is turned away hears what the store has of it all the same.
func TestWhoIsTurnedAwayHearsOthers(t *testing.T) {
	const keys = 257 // one more than Sync writes at once
	mem := newStore(&start)
	h := &hooked{Store: mem}
	r, other := small(t, regional.Config{Boot: still, MaxKeys: keys}, h), newRegion(t, "eu", mem)
	if err := r.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	(&edge{name: "e1"}).used(r, 1, 1, keys)
	mem.Wipe()
	(&edge{name: "e2"}).tell(other, 1000, charge(start, 60))
	var down deltasync.Down
	h.merge = func() { // nothing is stored yet
		h.merge = nil
		down = (&edge{name: "e3"}).tell(r, 1000, charge(start, 1))
	}
	if err := r.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	if down.Status != deltasync.StatusOverloaded || down.Took(0) || charges(down.Totals[0].Peers) != 60 {
		t.Errorf("%+v, want it refused, and the 60 of another edge", down)
	}
}

// What a frame is about to store makes room for nobody: a key that matters, and
// comes after it in the frame, waits until it is stored.
func TestWhatMattersWaitsForTheRestOfItsFrame(t *testing.T) {
	store := newStore(&start)
	r := small(t, regional.Config{Boot: still, MaxKeys: 2}, store)
	sec := many(start, 1, 3)
	sec.Deltas[2].Cells[0].Charges = 90
	if down := (&edge{name: "e1"}).send(r, sec); down.Status != deltasync.StatusOK || len(down.Refused) > 0 {
		t.Errorf("%v, refused %v; want OK and none", down.Status, down.Refused)
	}
	for key, want := range map[deltasync.Key]uint64{1: 1, 2: 1, 3: 90} {
		if got := stored(t, store, key); got != want {
			t.Errorf("of key %d the store has %d, want %d", key, got, want)
		}
	}
}

// Who is kept out matters, however little of the limit is used.
func TestPenaltyOutlastsAFlood(t *testing.T) {
	r := small(t, regional.Config{Boot: still, MaxKeys: 10}, newStore(&start))
	e := &edge{name: "e1"}
	sec := many(start, 1, 1)
	sec.Deltas[0].Until = start.Add(time.Hour).UnixNano()
	e.send(r, sec)
	for first := deltasync.Key(10); first < 1000; first += 5 {
		e.used(r, 20, first, 5)
	}
	if holds(r, 1, 1) != 1 {
		t.Error("a key that is kept out is forgotten")
	}
}
