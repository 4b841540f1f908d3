package regional

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// counter is what an aggregator holds of one key.
type counter struct {
	shape   deltasync.Shape
	vouched bool             // somebody who counted told the shape
	votes   *ballot          // on the shape; nil: all told the same
	rivals  map[uint64]rival // who tells another width of slices, by PoP or region; nil: nobody
	edges   crdt.GCounter    // entries of the own region's edges
	regions crdt.GCounter    // subtotals of other regions
	taken   *crdt.GCounter   // what other regions told of this one, of more than its edges have; nil: nothing
	grown   uint64           // at least what all edges charged: see clamp
	version uint64           // of the key in the store, as last answered; 0: never asked
	asked   int64            // when it was last answered
	partial stamp            // when it was last read from the store, of which some found no room; 0: all did
	late    stamp            // when it last changed in slices that were long over; see since
	allTold stamp            // when all of it was last pushed; see pushFrom
	missing []missing        // what the store lacks
	batch   uint64           // the last of the lane's that it was written with
	writing uint16           // writes to the store that are under way
	weight  int32            // as last weighed, in bytes
	paid    int32            // what of that is some PoP's; the rest is of the contest
	noted   uint32           // the last window that was looked at; see passed.go
	crossed uint8            // thresholds crossed, a bit each
	high    uint8            // how high it stands, of a key that was nearly full: see stands
	fresh   bool             // nothing is known yet of what the own region counted
	pushed  bool             // stands in its lane's list of keys to push
	guest   bool             // has no place in the lane; see guests.go
	unasked bool             // what the store had of it was not exported; see joinStored
	retried bool             // stands in its lane's list of keys to write again
	watched bool             // stands in its lane's truths; see truths.go
	again   uint64           // stands in a peer's list of keys to tell again, a bit each
	past    *past            // of a bucket; nil for windows
	abroad  *abroad          // of one that is told to its homes alone; nil: nothing
	contest *contest         // of one whose edges decide by shares; nil: none does
	penalty penalty
	pop     uint64   // who pays for it; see popbytes.go
	parts   *[]owned // or these; nil: one alone does
}

// missing names cells that the store does not have yet.
type missing struct {
	source  Source
	replica crdt.Replica
	from    crdt.Slice
}

// maxAhead is how far ahead of our clock a slice may start. What is further
// ahead is refused: it is never moved to another slice.
const maxAhead = time.Second

// retirement is the first slice of a shape that is still kept at now, here as
// in the store.
func retirement(shape deltasync.Shape, now int64) crdt.Slice {
	kept := stored(shape)
	return sliceAt(shape, now-int64(kept.Kept()))
}

// stored is the shape as the store sees it.
func stored(shape deltasync.Shape) Item {
	it := Item{Width: shape.Width, Slices: shape.Slices}
	if shape.Bucket() {
		it.Slices = max(it.Slices, bucketSlices)
		it.Floor = shape.Floor > 0
	}
	return it
}

// reach is the first slice that may still count in a window that ends at now.
func reach(shape deltasync.Shape, now int64) crdt.Slice {
	return sliceAt(shape, now) - crdt.Slice(shape.Slices)
}

// draining is the first slice that edges still hold of a counter. Of a bucket that
// drains sooner than it once did fewer slices count than are kept (see adopt): what
// lies before them edges know from the carry alone.
func (c *counter) draining(now int64) crdt.Slice {
	s := c.shape
	if s.Bucket() {
		if hi, lo := bits.Mul64(s.Limit-min(s.Limit, s.Floor), uint64(s.RefillPer)); hi < s.Refill {
			full, rest := bits.Div64(hi, lo, s.Refill)
			if rest > 0 {
				full++
			}
			s.Slices = int(min((full+uint64(s.Width)-1)/uint64(s.Width), uint64(s.Slices))) // as limit.Compile has it
		}
	}
	return reach(s, now)
}

func sliceAt(shape deltasync.Shape, now int64) crdt.Slice { return floorDiv(now, shape.Width) }

