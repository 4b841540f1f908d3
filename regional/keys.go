package regional

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// KeyState is what is known of a key by one rate.
type KeyState struct {
	Rate   *limit.Rate
	Key    deltasync.Key
	Owned  bool // the key's lane is this aggregator's, and so it has all that the region knows
	Stored bool // what is told is from the store, as nothing is held here
	Limit  uint64
	Used   uint64    // that counts now, by whomever
	Until  time.Time // of a penalty; zero: there is none
	Asked  float64   // that is asked for in a window, as edges tell it near the limit; below 0: nobody does
	By     []Spender // who counted it, the most first
}

// Spender is who counted something of a key.
type Spender struct {
	Source Source
	Region string // of edges this one
	PoP    string // "": of a region, or it is not known
	Node   uint64 // of an edge
	Used   uint64 // that counts now
	Last   time.Time
}

// String implements fmt.Stringer.
func (s Source) String() string {
	switch s {
	case FromEdge:
		return "edge"
	case FromRegion:
		return "region"
	case FromPeers:
		return "told_by_peers"
	case FromHomes:
		return "told_by_homes"
	}
	return fmt.Sprintf("source %d", uint8(s))
}

// Key is what is known of a key by a rate: from memory, or, where nothing is held here, from the store. Its
// error is that of the store, and what is told beside it is what memory has.
func (a *Aggregator) Key(ctx context.Context, now time.Time, rate *limit.Rate, key deltasync.Key) (KeyState, error) {
	lane := key.Lane(len(a.lanes))
	t, l := a.clock.At(now), a.lanes[lane]
	out := KeyState{Rate: rate, Key: key, Owned: a.Owns(lane), Limit: rate.Limit, Asked: -1}
	l.mu.Lock()
	c := l.counters[key]
	held := c != nil && c.shape.Width == rate.Width
	if held {
		if c.shape.Limit > 0 {
			out.Limit = c.shape.Limit
		}
		var sums []crdt.Cell
		if c.past == nil {
			sums = slices.Clone(l.everything(c))
			out.Used = rate.Rounded(rate.Used(sums, crdt.Carry{}, t))
		} else {
			out.Used = l.level(c, t)
		}
		if until := c.penalty.at(t); until > 0 {
			out.Until = time.Unix(0, until).UTC()
		}
		if c.contest != nil && c.past == nil {
			out.Asked = a.askedOf(c, t)
		}
		for _, source := range []Source{FromEdge, FromRegion, FromPeers, FromHomes} {
			for _, e := range c.of(source).Entries() {
				out.spent(a, source, e.Replica, e.Vector.Cells(nil), t)
			}
		}
	}
	l.mu.Unlock()
	if held && out.Owned {
		return out.sorted(), nil
	}
	items, err := a.store.Load(ctx, []Item{{Key: key, Width: rate.Width, Slices: rate.Span, Floor: rate.Drain.Floor > 0}})
	if err != nil || len(items) != 1 || held && len(items[0].Vectors) == 0 {
		return out.sorted(), err
	}
	out.stored(a, &items[0], t)
	return out.sorted(), nil
}

// stored is what the store has.
func (k *KeyState) stored(a *Aggregator, it *Item, now int64) {
	k.Stored, k.By = true, nil
	var all crdt.GCounter
	for _, v := range it.Vectors {
		k.spent(a, v.Source, v.Replica, v.Cells, now)
		if v.Source == FromEdge || v.Source == FromRegion {
			for _, cell := range v.Cells {
				all.Join(v.Replica, cell)
			}
		}
	}
	var carry crdt.Carry
	for _, c := range it.Carries {
		if c.Boundary > carry.Boundary || carry.Zero() {
			carry = c
		}
	}
	k.Used = k.Rate.Rounded(k.Rate.Used(all.Sums().Cells(nil), carry, now))
	if until := it.Punished(time.Unix(0, now)); until > 0 {
		k.Until = time.Unix(0, until).UTC()
	}
}

// spent notes what somebody counted.
func (k *KeyState) spent(a *Aggregator, source Source, replica crdt.Replica, cells []crdt.Cell, now int64) {
	if len(cells) == 0 {
		return
	}
	s := Spender{Source: source, Node: replica.Node, Region: a.cfg.Region, Used: k.Rate.Rounded(k.Rate.Used(cells, crdt.Carry{}, now))}
	s.Last = time.Unix(0, min(now, k.Rate.EndOf(cells[len(cells)-1].Slice))).UTC()
	if source == FromEdge {
		s.PoP = a.pops.name(deltasync.PopOf(replica.Node))
	} else if j := slices.Index(a.nodes, replica.Node); j >= 0 {
		s.Region, s.Node = a.cfg.Peers[j], 0
	}
	k.By = append(k.By, s)
}

