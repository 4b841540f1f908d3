package edge

import (
	"fmt"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// View keeps totals of keys that are not live here: pushed by the region, or
// left by keys on their way out. It is a cache: it may forget anything at any
// time, which costs accuracy until the region has been asked again, and never
// a count. It must be safe for concurrent use and must not block.
type View interface {
	// Get returns what was last set; the zero value where nothing is left.
	Get(key deltasync.Key) Totals
	// Set keeps totals for at most ttl. The view owns them from then on.
	Set(key deltasync.Key, totals Totals, ttl time.Duration)
	// Close releases the view's memory and goroutines.
	Close()
}

// Totals is what a view keeps of a key: by slice, ascending, not to be changed,
// and when they were heard (ns since 1970; 0: never), of how many regions.
type Totals struct {
	Cells   []crdt.Cell
	Carry   crdt.Carry // of a bucket
	Until   int64      // end of a penalty, in ns since 1970; 0: none
	Heard   int64
	Regions uint16
	Here    bool // the key was live here: some may wait whom this edge told turns
	Handed  bool // rules changed, and the key went on under another: the rest is empty, and was handed on
}

// empty says that nothing is known but that somebody was asked.
func (t *Totals) empty() bool { return len(t.Cells) == 0 && t.Carry.Zero() && t.Until == 0 }

// seen is what the view has of a key that did not go on under another.
func (n *Node) seen(key deltasync.Key) Totals {
	if totals := n.cfg.View.Get(key); !totals.Handed {
		return totals
	}
	return Totals{}
}

// noView forgets everything at once.
type noView struct{}

func (noView) Get(deltasync.Key) Totals                 { return Totals{} }
func (noView) Set(deltasync.Key, Totals, time.Duration) {}
func (noView) Close()                                   {}

var (
	_ View = noView{}
	_ View = (*CacheView)(nil)
)

// CacheView is the View over ristretto.
type CacheView struct {
	cache *ristretto.Cache[uint64, Totals]
}

// cellBytes is the cost of a cell and of an entry as ristretto accounts it.
const (
	cellBytes  = 24
	entryBytes = 112
)

// NewCacheView makes a view that holds about maxBytes of totals.
func NewCacheView(maxBytes int64) (*CacheView, error) {
	cache, err := ristretto.NewCache(&ristretto.Config[uint64, Totals]{
		NumCounters: max(1000, maxBytes/entryBytes*10/2), // ten for each entry of two cells or so, as its authors advise
		MaxCost:     maxBytes,
		BufferItems: 64,
	})
	if err != nil {
		return nil, fmt.Errorf("view of %d bytes: %w", maxBytes, err)
	}
	return &CacheView{cache: cache}, nil
}

// Get implements View.
func (v *CacheView) Get(key deltasync.Key) Totals {
	totals, _ := v.cache.Get(uint64(key))
	return totals
}

// Set implements View. Ristretto applies it a little later, or drops it when
// its buffers are full.
func (v *CacheView) Set(key deltasync.Key, totals Totals, ttl time.Duration) {
	v.cache.SetWithTTL(uint64(key), totals, int64(entryBytes+cellBytes*len(totals.Cells)), ttl)
}

// Wait blocks until what was set so far can be got.
func (v *CacheView) Wait() { v.cache.Wait() }

// Close implements View.
func (v *CacheView) Close() { v.cache.Close() }