// of is the G-counter that entries of a source belong to.
func (c *counter) of(source Source) *crdt.GCounter {
	switch source {
	case FromRegion:
		return &c.regions
	case FromPeers:
		if c.taken == nil {
			return &crdt.GCounter{}
		}
		return c.taken
	case FromHomes:
		if c.abroad == nil {
			return &crdt.GCounter{}
		}
		return &c.abroad.told
	}
	return &c.edges
}

// join raises one replica's cells and returns the first slice that rose.
func (c *counter) join(source Source, replica crdt.Replica, cells []crdt.Cell, oldest crdt.Slice, now int64) (from crdt.Slice, rose bool) {
	var at crdt.Place
	return c.joinAt(&at, source, replica, cells, oldest, now)
}

// joinAt is join for who joins many replicas of a source.
func (c *counter) joinAt(at *crdt.Place, source Source, replica crdt.Replica, cells []crdt.Cell, oldest crdt.Slice, now int64) (from crdt.Slice, rose bool) {
	switch {
	case len(cells) == 0:
		return 0, false
	case source == FromPeers && c.taken == nil:
		c.taken = &crdt.GCounter{}
	case source == FromHomes:
		c.far()
	}
	g := c.of(source)
	for _, cell := range cells {
		if cell.Slice < oldest {
			continue
		}
		rise := g.JoinAt(at, replica, cell)
		if rise.Zero() {
			continue
		}
		if source == FromEdge {
			c.grown = crdt.SatAdd(c.grown, rise.Charges)
			if c.contest != nil {
				c.contest.spent.add(rise)
			}
			if c.abroad != nil {
				c.abroad.news = crdt.SatAdd(c.abroad.news, rise.Charges)
			}
		}
		if !rose || cell.Slice < from {
			from, rose = cell.Slice, true
		}
	}
	if rose && from < sliceAt(c.shape, now-int64(c.shape.Grace())) {
		if c.late.before(now) { // what waited for the store may come in with an older time
			c.late = stampOf(now)
		}
	}
	return from, rose
}

// lacks notes that the store does not have these cells yet.
func (c *counter) lacks(source Source, replica crdt.Replica, from crdt.Slice) {
	if source == FromHomes {
		c.far().unkept = min(c.far().unkept, from)
		return
	}
	for i := range c.missing {
		if m := &c.missing[i]; m.source == source && m.replica == replica {
			m.from = min(m.from, from)
			return
		}
	}
	if n := len(c.missing); n == cap(c.missing) { // of many entries a few may be missing, or all, and no more: see weigh
		c.missing = slices.Grow(c.missing, min(n, 64)+1)
	}
	c.missing = append(c.missing, missing{source, replica, from})
}

// lacksTold notes that the store may have nothing of what a frame told yet.
func (c *counter) lacksTold(t *told) {
	d := t.delta
	if d == nil {
		return
	}
	if len(t.cells) > 0 {
		c.lacks(t.source, t.replica, t.cells[0].Slice)
	}
	if c.past != nil && !d.Carry.Zero() {
		c.past.lacks = !c.past.stored.Zero() || !c.past.rest.Zero()
	}
	if d.Until != 0 {
		c.penalty.lacks = c.penalty.until != 0
	}
}

// unwritten says that the store lacks something of the key, or was never asked.
func (c *counter) unwritten() bool {
	return c.owes() || c.version == 0
}

// OwnersApart is how long what the store said last is good enough for who only asks:
// another aggregator of the region may have written since. So it is what two owners of
// a lane can lack of each other: an answer to an edge lacks nothing that the other had
// acknowledged for longer, while the store can be reached.
const OwnersApart = time.Second

// stale says that the store should be asked again.
func (c *counter) stale(now int64) bool {
	return now-c.asked > int64(OwnersApart) || c.asked > now+int64(maxAhead)
}

// written notes that the store has all, once the write that begins has ended.
func (c *counter) written() {
	c.writing++
	c.missing = c.missing[:0]
	if c.abroad != nil {
		c.abroad.unkept = nothing
	}
	c.penalty.lacks = false
	if c.past != nil {
		c.past.lacks = false
	}
}

