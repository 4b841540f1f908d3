package regional

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync/atomic"

	"github.com/spillgate/spillgate/sync"
)

// Parted is a Store of parts that fail, and lose counts, each by itself: shards
// of a cluster, or two servers. One that is away or was wiped is no reason to
// leave the others alone, or to write to them again.
type Parted interface {
	Store

	// Parts is their number, which never changes, and Part the one that keeps an
	// item: the same for all items of one Key, Width and Slices.
	Parts() int
	Part(it *Item) int

	// Epochs is Epoch of each part. Its error, and that of Merge and Load, may be
	// a *PartsError: then what it answers of the other parts is good.
	Epochs(ctx context.Context) ([]uint64, error)
}

// PartsError says which parts of a store did not do what was asked.
type PartsError struct {
	Parts []int
	Err   error // what one of them said; it wraps ErrStore
}

func (e *PartsError) Error() string { return e.Err.Error() }

func (e *PartsError) Unwrap() error { return e.Err }

// partSet is a set of parts; nil is empty.
type partSet []bool

func (s partSet) has(part int) bool { return s != nil && s[part] }

// with is s and what is in t; it may change s.
func (s partSet) with(t partSet) partSet {
	if s == nil {
		return slices.Clone(t)
	}
	for p := range t {
		s[p] = s[p] || t[p]
	}
	return s
}

// parts is a store and what is known of each of its parts.
type parts struct {
	Store
	split Parted // the same store; nil: it is one part
	known []part
	away  atomic.Int32 // parts that are down
}

// part is what is known of one.
type part struct {
	epoch atomic.Uint64 // 0: not yet read
	down  atomic.Bool
}

func newParts(store Store) *parts {
	p := &parts{Store: store}
	n := 1
	if p.split, _ = store.(Parted); p.split != nil {
		n = p.split.Parts()
	}
	p.known = make([]part, n)
	return p
}

// part is the one that keeps an item.
func (p *parts) part(it *Item) int {
	if p.split == nil {
		return 0
	}
	return p.split.Part(it)
}

// of is the part that keeps a key.
func (p *parts) of(key deltasync.Key, c *counter) int {
	it := stored(c.shape)
	it.Key = key
	return p.part(&it)
}

// epochs asks every part.
func (p *parts) epochs(ctx context.Context) ([]uint64, error) {
	if p.split == nil {
		epoch, err := p.Epoch(ctx)
		return []uint64{epoch}, err
	}
	epochs, err := p.split.Epochs(ctx)
	if _, some := errors.AsType[*PartsError](err); len(epochs) != len(p.known) && (err == nil || some) {
		err = fmt.Errorf("%w: epochs of %d parts, want %d", ErrStore, len(epochs), len(p.known))
	}
	return epochs, err
}

// failed is the parts that did not do what was asked, by the error of a call.
func (p *parts) failed(err error) partSet {
	if err == nil {
		return nil
	}
	all := make(partSet, len(p.known))
	if some, ok := errors.AsType[*PartsError](err); ok && p.split != nil {
		for _, part := range some.Parts {
			all[part] = true
		}
		return all
	}
	for part := range all {
		all[part] = true
	}
	return all
}

// down is the parts that do not answer.
func (p *parts) down() partSet {
	if p.away.Load() == 0 {
		return nil
	}
	s := make(partSet, len(p.known))
	for i := range p.known {
		s[i] = p.known[i].down.Load()
	}
	return s
}

// set notes whether parts answer, and says whether with that the first went
// away, or the last came back.
func (p *parts) set(s partSet, down bool) (turned bool) {
	by := int32(-1)
	if down {
		by = 1
	}
	for i := range p.known {
		if s.has(i) && p.known[i].down.Swap(down) != down {
			now := p.away.Add(by)
			turned = turned || now == 0 || now == 1 && down
		}
	}
	return turned
}

// learn notes the epochs of all parts but those that are away. It returns the
// parts that may have lost counts, and whether they were known before.
func (p *parts) learn(epochs []uint64, away partSet) (lost partSet, again bool) {
	for i := range p.known {
		if away.has(i) {
			continue
		}
		if old := p.known[i].epoch.Swap(epochs[i]); old != epochs[i] {
			if lost == nil {
				lost = make(partSet, len(p.known))
			}
			lost[i], again = true, again || old != 0
		}
	}
	return lost, again
}

// identity is epoch where all parts have answered once, else 0.
func (p *parts) identity() uint64 {
	for i := range p.known {
		if p.known[i].epoch.Load() == 0 {
			return 0
		}
	}
	return p.epoch()
}

// epoch is one number of all epochs.
func (p *parts) epoch() uint64 {
	if len(p.known) == 1 {
		return p.known[0].epoch.Load()
	}
	h := fnv.New64a()
	for i := range p.known {
		h.Write(binary.LittleEndian.AppendUint64(nil, p.known[i].epoch.Load()))
	}
	return h.Sum64()
}
