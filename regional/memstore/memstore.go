// Package memstore is the regional.Store in memory: for the demo, for tests and
// the simulator, and for a region that has no Redis and accepts that its counts
// live no longer than its aggregator.
//
// Keys are spread over shards by hash, each with its own lock. Expired keys are
// dropped by a hand that goes around a shard's records, a few steps with every
// item merged or loaded, so that no goroutine is needed and a call never stops
// to sweep. A store nobody calls keeps what it had, and grows by nothing.
package memstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

var (
	// ErrFull is returned, wrapped, and wraps regional.ErrStore: the store has
	// MaxKeys keys and took no new one. What it holds goes on being merged.
	ErrFull = fmt.Errorf("%w: full", regional.ErrStore)

	errClosed = errors.New("closed")
)

// KeyBytes is about what a key of one or two edges takes.
const KeyBytes = 400

// DefaultMaxKeys is MaxKeys where the Config says none.
const DefaultMaxKeys = 1 << 20

// shardCount is a power of two well above the number of cores.
const shardCount = 64

// Config says what the store is made of. The zero value is good.
type Config struct {
	// MaxKeys bounds the keys held; 0: DefaultMaxKeys. A key of one edge and 40
	// slices takes about 300 bytes. When full, new keys are refused with
	// ErrFull, so that what is known of the keys near their limits is never
	// given up for the sake of a flood of new ones.
	MaxKeys int
	// Now is the store's clock; nil: time.Now.
	Now func() time.Time
	// Seed makes epochs and versions repeatable; 0: a random one. Two stores of
	// the same seed cannot be told apart by their epochs.
	Seed uint64
}

// Store is a regional.Store in memory.
type Store struct {
	now     func() time.Time
	max     int64
	keys    atomic.Int64
	refused atomic.Uint64
	closed  atomic.Bool
	epoch   atomic.Uint64
	next    atomic.Uint32 // shard that makeRoom sweeps
	shards  [shardCount]shard
}

var _ regional.Store = (*Store)(nil)

// New returns an empty store.
func New(cfg Config) *Store {
	s := &Store{now: cfg.Now, max: int64(cfg.MaxKeys)}
	if s.now == nil {
		s.now = time.Now
	}
	if s.max <= 0 {
		s.max = DefaultMaxKeys
	}
	seed := cfg.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	r := rand.New(rand.NewPCG(seed, 0))
	s.epoch.Store(r.Uint64())
	for i := range s.shards {
		// Versions begin anywhere, so that one of an earlier store is not
		// mistaken for one of this.
		s.shards[i].version = r.Uint64()
		s.shards[i].index = make(map[name]int32)
	}
	return s
}

// Merge implements regional.Store. With ErrFull all keys but the refused ones
// were merged, as far as the batch goes.
func (s *Store) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	return s.each(ctx, "merge", batch, (*shard).merge)
}

// Load implements regional.Store.
func (s *Store) Load(ctx context.Context, keys []regional.Item) ([]regional.Item, error) {
	return s.each(ctx, "load", keys, (*shard).load)
}

// checkEvery is after how many items a call looks at its context again.
const checkEvery = 1024

func (s *Store) each(ctx context.Context, verb string, batch []regional.Item, do func(*shard, *Store, *regional.Item, time.Time) (regional.Item, bool)) ([]regional.Item, error) {
	for i := range batch {
		if err := batch[i].Check(); err != nil {
			return nil, fmt.Errorf("%s batch: %w: %w", verb, regional.ErrStore, err)
		}
	}
	now := s.now()
	out := make([]regional.Item, len(batch))
	refused := 0
	for i := range batch {
		if i%checkEvery == 0 {
			if err := s.usable(ctx); err != nil {
				return nil, fmt.Errorf("%s batch: %w", verb, err)
			}
		}
		sh, ok := s.shardOf(batch[i].Key), false
		if out[i], ok = do(sh, s, &batch[i], now); ok {
			continue
		}
		s.makeRoom(now)
		if out[i], ok = do(sh, s, &batch[i], now); !ok {
			refused++
		}
	}
	if refused > 0 {
		s.refused.Add(uint64(refused))
		return nil, fmt.Errorf("%s batch: %w: %d of %d keys are new and there is room for %d; raise MaxKeys", verb, ErrFull, refused, len(batch), s.max)
	}
	return out, nil
}

// makeRoom sweeps the next few shards when the store is full: expired keys of
// shards that are not written to must not keep new ones out.
func (s *Store) makeRoom(now time.Time) {
	for range 4 {
		sh := &s.shards[s.next.Add(1)%shardCount]
		sh.mu.Lock()
		sh.sweep(s, now, 16*steps)
		sh.mu.Unlock()
	}
}

func (s *Store) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", regional.ErrStore, err)
	}
	if s.closed.Load() {
		return fmt.Errorf("%w: %w", regional.ErrStore, errClosed)
	}
	return nil
}

// listAtOnce is how many shards make a page of Hot.
const listAtOnce = 8

// Hot implements regional.Store.
func (s *Store) Hot(ctx context.Context, from int) (page []regional.Noted, next int, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, 0, fmt.Errorf("list hot keys: %w", err)
	}
	now := s.now()
	for ; next < listAtOnce && from+next < shardCount; next++ {
		page = s.shards[from+next].listed(page, now)
	}
	return page, (from + next) % shardCount, nil
}

// Epoch implements regional.Store.
func (s *Store) Epoch(ctx context.Context) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, fmt.Errorf("epoch: %w", err)
	}
	return s.epoch.Load(), nil
}

// Close makes every later call fail. It frees nothing: drop the store for that.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// Wipe forgets every count and changes the epoch, as a Redis that lost its
// memory would: a fault for tests and demonstrations.
func (s *Store) Wipe() {
	for i := range s.shards {
		s.keys.Add(-int64(s.shards[i].wipe()))
	}
	// After the counts: an owner that sees the new epoch and merges again must
	// not have that wiped, too.
	s.epoch.Add(0x9e3779b97f4a7c15) // odd, so that it takes 2^64 wipes to come around
}

// Keys is the number of keys held, expired ones not yet dropped included.
func (s *Store) Keys() int { return int(s.keys.Load()) }

// Refused is how many merges of a new key were refused because the store was
// full.
func (s *Store) Refused() uint64 { return s.refused.Load() }

// shardOf takes the high bits: the low ones and the middle name tags and lanes.
func (s *Store) shardOf(k deltasync.Key) *shard {
	return &s.shards[uint64(k)>>(64-6)]
}
