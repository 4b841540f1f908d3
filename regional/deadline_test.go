package regional_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
)

// lazy is a store that takes its time over each merge.
type lazy struct {
	*memstore.Store
	takes time.Duration
}

func (s *lazy) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	select {
	case <-time.After(s.takes):
		return s.Store.Merge(ctx, batch)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", regional.ErrStore, ctx.Err())
	}
}

// lazyRegion is a region over a lazy store, inside of a synctest bubble.
func lazyRegion(t *testing.T, takes time.Duration) (*region, *lazy) {
	t.Helper()
	s := &lazy{Store: memstore.New(memstore.Config{Seed: 1}), takes: takes}
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, Incarnation: 1}, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Sync(t.Context(), time.Now()); err != nil { // a new epoch would have all written
		t.Fatal(err)
	}
	return &region{Aggregator: a, t: t, name: "eu", now: time.Now(), store: s}, s
}

// many is a section with one count of each of n keys, the first of them given.
func many(at time.Time, first deltasync.Key, n int) deltasync.Section {
	sec := deltasync.Section{Shape: minute}
	for k := range deltasync.Key(n) {
		sec.Deltas = append(sec.Deltas, deltasync.Delta{Key: first + k, Cells: []crdt.Cell{charge(at, 1)}})
	}
	return sec
}

// A frame waits for the store as long as its sender waits for the answer, not
// as long for each 256 keys of it.
func TestLargeFrameWaitsNoLongerThanStoreTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := lazyRegion(t, 70*time.Millisecond)
		before := time.Now()
		down := (&edge{name: "e1"}).send(r, many(before, 1, 3000))
		if took := time.Since(before); took != 200*time.Millisecond {
			t.Errorf("a frame of 12 batches of 70ms waited %v, want StoreTimeout, 200ms", took)
		}
		if down.Status != deltasync.StatusStoreDown {
			t.Errorf("status %v, want store_down: not all of it is stored", down.Status)
		}
		// Two batches were done in time; what was written stays written.
		if got, st := s.Keys(), r.Stats(time.Now()); got != 512 || st.Unstored != 3000-512 {
			t.Errorf("%d keys stored and %d unstored, want 512 and the rest", got, st.Unstored)
		}
		// A backlog has the timeout a batch: it is worked off, however long.
		if err := r.Sync(t.Context(), time.Now()); err != nil {
			t.Fatalf("Sync: %v", err)
		}
		if got, st := s.Keys(), r.Stats(time.Now()); got != 3000 || st.Unstored != 0 || st.StoreDown {
			t.Errorf("after Sync: %d keys stored, %+v, want all", got, st)
		}
	})
}

// A Sync that is cut short keeps what it wrote, and the next goes on from there.
func TestSyncGoesOnWhereItStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := lazyRegion(t, time.Second) // longer than any frame waits
		(&edge{name: "e1"}).send(r, many(time.Now(), 1, 2000))
		if got := s.Keys(); got != 0 {
			t.Fatalf("%d keys stored, want none", got)
		}
		s.takes = 100 * time.Millisecond
		for i := 1; i <= 4; i++ {
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			err := r.Sync(ctx, time.Now())
			cancel()
			if done := i == 4; (err == nil) != done {
				t.Errorf("Sync %d: %v, want done = %v", i, err, done)
			}
			if got, want := s.Keys(), min(512*i, 2000); got != want {
				t.Errorf("%d keys stored after Sync %d, want %d", got, i, want)
			}
		}
	})
}

// An aggregator that is told to stop does so in bounded time, and says what its
// store lacks.
func TestRunEndsThoughTheStoreIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := lazyRegion(t, time.Second)
		e := &edge{name: "e1"}
		const keys = 10_000 // 40 batches: 7.6s
		e.send(r, many(time.Now(), 1, keys/2))
		e.send(r, many(time.Now(), 1+keys/2, keys/2))
		s.takes = 190 * time.Millisecond
		bus := membus.New()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx, bus) }() // stop ends it; received below
		stop()
		before := time.Now()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(before); took != 5*time.Second {
			t.Errorf("Run took %v to stop, want 5s: the rest is left to the edges", took)
		}
		if got, st := s.Keys(), r.Stats(time.Now()); got != 26*256 || st.Unstored != keys-got {
			t.Errorf("%d keys stored and %d unstored, want 26 batches and the rest", got, st.Unstored)
		}
		if err := bus.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The same counts once more, while the store still waits to be done with them,
