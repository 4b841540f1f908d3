package regional

import (
	"iter"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// In a mesh each region tells each other one what it counted: of many regions
// most of what they do. Or a key has two homes, drawn by rendezvous hashing: each
// region tells it to these, and hears from them what others did. Its total is
//
//	L + max(X, O)
//
// by slice: L its own edges, X the entries of the regions that it heard of
// themselves, O the most that a home told of all others together. X and O are lower
// bounds of the same truth, so it does not matter who tells whom, nor in what order
// regions change their minds about it. A home tells what regions told it, less the
// entry of the one that asks, and nothing of O: there are its own counts in it.
//
// Nobody hears by that what he does not ask about. So a region asks the homes when
// its edges ask; and of a key that has crossed a threshold of its limit it tells all
// regions what it counted itself, as in a mesh, and again with each hundredth of the
// limit that it spends, or a little later. Penalties are told to all at once.

// Targets says to which other regions one tells what it counted of a key.
type Targets string

const (
	TargetsAuto  Targets = "auto"  // homes where there are more than 8 regions
	TargetsMesh  Targets = "mesh"  // all
	TargetsHomes Targets = "homes" // two
)

// For is what it comes to with so many regions: TargetsMesh or TargetsHomes.
func (t Targets) For(regions int) Targets {
	if t == TargetsHomes || t != TargetsMesh && regions > mostMeshed {
		return TargetsHomes
	}
	return TargetsMesh
}

// mostMeshed is the number of regions up to which TargetsAuto is a mesh.
const mostMeshed = 8

// peerSet is a set of places in Config.Peers, a bit each.
type peerSet uint64

func (s peerSet) has(j int) bool { return s&(1<<j) != 0 }

func (s peerSet) each(yield func(int) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(bits.TrailingZeros64(uint64(s))) {
			return
		}
	}
}

// homes is where keys have theirs.
type homes struct {
	on    bool // or all regions are told of all keys
	all   peerSet
	peers []uint64 // what is drawn by, of each
	self  uint64
}

func newHomes(t Targets, region string, peers []string) homes {
	h := homes{
		on:   t.For(len(peers)+1) == TargetsHomes,
		all:  1<<len(peers) - 1, // 64 of them: the shift gives 0, less one is all
		self: draw(0, region),
	}
	for _, p := range peers {
		h.peers = append(h.peers, draw(0, p))
	}
	return h
}

// of is a key's homes among the peers, and whether this region is one: of all the
// two who draw the highest numbers. So a region that comes or goes moves the keys
// that it gets or had, and no others.
func (h *homes) of(key deltasync.Key) (peers peerSet, own bool) {
	const self = -1
	first, second := stir(uint64(key)^h.self), uint64(0)
	at, next := self, self-1
	for j, p := range h.peers {
		switch d := stir(uint64(key) ^ p); {
		case d > first:
			second, next = first, at
			first, at = d, j
		case d >= second:
			second, next = d, j
		}
	}
	for _, j := range []int{at, next} {
		if j >= 0 {
			peers |= 1 << j
		}
	}
	return peers, at == self || next == self
}

// own says that this region is a home of the key.
func (h *homes) own(key deltasync.Key) bool {
	_, own := h.of(key)
	return own
}

// first says that this region, of all that are configured, draws the highest number of
// the key: one alone does, whoever lives.
func (h *homes) first(key deltasync.Key) bool {
	own := stir(uint64(key) ^ h.self)
	for _, p := range h.peers {
		if stir(uint64(key)^p) >= own {
			return false
		}
	}
	return true
}

// targets is whom a key is told.
func (h *homes) targets(key deltasync.Key) peerSet {
	if !h.on {
		return h.all
	}
	peers, _ := h.of(key)
	return peers
}

// abroad is what a counter has where keys have homes.
type abroad struct {
	told   crdt.GCounter // O, one entry; of slices in which X is as much it is left out
	unkept crdt.Slice    // the first of which the store may lack what homes said of themselves and of others
	untold crdt.Slice    // the first of which regions that are no homes were not told
	news   uint64        // that were charged here since they were told last
	spread int64         // when that was; 0: they should be, at once
	asked  int64         // when the homes were last told something, or asked
	listed bool          // stands in lane.hot
}

// nothing is untold, or unkept, of a counter of which all is.
const nothing = crdt.Slice(math.MaxInt64)

// far is the counter's abroad, made when it is first needed.
func (c *counter) far() *abroad {
	if c.abroad == nil {
		c.abroad = &abroad{untold: nothing, unkept: nothing}
	}
	return c.abroad
}

// hears says that a home told something of others.
func (c *counter) hears() bool { return c.abroad != nil && c.abroad.told.Len() > 0 }

// others is what all other regions did in slices from one on, as far as is known.
func (c *counter) others(from crdt.Slice) []crdt.Cell {
	if !c.hears() {
		return c.regions.Sums().From(from, nil)
	}
	return slices.Collect(c.foreign(from))
}

// foreign is others, a cell after the other.
func (c *counter) foreign(from crdt.Slice) iter.Seq[crdt.Cell] {
	return larger(c.regions.Sums(), c.of(FromHomes).Sums(), from)
}