// lacksAll notes that the store may have nothing of the key.
func (c *counter) lacksAll() {
	c.missing = slices.Grow(c.missing[:0], c.edges.Len()+c.regions.Len())
	if c.hears() {
		c.lacks(FromHomes, crdt.Replica{}, math.MinInt64)
	}
	for _, source := range []Source{FromEdge, FromRegion, FromPeers} {
		for _, e := range c.of(source).Entries() {
			if e.Vector.Len() > 0 {
				c.missing = append(c.missing, missing{source, e.Replica, e.Vector.At(0).Slice})
			}
		}
	}
	c.penalty.lacks = c.penalty.until != 0
	if c.past != nil {
		c.past.lacks = !c.past.stored.Zero() || !c.past.rest.Zero()
	}
}

// item is what the store is to be told of the key, and asked.
func (c *counter) item(key deltasync.Key) Item {
	it := stored(c.shape)
	it.Key, it.Version = key, c.version
	c.missingPast(&it)
	if c.penalty.lacks {
		it.Until = c.penalty.until
	}
	for _, m := range c.missing {
		v := c.of(m.source).Of(m.replica)
		if v == nil {
			continue // retired meanwhile
		}
		if cells := v.From(m.from, nil); len(cells) > 0 {
			it.Vectors = append(it.Vectors, Vector{Source: m.source, Replica: m.replica, Cells: cells})
		}
	}
	if c.abroad != nil {
		c.abroad.keep(&it, &c.regions)
	}
	return it
}

// delta is the region's subtotal in slices from one on, for another region, and
// the level of a bucket and the penalty, which are everybody's.
func (l *lane) delta(key deltasync.Key, c *counter, from crdt.Slice, flags deltasync.Flags, now int64) deltasync.Delta {
	return deltasync.Delta{
		Key: key, Flags: flags, Cells: c.subtotal(from),
		Carry: l.carry(c, c.draining(now)), Until: c.penalty.at(now),
	}
}

// totals is what everybody did in slices from one on, for somebody who knows
// what they did in those before, as far as they are in reach.
func (l *lane) totals(c *counter, from crdt.Slice, now int64) deltasync.Totals {
	oldest := c.draining(now)
	from = max(from, oldest)
	return deltasync.Totals{
		Others: c.others(from),
		Peers:  c.edges.Sums().From(from, nil),
		Carry:  l.carry(c, oldest),
		Until:  c.penalty.at(now),
	}
}

// everybodys is totals for edges that take their own counts off.
func (l *lane) everybodys(c *counter, from crdt.Slice, now int64) deltasync.Totals {
	t := l.totals(c, from, now)
	if c.taken != nil {
		t.Peers = c.subtotal(max(from, c.draining(now)))
	}
	return t
}

// totalsFor is what everybody but the asking edge did in slices from one on.
func (l *lane) totalsFor(asker crdt.Replica, c *counter, from crdt.Slice, now int64) deltasync.Totals {
	t := l.totals(c, from, now)
	own := c.edges.Of(asker)
	if own == nil {
		return t
	}
	left := t.Peers[:0]
	for _, cell := range t.Peers {
		if cell = cell.Less(own.Get(cell.Slice)); !cell.Zero() {
			left = append(left, cell)
		}
	}
	t.Peers = left
	return t
}

// totalsForRegion is what another region is told in slices from oldest on: what
// edges of this one did, and what is everybody's. See also heardFor.
func (l *lane) totalsForRegion(c *counter, oldest crdt.Slice, now int64) deltasync.Totals {
	t := deltasync.Totals{Peers: c.subtotal(oldest), Carry: l.carry(c, oldest)}
	if !c.shape.Regional {
		t.Until = c.penalty.at(now)
	}
	return t
}