// are not acknowledged before they are stored.
func TestDuplicateWaitsForTheStoreToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := lazyRegion(t, 0)
		(&edge{name: "e1"}).tell(r, 9, charge(r.now, 1))
		s.takes = time.Minute // it does not answer in time
		first := make(chan deltasync.Status)
		go func() { first <- (&edge{name: "e1", seq: 100}).tell(r, 9, charge(r.now, 2)).Status }()
		synctest.Wait()
		second := (&edge{name: "e1", seq: 200}).tell(r, 9, charge(r.now, 2)).Status
		if got := <-first; got != deltasync.StatusStoreDown || second != got {
			t.Errorf("the first is answered %v, the same again %v, want both store_down", got, second)
		}
		// Nothing is written twice once all is stored.
		s.takes = 0
		if err := r.Sync(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		s.takes = time.Minute
		if got := (&edge{name: "e1", seq: 300}).tell(r, 9, charge(r.now, 2)).Status; got != deltasync.StatusOK {
			t.Errorf("the same again when it is stored: %v, want ok", got)
		}
	})
}

// So do a penalty that comes twice, and the older of two slices of which the
// newer is news.
func TestDuplicatesOfAnyKindWait(t *testing.T) {
	older := func(r *region) crdt.Cell {
		c := charge(r.now, 2)
		c.Slice--
		return c
	}
	section := func(d deltasync.Delta) deltasync.Section {
		d.Key = 9
		return deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{d}}
	}
	for name, test := range map[string]struct {
		first, second func(r *region) deltasync.Delta
	}{
		"a penalty": {first: func(r *region) deltasync.Delta {
			return deltasync.Delta{Until: r.now.Add(time.Hour).UnixNano()}
		}},
		"cells and a penalty": {first: func(r *region) deltasync.Delta {
			return deltasync.Delta{Cells: []crdt.Cell{older(r)}, Until: r.now.Add(time.Hour).UnixNano()}
		}},
		"an older slice": {func(r *region) deltasync.Delta {
			return deltasync.Delta{Cells: []crdt.Cell{older(r)}}
		}, func(r *region) deltasync.Delta {
			return deltasync.Delta{Cells: []crdt.Cell{older(r), charge(r.now, 1)}}
		}},
	} {
		if test.second == nil {
			test.second = test.first
		}
		synctest.Test(t, func(t *testing.T) {
			r, s := lazyRegion(t, 0)
			(&edge{name: "e1"}).tell(r, 9) // it is known to the store
			s.takes = time.Minute
			first := make(chan deltasync.Status)
			go func() { first <- (&edge{name: "e1", seq: 100}).send(r, section(test.first(r))).Status }()
			synctest.Wait()
			s.takes = 0 // it was one slow call
			status := (&edge{name: "e1", seq: 200}).send(r, section(test.second(r))).Status
			got, err := s.Store.Merge(t.Context(), []regional.Item{{Key: 9, Width: minute.Width, Slices: minute.Slices}})
			if err != nil {
				t.Fatal(err)
			}
			want := test.second(r)
			if status != deltasync.StatusOK || got[0].Until != want.Until || len(want.Cells) > 0 && len(got[0].Vectors) == 0 ||
				len(want.Cells) > 0 && len(got[0].Vectors[0].Cells) != len(want.Cells) {
				t.Errorf("%s: answered %v, the store has %+v until %d, want %+v", name, status, got[0].Vectors, got[0].Until, want)
			}
			<-first
		})
	}
}

// An answer is stamped with when it was received and when it leaves: what the
// store took is not taken for a way that was one-sided.
func TestAnswerIsStampedWhenItLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := lazyRegion(t, 0)
		s.takes = 120 * time.Millisecond
		down := (&edge{name: "e1"}).tell(r, 9, charge(r.now, 1))
		if at := r.now.UnixNano(); down.ReceivedAt != at || down.SentAt != at+int64(s.takes) {
			t.Errorf("received %v and sent %v after the frame came, want 0 and %v", time.Duration(down.ReceivedAt-at), time.Duration(down.SentAt-at), s.takes)
		}
	})
}