// heardFor is what regions told this one, less the entry of the one that asks.
func (c *counter) heardFor(asker crdt.Replica, oldest crdt.Slice) []crdt.Cell {
	cells, own := c.regions.Sums().From(oldest, nil), c.regions.Of(asker)
	if own == nil {
		return cells
	}
	left := cells[:0]
	for _, cell := range cells {
		if cell = cell.Less(own.Get(cell.Slice)); !cell.Zero() {
			left = append(left, cell)
		}
	}
	return left
}

// hearOthers joins what a home told of others: with its own counts it is all that
// others did, as far as it knows. It says whether anything rose.
func (c *counter) hearOthers(t *deltasync.Totals, oldest, horizon crdt.Slice, now int64) bool {
	var all crdt.Vector
	for _, cells := range [][]crdt.Cell{t.Peers, t.Others} {
		cells, _ = within(cells, horizon)
		for _, cell := range cells {
			all.Add(cell)
		}
	}
	var more []crdt.Cell
	for i := range all.Len() {
		cell := all.At(i)
		if has := c.regions.Sums().Get(cell.Slice); cell.Slice >= oldest && has.Join(cell) != has {
			more = append(more, cell)
		}
	}
	from, rose := c.join(FromHomes, crdt.Replica{}, more, oldest, now)
	if rose {
		c.lacks(FromHomes, crdt.Replica{}, from)
	}
	return rose
}

// keep adds to an item what homes said: it goes to the store with the next write, if
// there is one, for whoever forgets it can ask again. Where keys compete for places it
// is written before it may be forgotten.
func (b *abroad) keep(it *Item, regions *crdt.GCounter) {
	if b.unkept == nothing {
		return
	}
	if cells := b.told.Sums().From(b.unkept, nil); len(cells) > 0 {
		it.Vectors = append(it.Vectors, Vector{Source: FromHomes, Cells: cells})
	}
	entries := regions.Entries()
	for i := range entries {
		if cells := entries[i].Vector.From(b.unkept, nil); len(cells) > 0 {
			it.Vectors = append(it.Vectors, Vector{Source: FromRegion, Replica: entries[i].Replica, Cells: cells})
		}
	}
}

// often is how often at most the homes are asked about a key by whoever has nothing
// to tell them, and others are told of one near its limit of which little is spent:
// twenty times a window.
func (a *Aggregator) often(shape deltasync.Shape) int64 {
	return int64(max(a.cfg.Interval, min(shape.Window()/20, time.Second)))
}

// passed says that so much time has passed since an instant; one that is to come
// was set before a clock was set back.
func passed(since, now, time int64) bool { return now-since >= time || now < since }

// inquire asks a key's homes what others did, as an edge asked; c is nil where
// nothing is known of it here. There is always room in an outbox for what was
// counted.
func (a *Aggregator) inquire(l *lane, key deltasync.Key, shape deltasync.Shape, c *counter, now int64) {
	if !a.homes.on || shape.Regional || len(l.peers) == 0 {
		return
	}
	if c != nil {
		b := c.far()
		if !passed(b.asked, now, a.often(shape)) {
			return
		}
		b.asked = now
	}
	for j := range a.homes.targets(key).each {
		if box := l.peers[j].outbox; !box.HalfFull() {
			box.Put(shape, 0, deltasync.Delta{Key: key, Flags: deltasync.FlagTouch})
		}
	}
}

// spreadSoon lists a key of which all regions should hear.
func (a *Aggregator) spreadSoon(l *lane, key deltasync.Key, c *counter) {
	b := c.abroad
	if b == nil || c.crossed == 0 || b.untold == nothing || b.listed {
		return
	}
	b.listed = true
	l.hot = append(l.hot, key)
	if b.spread == 0 {
		a.hurry.Store(true)
	}
}

// spread tells listed keys to the regions that are no homes of theirs, when it is
// time.
func (a *Aggregator) spread(l *lane, now int64) {
	if len(l.hot) == 0 {
		return
	}
	waiting := l.hot[:0]
	for _, key := range l.hot {
		c := l.counters[key]
		if c == nil || c.abroad == nil || !c.abroad.listed {
			continue // it was forgotten
		}
		b := c.abroad
		switch {
		case c.crossed == 0: // it is far from its limit again
			b.listed = false
			continue
		case b.spread != 0 && !passed(b.spread, now, a.rests(c)):
			waiting = append(waiting, key)
			continue
		}
		var flags deltasync.Flags
		if b.spread == 0 {
			flags = deltasync.FlagUrgent
		}
		a.put(l, key, c, l.delta(key, c, b.untold, flags, now), a.homes.all&^a.homes.targets(key))
		b.untold, b.news, b.spread, b.listed = nothing, 0, now, false
	}
	if l.hot = waiting; len(waiting) == 0 {
		l.hot = nil
	}
}

// rests is how long after all regions were told of a key they are told again: soon
// if a hundredth of its limit has been spent here since.
func (a *Aggregator) rests(c *counter) int64 {
	if c.abroad.news >= max(1, c.shape.Limit/100) {
		return int64(a.cfg.Interval)
	}
	return a.often(c.shape)
}

// silent is how many other regions do not answer.
func (a *Aggregator) silent(now int64) (regions int) {
	for j := range a.cfg.Peers {
		for _, l := range a.lanes {
			l.mu.Lock()
			p := &l.peers[j]
			away := p.fails > 0 && passed(p.failing, now, int64(takeover))
			l.mu.Unlock()
			if away {
				regions++
				break
			}
		}
	}
	return regions
}
