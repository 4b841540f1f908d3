// Package tierstore is a regional.Store made of two: windows of up to ten minutes
// live in one that needs no disk, since what it loses is sent again within
// seconds; longer ones in another that keeps them on disk, since by then those
// who counted may be gone. Each fails, and loses counts, by itself.
package tierstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/spillgate/spillgate/regional"
)

// Longest is the longest window of the short store. Of a bucket, which has no
// window, the slices that are kept decide.
const Longest = 10 * time.Minute

// Store is both.
type Store struct {
	halves  [2]half // short, long
	longest time.Duration
}

var _ regional.Parted = (*Store)(nil)

// half is one of the two, and which parts of the whole its parts are.
type half struct {
	regional.Store
	split regional.Parted // the same; nil: it is one part
	first int
	parts int
}

// New joins two stores, which are the Store's to close.
func New(short, long regional.Store) *Store {
	s := &Store{longest: Longest}
	first := 0
	for i, store := range []regional.Store{short, long} {
		h := half{Store: store, first: first, parts: 1}
		if h.split, _ = store.(regional.Parted); h.split != nil {
			h.parts = h.split.Parts()
		}
		s.halves[i], first = h, first+h.parts
	}
	return s
}

// Parts implements regional.Parted.
func (s *Store) Parts() int { return s.halves[0].parts + s.halves[1].parts }

// Part implements regional.Parted.
func (s *Store) Part(it *regional.Item) int {
	h := &s.halves[s.half(it)]
	if h.split == nil {
		return h.first
	}
	return h.first + h.split.Part(it)
}

func (s *Store) half(it *regional.Item) int {
	if time.Duration(it.Slices)*it.Width > s.longest {
		return 1
	}
	return 0
}

// Merge implements regional.Store; its error may be a *regional.PartsError.
func (s *Store) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	return s.exchange("merge batch", batch, func(h *half, part []regional.Item) ([]regional.Item, error) {
		return h.Merge(ctx, part)
	})
}

// Load implements regional.Store; its error may be a *regional.PartsError.
func (s *Store) Load(ctx context.Context, keys []regional.Item) ([]regional.Item, error) {
	return s.exchange("load keys", keys, func(h *half, part []regional.Item) ([]regional.Item, error) {
		return h.Load(ctx, part)
	})
}

// exchange asks each half about its items, both at once.
func (s *Store) exchange(verb string, batch []regional.Item, ask func(*half, []regional.Item) ([]regional.Item, error)) ([]regional.Item, error) {
	var items [2][]regional.Item
	var at [2][]int
	for i := range batch {
		if err := batch[i].Check(); err != nil { // nothing of it is stored, in either half
			return nil, fmt.Errorf("%s: %w: %w", verb, regional.ErrStore, err)
		}
		h := s.half(&batch[i])
		items[h], at[h] = append(items[h], batch[i]), append(at[h], i)
	}
	out := make([]regional.Item, len(batch))
	err := s.both(func(i int, h *half) error {
		if len(items[i]) == 0 {
			return nil
		}
		answer, err := ask(h, items[i])
		if _, some := errors.AsType[*regional.PartsError](err); err != nil && !some {
			return err
		}
		if len(answer) != len(items[i]) {
			return fmt.Errorf("%s: %w: %d answers to %d keys", verb, regional.ErrStore, len(answer), len(items[i]))
		}
		for n, it := range answer {
			out[at[i][n]] = it
		}
		return err
	})
	return out, err
}

// both does something with each half, at once, and returns the parts that failed.
func (s *Store) both(do func(i int, h *half) error) error {
	var errs [2]error
	var wg sync.WaitGroup
	wg.Go(func() { errs[1] = do(1, &s.halves[1]) }) // waited for below; ctx stops it
	errs[0] = do(0, &s.halves[0])
	wg.Wait()
	var failed regional.PartsError
	for i, err := range errs {
		if err == nil {
			continue
		}
		h := &s.halves[i]
		if some, ok := errors.AsType[*regional.PartsError](err); ok && h.split != nil {
			for _, part := range some.Parts {
				failed.Parts = append(failed.Parts, h.first+part)
			}
		} else {
			for part := range h.parts {
				failed.Parts = append(failed.Parts, h.first+part)
			}
		}
		if failed.Err == nil {
			failed.Err = fmt.Errorf("%s windows: %w", names[i], err)
		}
	}
	if failed.Err == nil {
		return nil
	}
	return &failed
}

// secondHalf is the place in the list at which that of the long store begins.
const secondHalf = 1 << 30

// Hot implements regional.Store: first what the short store lists, then the long
// one.
func (s *Store) Hot(ctx context.Context, from int) (page []regional.Noted, next int, err error) {
	half, begin := 0, 0
	if from >= secondHalf {
		half, begin = 1, secondHalf
	}
	page, next, err = s.halves[half].Hot(ctx, from-begin)
	if err != nil {
		err = fmt.Errorf("%s windows: %w", names[half], err)
	}
	switch {
	case next != 0:
		next += begin
	case half == 0:
		next = secondHalf
	}
	return page, next, err
}

// names are those of the halves.
var names = [...]string{"short", "long"}

// Epochs implements regional.Parted.
func (s *Store) Epochs(ctx context.Context) ([]uint64, error) {
	out := make([]uint64, s.Parts())
	err := s.both(func(_ int, h *half) (err error) {
		if h.split == nil {
			out[h.first], err = h.Epoch(ctx)
			return err
		}
		epochs, err := h.split.Epochs(ctx)
		copy(out[h.first:h.first+h.parts], epochs)
		return err
	})
	return out, err
}

// Epoch implements regional.Store: it changes when one of the parts' does.
func (s *Store) Epoch(ctx context.Context) (uint64, error) {
	epochs, err := s.Epochs(ctx)
	if err != nil {
		return 0, err
	}
	h := fnv.New64a()
	for _, e := range epochs {
		h.Write(binary.LittleEndian.AppendUint64(nil, e))
	}
	return h.Sum64(), nil
}

// Close implements regional.Store.
func (s *Store) Close() error {
	return errors.Join(s.halves[0].Close(), s.halves[1].Close())
}
