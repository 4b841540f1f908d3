package memstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/regional/storetest"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// clock is a time of day that tests move.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ns.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.ns.Load()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Subject {
		c := newClock()
		s := memstore.New(memstore.Config{Now: c.now})
		return storetest.Subject{Store: s, Now: c.now, Advance: c.advance, Wipe: s.Wipe}
	})
}

// paused is a store that is stopped for a while in the midst of its nth call, as
// a loaded machine does to a Redis.
type paused struct {
	*memstore.Store
	left atomic.Int64
	stop func()
}

func (p *paused) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	if p.left.Add(-1) == 0 {
		p.stop()
	}
	return p.Store.Merge(ctx, batch)
}

func (p *paused) Load(ctx context.Context, keys []regional.Item) ([]regional.Item, error) {
	if p.left.Add(-1) == 0 {
		p.stop()
	}
	return p.Store.Load(ctx, keys)
}

// The suite blames no store for a pause, at whichever of its calls.
func TestSuiteForgivesPauses(t *testing.T) {
	alone.Mark(t)
	for n := range int64(10) {
		storetest.Run(t, func(*testing.T) storetest.Subject {
			c := newClock()
			s := &paused{Store: memstore.New(memstore.Config{Now: c.now}), stop: func() { c.advance(3 * time.Second) }}
			s.left.Store(n + 1)
			return storetest.Subject{Store: s, Now: c.now, Advance: c.advance, Wipe: s.Wipe}
		})
	}
}

// one is an item with a single count in the present slice.
func one(key deltasync.Key, now time.Time, count uint64) regional.Item {
	const width = 1500 * time.Millisecond
	return regional.Item{Key: key, Width: width, Slices: 40, Vectors: []regional.Vector{{
		Source: regional.FromEdge, Replica: crdt.Replica{Node: 1},
		Cells: []crdt.Cell{{Slice: crdt.Slice(now.UnixNano() / int64(width)), Charges: count}},
	}}}
}

// spread makes keys that fall into all shards.
func spread(i int) deltasync.Key { return deltasync.Key(rand.NewPCG(uint64(i), 1).Uint64()) }

func TestFullRefusesNewKeysAndServesOldOnes(t *testing.T) {
	c := newClock()
	s := memstore.New(memstore.Config{MaxKeys: 100, Now: c.now})
	ctx := t.Context()
	for i := range 100 {
		if _, err := s.Merge(ctx, []regional.Item{one(spread(i), c.now(), 1)}); err != nil {
			t.Fatalf("key %d of 100: %v", i, err)
		}
	}
	_, err := s.Merge(ctx, []regional.Item{one(spread(100), c.now(), 1), one(spread(5), c.now(), 7)})
	if !errors.Is(err, memstore.ErrFull) || !errors.Is(err, regional.ErrStore) {
		t.Fatalf("Merge of the 101st key: %v, want ErrFull", err)
	}
	if s.Keys() != 100 || s.Refused() != 1 {
		t.Errorf("Keys, Refused = %d, %d, want 100, 1", s.Keys(), s.Refused())
	}
	got, err := s.Load(ctx, []regional.Item{one(spread(5), c.now(), 1), one(spread(100), c.now(), 1)})
	if err != nil || len(got[0].Vectors) != 1 || got[0].Vectors[0].Cells[0].Charges != 7 || len(got[1].Vectors) > 0 {
		t.Errorf("Load = %v, %v, want the key beside the refused one at 7, and the refused one absent", got, err)
	}

	// Expired keys make room, within as many calls as there are records.
	c.advance(time.Hour)
	for i := range 200 {
		_, err = s.Merge(ctx, []regional.Item{one(spread(1000+i%100), c.now(), 1)})
	}
	if err != nil || s.Keys() > 100 {
		t.Errorf("an hour later: %v with %d keys, want room for new ones", err, s.Keys())
	}
}

func TestExpiredKeysAreDropped(t *testing.T) {
	c := newClock()
	s := memstore.New(memstore.Config{Now: c.now})
	for round := range 50 {
		for i := range 500 {
			if _, err := s.Merge(t.Context(), []regional.Item{one(spread(round*500+i), c.now(), 1)}); err != nil {
				t.Fatal(err)
			}
		}
		c.advance(20 * time.Second)
	}
	// A count is kept for 64.5 s, so those of four rounds; the hand adds little.
	if got := s.Keys(); got > 3000 {
		t.Errorf("%d keys are held of 25000 merged, want about 2000: those not expired", got)
	}
}

func TestSeedMakesEpochsRepeatable(t *testing.T) {
	epoch := func(seed uint64) uint64 {
		e, err := memstore.New(memstore.Config{Seed: seed}).Epoch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	one, again, random, other := epoch(1), epoch(1), epoch(0), epoch(0)
	if one != again || one == epoch(2) || random == other {
		t.Error("want equal epochs of equal seeds, others of other seeds, and random ones of none")
	}
}

func TestMergeOfKnownKeysAllocatesOnlyTheAnswer(t *testing.T) {
	c := newClock()
	s := memstore.New(memstore.Config{Now: c.now})
	batch := make([]regional.Item, 64)
	for i := range batch {
		batch[i] = one(spread(i), c.now(), 1)
	}
	merge := func() {
		for i := range batch {
			batch[i].Vectors[0].Cells[0].Charges = 1 + (batch[i].Vectors[0].Cells[0].Charges+1)%200
		}
		out, err := s.Merge(context.Background(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for i := range out {
			batch[i].Version = out[i].Version
		}
	}
	merge()
	if got := testing.AllocsPerRun(100, merge); got > 1 {
		t.Errorf("a batch of 64 known keys allocates %v times, want 1", got)
	}
}
