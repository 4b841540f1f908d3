package regional_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// silent is a store that answers nothing while told to, and lets go of a call
// only when its context ends.
type silent struct {
	*memstore.Store
	epoch, merge bool
}

func (s *silent) Epoch(ctx context.Context) (uint64, error) {
	if s.epoch {
		<-ctx.Done()
		return 0, fmt.Errorf("%w: %w", regional.ErrStore, ctx.Err())
	}
	return s.Store.Epoch(ctx)
}

func (s *silent) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	if s.merge {
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", regional.ErrStore, ctx.Err())
	}
	return s.Store.Merge(ctx, batch)
}

// silentRegion is a region in step with its store.
func silentRegion(t *testing.T) (*region, *silent) {
	t.Helper()
	s := &silent{Store: memstore.New(memstore.Config{Seed: 1})}
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, Incarnation: 1, StoreTimeout: 150 * time.Millisecond}, s)
	if err != nil {
		t.Fatal(err)
	}
	r := &region{Aggregator: a, t: t, name: "eu", now: time.Now(), store: s}
	if err := r.Sync(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	return r, s
}

// A store that does not even tell its epoch is given up after StoreTimeout, and
// is down then: the loop that asks goes on, and no frame waits for it.
func TestSyncGivesUpASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := silentRegion(t)
		s.epoch = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		before := time.Now()
		err := r.Sync(ctx, before)
		if took := time.Since(before); err == nil || took != 150*time.Millisecond {
			t.Errorf("Sync: %v after %v, want an error after StoreTimeout, 150ms", err, took)
		}
		if !r.Stats(time.Now()).StoreDown {
			t.Error("a store that does not answer passes for one that does")
		}
		before = time.Now()
		down := (&edge{name: "e1"}).send(r, many(before, 1, 10))
		if took := time.Since(before); down.Status != deltasync.StatusStoreDown || took != 0 {
			t.Errorf("a frame meanwhile: %v after %v, want store_down at once", down.Status, took)
		}
	})
}

// Who stops an aggregator learns nothing of its store: that it was let go of
// does not make it down.
func TestCancelledSyncSaysNothingOfTheStore(t *testing.T) {
	for name, hang := range map[string]func(s *silent){
		"asking for the epoch": func(s *silent) { s.epoch = true },
		"writing":              func(s *silent) { s.merge = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, s := silentRegion(t)
				(&edge{name: "e1"}).send(r, many(time.Now(), 1, 10))
				s.Wipe() // so that there is something to write
				hang(s)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(50*time.Millisecond, cancel)
				before := time.Now()
				err := r.Sync(ctx, before)
				if took := time.Since(before); err == nil || took != 50*time.Millisecond {
					t.Errorf("Sync: %v after %v, want an error when it was cancelled, after 50ms", err, took)
				}
				if r.Stats(time.Now()).StoreDown {
					t.Error("the store counts as down, though nobody waited for its answer")
				}
				s.epoch, s.merge = false, false
				if err := r.Sync(t.Context(), time.Now()); err != nil || s.Keys() != 10 {
					t.Errorf("the next Sync: %v, %d keys stored; want all 10", err, s.Keys())
				}
			})
		})
	}
}
