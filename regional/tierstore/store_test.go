package tierstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/regional/storetest"
	"github.com/spillgate/spillgate/sync"
)

// The suite, with all of its windows in one half, or in both.
func TestStore(t *testing.T) {
	for name, longest := range map[string]time.Duration{"short": Longest, "long": 0, "both": time.Second} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Subject {
				now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
				half := func(seed uint64) *memstore.Store {
					return memstore.New(memstore.Config{Now: func() time.Time { return now }, Seed: seed})
				}
				short, long := half(1), half(2)
				s := New(short, long)
				s.longest = longest
				return storetest.Subject{
					Store:   s,
					Now:     func() time.Time { return now },
					Advance: func(d time.Duration) { now = now.Add(d) },
					Wipe: func() {
						short.Wipe()
						long.Wipe()
					},
				}
			})
		})
	}
}

func item(key deltasync.Key, window time.Duration) regional.Item {
	it := regional.Item{Key: key, Width: window / 40, Slices: 40}
	it.Vectors = []regional.Vector{{Source: regional.FromEdge, Replica: crdt.Replica{Node: 1},
		Cells: []crdt.Cell{{Slice: crdt.Slice(time.Now().UnixNano() / int64(it.Width)), Charges: uint64(key)}}}}
	return it
}

func TestWindowsPartAtTenMinutes(t *testing.T) {
	short, long := memstore.New(memstore.Config{Seed: 1}), memstore.New(memstore.Config{Seed: 2})
	s := New(short, long)
	batch := []regional.Item{item(1, time.Minute), item(2, time.Hour), item(3, 10*time.Minute), item(4, 24*time.Hour), item(5, 10*time.Minute+40*time.Millisecond)}
	if _, err := s.Merge(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 1, 0, 1, 1} {
		if got := s.Part(&batch[i]); got != want {
			t.Errorf("item %d is in part %d, want %d", i, got, want)
		}
		if out, err := [...]*memstore.Store{short, long}[want].Load(t.Context(), batch[i:i+1]); err != nil || len(out[0].Vectors) != 1 {
			t.Errorf("item %d: half %d has %v, %v, want its count", i, want, out, err)
		}
	}
	if short.Keys() != 2 || long.Keys() != 3 {
		t.Errorf("%d and %d keys, want 2 and 3", short.Keys(), long.Keys())
	}
}

// shards is a store of three parts of which some are away.
type shards struct {
	*memstore.Store
	away []int
}

func (s *shards) Parts() int                 { return 3 }
func (s *shards) Part(it *regional.Item) int { return int(it.Key % 3) }
func (s *shards) err() error {
	if len(s.away) == 0 {
		return nil
	}
	return &regional.PartsError{Parts: s.away, Err: fmt.Errorf("%w: unplugged", regional.ErrStore)}
}

func (s *shards) Epochs(context.Context) ([]uint64, error) { return []uint64{7, 8, 9}, s.err() }

func (s *shards) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	out, err := s.Store.Merge(ctx, batch)
	return out, errors.Join(err, s.err())
}

// Parts of a half are parts of the whole, and who is away is named by them.
func TestHalvesOfParts(t *testing.T) {
	short, long := &shards{Store: memstore.New(memstore.Config{})}, &shards{Store: memstore.New(memstore.Config{})}
	s := New(short, long)
	if got := s.Parts(); got != 6 {
		t.Fatalf("%d parts, want 6", got)
	}
	short.away, long.away = []int{2}, []int{0, 1}
	want := []int{2, 3, 4}
	batch := []regional.Item{item(1, time.Minute), item(2, time.Minute), item(3, time.Hour), item(5, time.Hour)}
	for i, want := range []int{1, 2, 3, 5} {
		if got := s.Part(&batch[i]); got != want {
			t.Errorf("item %d is in part %d, want %d", i, got, want)
		}
	}
	out, err := s.Merge(t.Context(), batch)
	some, ok := errors.AsType[*regional.PartsError](err)
	if !ok || !slices.Equal(some.Parts, want) || !errors.Is(err, regional.ErrStore) {
		t.Errorf("Merge: %v, want ErrStore of parts %v", err, want)
	}
	if len(out) != 4 || out[0].Key != 1 || out[3].Key != 5 || out[3].Version == 0 {
		t.Errorf("Merge = %v, want answers of the parts that are there", out)
	}
	epochs, err := s.Epochs(t.Context())
	if some, ok := errors.AsType[*regional.PartsError](err); !ok || !slices.Equal(some.Parts, want) || !slices.Equal(epochs, []uint64{7, 8, 9, 7, 8, 9}) {
		t.Errorf("Epochs = %v, %v, want all, and parts %v away", epochs, err, want)
	}
}
