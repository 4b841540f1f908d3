package regional

import (
	"math"
	"math/bits"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// past is what an aggregator knows of a bucket beyond the slices that it holds,
// as two carries: lower bounds of one truth, of which the larger counts. What it
// hears of a slice that it still holds is kept apart from what it worked out
// itself: joined into it, it would hide counts of earlier slices that are late.
type past struct {
	base   crdt.Carry // of a slice that retired
	heard  crdt.Carry // of a later slice, as others said
	asked  crdt.Slice // for which remember has looked, until something is heard
	stored crdt.Carry // the last carry for the store
	rest   crdt.Carry // the part of it that never drains, as it is for the store
	lacks  bool       // the store does not have stored and rest yet
}

// bucketSlices is how many slices of a bucket are kept at least: its window
// changes with its capacity and refill, its width seldom, and none of what is
// held or stored must be lost by that.
const bucketSlices = 2 * limit.DefaultSlices

const (
	// restFor is how long a bucket is remembered that rests at or below its
	// floor, where nothing drains: see limit.Rate.Memory.
	restFor = 24 * time.Hour
	// restAgain is after what time the store is told that one was charged
	// again, so that it remembers it for longer.
	restAgain = time.Hour
)

// largestMargin is how many times its limit a bucket with a soft margin can
// hold: 1000 % above it.
const largestMargin = 11

// micro is what a unit of cost has in the levels of carries.
const micro = 1_000_000

// fill is a level of so many times what a bucket of the shape holds, in millionths.
func fill(shape deltasync.Shape, times uint64) uint64 {
	return satMul(satMul(holds(shape), times), micro)
}

// holds is what a bucket of the shape holds at the most. A limit is the choice of who
// tells it; but a bucket drains in its window, which a tenant's or a request's limit may
// have been rounded to miss by half.
func holds(shape deltasync.Shape) uint64 {
	if !shape.Bucket() {
		return shape.Limit
	}
	return min(shape.Limit, crdt.SatAdd(shape.Floor, satMul(2, drainsInWindow(shape))))
}

// drainsInWindow is what drains of a bucket in its window, and one more.
func drainsInWindow(s deltasync.Shape) uint64 {
	hi, lo := bits.Mul64(s.Refill, uint64(s.Window()))
	if hi >= uint64(s.RefillPer) {
		return math.MaxUint64
	}
	drains, _ := bits.Div64(hi, lo, uint64(s.RefillPer))
	return crdt.SatAdd(drains, 1)
}

// drain is how a bucket of the shape empties.
func drain(shape deltasync.Shape) limit.Drain {
	return limit.Drain{Refill: shape.Refill, Per: shape.RefillPer, Floor: shape.Floor, Width: shape.Width}
}

// missingPast adds to an item what the store lacks of the level.
func (c *counter) missingPast(it *Item) {
	if c.past == nil || !c.past.lacks {
		return
	}
	if !c.past.stored.Zero() {
		it.Carries = []crdt.Carry{c.past.stored}
	}
	it.Rest = c.past.rest
}

// merged is what edges and regions counted, by slice. It is valid until the next
// call: its memory is the lane's.
func (l *lane) merged(c *counter) []crdt.Cell {
	sums, a, b := l.scratch[:0], c.edges.Sums(), c.regions.Sums()
	if c.hears() {
		l.joined.Reset()
		for cell := range c.foreign(math.MinInt64) {
			l.joined.Join(cell)
		}
		b = &l.joined
	}
	for i, j := 0, 0; i < a.Len() || j < b.Len(); {
		switch {
		case j == b.Len() || i < a.Len() && a.At(i).Slice < b.At(j).Slice:
			sums = append(sums, a.At(i))
			i++
		case i == a.Len() || b.At(j).Slice < a.At(i).Slice:
			sums = append(sums, b.At(j))
			j++
		default:
			sums = append(sums, a.At(i).Plus(b.At(j)))
			i, j = i+1, j+1
		}
	}
	l.scratch = sums
	return sums
}

// carry is what someone needs besides the counts from a slice on to work out the
// level: that of when the slice began, or of a later one, if that says more. For
// windows, and where the level is zero, it is none.
func (l *lane) carry(c *counter, from crdt.Slice) crdt.Carry {
	if c.past == nil {
		return crdt.Carry{}
	}
	if h := c.past.heard; !h.Zero() && h.Boundary > from {
		if known := drain(c.shape).Advance(c.past.base, l.merged(c), h.Boundary); h.Level > known.Level {
			return h
		}
	}
	return l.carryAt(c, from)
}

// carryAt is the level that the bucket had, at least, when a slice began; none
// if that is zero.
func (l *lane) carryAt(c *counter, to crdt.Slice) crdt.Carry {
	d, sums := drain(c.shape), l.merged(c)
	best := d.Advance(c.past.base, sums, to)
	if h := c.past.heard; !h.Zero() && h.Boundary <= to {
		best = higher(best, d.Advance(h, sums, to))
	}
	return tidy(best)
}

// higher is the carry with the larger level, of two with one boundary.
func higher(a, b crdt.Carry) crdt.Carry {
	if b.Level > a.Level {
		return b
	}
	return a
}

// tidy makes a carry that says nothing none.
func tidy(c crdt.Carry) crdt.Carry {
	if c.Level == 0 {
		return crdt.Carry{}
	}
	return c
}

// level is the bucket's level at now, in whole units.
func (l *lane) level(c *counter, now int64) uint64 {
	d, sums := drain(c.shape), l.merged(c)
	beyond := sliceAt(c.shape, now+int64(maxAhead)) + 1
	level := d.Level(c.past.base, sums, now, beyond)
	if !c.past.heard.Zero() {
		level = max(level, d.Level(c.past.heard, sums, now, beyond))
	}
	return level / micro
}

// hear joins a carry and says whether the level rose by it. One of a slice too
// far ahead is not believed: whoever says it has a clock that is wrong.
func (l *lane) hear(c *counter, in crdt.Carry, most uint64, now int64) (rose bool) {
	if c.past == nil || in.Level == 0 || in.Boundary > sliceAt(c.shape, now+int64(maxAhead)) {
		return false
	}
	in.Level = min(in.Level, most)
	p, d, sums := c.past, drain(c.shape), l.merged(c)
	to := max(in.Boundary, p.base.Boundary, p.heard.Boundary)
	oldest := retirement(c.shape, now)
	far := in.Boundary <= oldest
	if far {
		to = max(oldest, p.base.Boundary)
	}
	known := d.Advance(p.base, sums, to)
	if !far && !p.heard.Zero() {
		known = higher(known, d.Advance(p.heard, sums, to))
	}
	told := d.Advance(in, sums, to)
	switch {
	case told.Level <= known.Level:
		return false
	case far:
		p.base = told
	default:
		p.heard = told
	}
	p.asked = 0
	return true
}

// retire drops slices before oldest, whose counts go into the carry, and says
// whether anything is left to remember at now.
func (l *lane) retire(c *counter, oldest crdt.Slice, now int64) bool {
	if c.past != nil {
		c.past.setBack(sliceAt(c.shape, now+int64(maxAhead)))
		l.retirePast(c, oldest)
	}
	c.edges.Retire(oldest)
	c.regions.Retire(oldest)
	if c.taken != nil {
		if c.taken.Retire(oldest); c.taken.Len() == 0 {
			c.taken = nil
		}
	}
	if c.hears() {
		c.abroad.told.Retire(oldest)
	}
	if c.edges.Len()+c.regions.Len() > 0 || c.taken != nil || c.hears() || c.penalty.at(now) != 0 {
		return true
	}
	return c.past != nil && l.rests(c, oldest, now)
}

// setBack forgets what is of slices beyond the horizon: a clock that ran ahead
// was set back, and until it is there again they would hide all else.
func (p *past) setBack(horizon crdt.Slice) {
	for _, c := range []*crdt.Carry{&p.base, &p.heard, &p.stored, &p.rest} {
		if c.Boundary > horizon {
			*c = crdt.Carry{}
		}
	}
	if p.asked > horizon {
		p.asked = 0
	}
}

// retirePast brings the carry to oldest where counts before it are about to go:
// to work it out more often would change nothing.
func (l *lane) retirePast(c *counter, oldest crdt.Slice) {
	p := c.past
	late := func(v *crdt.Vector) bool { return v.Len() > 0 && v.At(0).Slice < oldest }
	if !late(c.edges.Sums()) && !late(c.regions.Sums()) && !(c.hears() && late(c.abroad.told.Sums())) && (p.heard.Zero() || p.heard.Boundary > oldest) {
		return
	}
	p.base = l.carryAt(c, oldest)
	p.base.Level = min(p.base.Level, fill(c.shape, largestMargin))
	if p.heard.Boundary <= oldest {
		p.heard = crdt.Carry{}
	}
}

// rests says whether a bucket without counts in its slices has something left
// that must be kept here: a level above its floor, which drains, or one that does
// not, for a day, unless the store has it.
func (l *lane) rests(c *counter, oldest crdt.Slice, now int64) bool {
	p := c.past
	if !p.heard.Zero() {
		return true // it goes into base within a window
	}
	left := l.carryAt(c, oldest)
	switch {
	case left.Level > floor(c.shape):
		return true
	case left.Level <= p.rest.Level && !c.unwritten():
		return false
	}
	return left.Level > 0 && now-int64(p.base.Boundary)*int64(c.shape.Width) <= int64(restFor)
}

// floor is the level below which nothing drains, in millionths.
func floor(shape deltasync.Shape) uint64 { return shape.Floor * micro }

// remember notes the level for the store, twice a window: when a slice began
// that is far enough back for most counts before it to have come in. An
// aggregator that starts anew finds there what slices held that it cannot read
// any more. It says whether there is something to write.
func (l *lane) remember(c *counter, now int64) bool {
	if c.past == nil {
		return false
	}
	p, kept := c.past, stored(c.shape)
	at := kept.Boundary(sliceAt(c.shape, now-int64(maxAhead)) - 2)
	if at <= p.asked {
		return false
	}
	p.asked = at
	carry := l.carryAt(c, at)
	if carry.Zero() {
		return false
	}
	if c.shape.Floor > 0 {
		rest := min(carry.Level, floor(c.shape))
		old := time.Duration(at-p.rest.Boundary)*c.shape.Width >= restAgain
		if rest > p.rest.Level || old && c.chargedSince(p.rest.Boundary) {
			p.rest = crdt.Carry{Boundary: at, Level: max(rest, p.rest.Level)}
			p.lacks = true
		}
		if carry.Level <= min(p.rest.Level, floor(c.shape)) {
			return p.lacks // nothing of it drains: that is all
		}
	}
	p.stored, p.lacks = carry, true
	return true
}

// chargedSince says whether something is counted in a slice or later ones.
func (c *counter) chargedSince(s crdt.Slice) bool {
	for _, source := range []Source{FromEdge, FromRegion, FromHomes} {
		if last, ok := c.of(source).Sums().Last(); ok && last >= s {
			return true
		}
	}
	return false
}

// hearStored joins what the store says of the level, and says whether it rose.
func (l *lane) hearStored(c *counter, it *Item, now int64) (rose bool) {
	for _, carry := range it.Carries {
		if l.hear(c, carry, fill(c.shape, largestMargin), now) {
			rose = true
		}
	}
	if c.past == nil || it.Rest.Level == 0 {
		return rose
	}
	p := c.past
	p.rest = crdt.Carry{Boundary: max(p.rest.Boundary, it.Rest.Boundary), Level: max(p.rest.Level, it.Rest.Level)}
	return l.hear(c, it.Rest, floor(c.shape), now) || rose
}