func (k KeyState) sorted() KeyState {
	slices.SortFunc(k.By, func(x, y Spender) int {
		return cmp.Or(cmp.Compare(x.Source, y.Source), cmp.Compare(y.Used, x.Used), cmp.Compare(x.Region, y.Region), cmp.Compare(x.Node, y.Node))
	})
	return k
}

// askedOf is what is asked for of a key in a window, as edges of this region, and the others, tell it.
func (a *Aggregator) askedOf(c *counter, now int64) float64 {
	mid, window := a.demandOf(c, now)
	return max(0, min(mid, window)) * c.shape.Window().Seconds()
}

// Order is what the most of is looked for.
type Order string

// The orders that keys may be listed in.
const (
	ByDenied  Order = "denied"        // asked for in a window, and not admitted: of keys near their limit
	ByAllowed Order = "allowed"       // used now, as a part of the limit
	ByCost    Order = "cost"          // used now
	ByOver    Order = "over_admitted" // admitted beyond the limit of late, in truth
)

// TopKey is one of the keys of which there is most.
type TopKey struct {
	Rate  *limit.Rate
	Key   deltasync.Key
	Limit uint64
	Used  uint64
	Asked float64 // as KeyState has it
	Over  uint64
	Until time.Time
	score float64
}

// Denied is about what was asked for in a window and not admitted.
func (k *TopKey) Denied() uint64 { return uint64(max(0, k.Asked-float64(k.Used))) }

// lowest is a heap with the least of the keys first.
type lowest []TopKey

func (h lowest) Len() int { return len(h) }
func (h lowest) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].score, h[j].score), -cmp.Compare(h[i].Key, h[j].Key)) < 0
}
func (h lowest) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *lowest) Push(x any)   { *h = append(*h, x.(TopKey)) }
func (h *lowest) Pop() any {
	x := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return x
}

// Top is the most keys of rates by an order, the first one first, of the lanes that are this aggregator's: so
// many of how many lanes there are. rates are by generation. It looks at all keys, a few at a time,
// between which others have their lanes; n bounds what it keeps. ctx ends it early.
func (a *Aggregator) Top(ctx context.Context, now time.Time, by Order, rates map[uint64]*limit.Rate, n int) (top []TopKey, owned, lanes int) {
	t, found := a.clock.At(now), make(lowest, 0, n+1)
	for i, l := range a.lanes {
		if !a.Owns(i) {
			continue
		}
		owned++
		for at := 0; ctx.Err() == nil; at += strides {
			l.mu.Lock()
			keys := l.order
			if by == ByOver { // of which some hold nothing any more
				keys = l.truths.order
			}
			end := min(at+strides, len(keys))
			for _, key := range keys[min(at, end):end] {
				if k, ok := a.topOf(l, key, rates, by, t); ok {
					found.consider(k, n)
				}
			}
			done := end == len(keys)
			l.mu.Unlock()
			if done {
				break
			}
		}
	}
	slices.SortFunc(found, func(x, y TopKey) int { return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(x.Key, y.Key)) })
	return found, owned, len(a.lanes)
}

// consider keeps the n greatest. A key that came to stand elsewhere meanwhile may be seen twice.
func (h *lowest) consider(k TopKey, n int) {
	switch {
	case k.score <= 0:
	case len(*h) == n && (*h)[0].score >= k.score:
	case slices.ContainsFunc(*h, func(o TopKey) bool { return o.Key == k.Key }):
	default:
		heap.Push(h, k)
		if len(*h) > n {
			heap.Pop(h)
		}
	}
}

// topOf is how a key of a lane stands, if it is of one of these rates. The lane is locked.
func (a *Aggregator) topOf(l *lane, key deltasync.Key, rates map[uint64]*limit.Rate, by Order, now int64) (k TopKey, ok bool) {
	c, v := l.counters[key], l.truths.of[key]
	var shape deltasync.Shape
	switch {
	case c != nil:
		shape = c.shape
	case v != nil:
		shape = v.shape
	}
	rate := rates[shape.Generation]
	if rate == nil {
		return k, false
	}
	k = TopKey{Rate: rate, Key: key, Limit: cmp.Or(shape.Limit, rate.Limit), Asked: -1}
	if v != nil {
		for _, e := range v.found {
			k.Over = crdt.SatAdd(k.Over, e.hits)
		}
	}
	if c != nil {
		k.Used = l.used(c, now)
		if c.contest != nil && c.past == nil {
			k.Asked = a.askedOf(c, now)
		}
		if until := c.penalty.at(now); until > 0 {
			k.Until = time.Unix(0, until).UTC()
		}
	}
	switch by {
	case ByDenied:
		k.score = max(0, k.Asked-float64(k.Used))
	case ByAllowed:
		k.score = float64(k.Used) / math.Max(1, float64(k.Limit))
	case ByCost:
		k.score = float64(k.Used)
	case ByOver:
		k.score = float64(k.Over)
	}
	return k, true
}