// used is about what counts against the limit: of a window all slices in reach
// in full, of a bucket its level. What a region charged another may have given back, so
// that a slice is what both have of it.
func (l *lane) used(c *counter, now int64) (sum uint64) {
	if c.past != nil {
		return l.level(c, now)
	}
	oldest := reach(c.shape, now)
	if c.taken != nil || c.hears() {
		return l.usedIn(c, oldest)
	}
	a, b := c.edges.Sums(), c.regions.Sums()
	for i, j := a.Len()-1, b.Len()-1; i >= 0 || j >= 0; {
		var cell crdt.Cell
		switch {
		case j < 0 || i >= 0 && a.At(i).Slice > b.At(j).Slice:
			cell = a.At(i)
			i--
		case i < 0 || b.At(j).Slice > a.At(i).Slice:
			cell = b.At(j)
			j--
		default:
			cell = a.At(i).Plus(b.At(j))
			i, j = i-1, j-1
		}
		if cell.Slice < oldest {
			break
		}
		sum = crdt.SatAdd(sum, cell.Net())
	}
	return sum
}

// usedIn is used where homes or peers told something of it.
func (l *lane) usedIn(c *counter, oldest crdt.Slice) (sum uint64) {
	own := l.scratch[:0]
	for cell := range c.own(oldest) {
		own = append(own, cell)
	}
	l.scratch = own
	for cell := range c.foreign(oldest) {
		for len(own) > 0 && own[0].Slice < cell.Slice {
			sum = crdt.SatAdd(sum, own[0].Net())
			own = own[1:]
		}
		if len(own) > 0 && own[0].Slice == cell.Slice {
			cell = cell.Plus(own[0])
			own = own[1:]
		}
		sum = crdt.SatAdd(sum, cell.Net())
	}
	for _, cell := range own {
		sum = crdt.SatAdd(sum, cell.Net())
	}
	return sum
}

// thresholds are the parts of a limit, in percent, whose upward crossing is
// pushed; each is armed again rearm percent below.
var thresholds = [...]uint64{50, 80, 95, 100}

const rearm = 5

// contended is the threshold from which on every change is pushed.
const contended = 1

// arm arms thresholds again that the use has fallen well below. It is to be asked
// before anything is joined: a short window, or a bucket, may have emptied since
// somebody looked, and what fills it at once crosses them anew.
func (l *lane) arm(c *counter, now int64) {
	if c.crossed != 0 || c.high != 0 {
		used := l.used(c, now)
		l.armAt(c, used)
		c.high = c.stands(used)
	}
}

func (l *lane) armAt(c *counter, used uint64) {
	for i, p := range thresholds {
		if used < percent(c.shape.Limit, p-rearm) {
			c.crossed &^= 1 << i
		}
	}
}

func percent(limit, p uint64) uint64 { return limit/100*p + limit%100*p/100 }

// stands is how high a use is of a key that was nearly full, as edges were told, who hold it to that: 3,
// and then down to 0. What is given back of such a key is pushed when it is not contended any more, when
// less than half is used, and when nothing is: edges that know it to be full would deny whom they have room
// for, and tell him to come again in a day. What left the window they see themselves.
func (c *counter) stands(used uint64) uint8 {
	limit := c.shape.Limit
	switch {
	case used == 0:
		return 0
	case used >= limit-limit/100*20-limit%100*20/100: // from where on edges hold it, rounded up
		return 3
	case used >= percent(limit, thresholds[contended]-rearm):
		return c.high
	case used >= percent(limit, thresholds[0]-rearm):
		return min(c.high, 2)
	}
	return min(c.high, 1)
}

// crossing updates what is crossed and says whether edges should hear of it.
func (l *lane) crossing(c *counter, now int64) bool {
	if c.shape.Limit == 0 {
		return false
	}
	used, before := l.used(c, now), c.high
	l.armAt(c, used)
	c.high = c.stands(used)
	news := c.high < before
	for i, p := range thresholds {
		if bit := uint8(1) << i; used >= percent(c.shape.Limit, p) && c.crossed&bit == 0 {
			c.crossed |= bit
			news = true
			if c.abroad != nil {
				c.abroad.spread = 0 // at once
			}
		}
	}
	if news { // whoever listens from now on is to know all
		c.allTold = 0
	}
	return news || c.crossed&(1<<contended) != 0 || c.shape.Eager > 0 && used >= percent(c.shape.Limit, c.shape.Eager-1) || c.taken != nil // which edges hear of by pushes alone
}
