package world

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// Store is a region's store, which fails as real ones do.
type Store struct {
	w     *World
	inner *memstore.Store
	seed  uint64
	state StoreState
	log   []write // the last memory, for a failover
	lost  int     // how often it lost something
}

// StoreState is what a store does with a call.
type StoreState int

const (
	StoreUp   StoreState = iota
	StoreDown            // it refuses
	StoreDeaf            // it writes, and the answer is lost
)

// write is a batch that was merged.
type write struct {
	at    time.Time
	batch []regional.Item
}

// memory is how long a store can still replay what was written: longer than
// its counts last in a trial.
const memory = 3 * time.Minute

var _ regional.Store = (*Store)(nil)

func newStore(w *World, seed uint64) *Store {
	return &Store{w: w, seed: seed, inner: memstore.New(memstore.Config{Now: w.Now, Seed: seed})}
}

// Set says what the store does from now on.
func (s *Store) Set(state StoreState) { s.state = state }

// Wipe has the store forget everything.
func (s *Store) Wipe() {
	s.log, s.lost = nil, s.lost+1
	s.inner.Wipe()
}

// FailOver puts a replica in the store's place, which lacks what was written
// last, for so long.
func (s *Store) FailOver(tail time.Duration) error {
	s.seed += 1 << 32 // another epoch
	s.lost++
	s.inner = memstore.New(memstore.Config{Now: s.w.Now, Seed: s.seed})
	kept := s.log[:0]
	for _, wr := range s.log {
		if wr.at.After(s.w.now.Add(-tail)) {
			break
		}
		if _, err := s.inner.Merge(context.Background(), wr.batch); err != nil {
			return fmt.Errorf("replay what the replica had: %w", err)
		}
		kept = append(kept, wr)
	}
	s.log = kept
	return nil
}

// Lost is how often the store lost what it had.
func (s *Store) Lost() int { return s.lost }

// Identity is the number that tells it from whatever it replaced, or was before it
// lost what it had, in whatever state it is.
func (s *Store) Identity() (uint64, error) { return s.inner.Epoch(context.Background()) }

func (s *Store) down() error { return fmt.Errorf("%w: it is down in this world", regional.ErrStore) }

// Merge implements regional.Store.
func (s *Store) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	s.w.asked++
	if s.state == StoreDown {
		return nil, s.down()
	}
	answer, err := s.inner.Merge(ctx, batch)
	if err == nil && s.w.cfg.Seed != 0 && !s.w.cfg.Unreplicated { // else nothing ever fails over
		s.remember(batch)
	}
	if s.state == StoreDeaf {
		return nil, s.down()
	}
	return answer, err
}

// remember keeps a copy of what was written.
func (s *Store) remember(batch []regional.Item) {
	n := 0
	for n < len(s.log) && s.w.now.Sub(s.log[n].at) > memory {
		n++
	}
	s.log = append(s.log[n:], write{s.w.now, slices.Clone(batch)})
	items := s.log[len(s.log)-1].batch
	for i := range items {
		it := &items[i]
		it.Carries = slices.Clone(it.Carries)
		it.Vectors = slices.Clone(it.Vectors)
		for j := range it.Vectors {
			it.Vectors[j].Cells = append([]crdt.Cell(nil), it.Vectors[j].Cells...)
		}
	}
}

// Load implements regional.Store.
func (s *Store) Load(ctx context.Context, keys []regional.Item) ([]regional.Item, error) {
	s.w.asked++
	if s.state != StoreUp {
		return nil, s.down()
	}
	return s.inner.Load(ctx, keys)
}

// Hot implements regional.Store.
func (s *Store) Hot(ctx context.Context, from int) (page []regional.Noted, next int, err error) {
	s.w.asked++
	if s.state != StoreUp {
		return nil, 0, s.down()
	}
	return s.inner.Hot(ctx, from)
}

// Epoch implements regional.Store.
func (s *Store) Epoch(ctx context.Context) (uint64, error) {
	s.w.asked++
	if s.state != StoreUp {
		return 0, s.down()
	}
	return s.inner.Epoch(ctx)
}

// Close implements regional.Store.
func (s *Store) Close() error { return s.inner.Close() }

// Holds is what the store has of a key, whatever state it is in.
func (s *Store) Holds(key deltasync.Key, width time.Duration, slices int) ([]regional.Vector, error) {
	answer, err := s.inner.Load(context.Background(), []regional.Item{{Key: key, Width: width, Slices: slices}})
	if err != nil || len(answer) == 0 {
		return nil, err
	}
	return answer[0].Vectors, nil
}
