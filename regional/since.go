package regional

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// Counts of a slice come in while it lasts, and for as long after it as it takes
// edges and other regions to tell of it. What comes later is late. So whoever has
// the totals of some instant lacks those of the slices since, and of the few before
// it; or, where something late came in meanwhile, nobody knows of which.

// astray is by how much the clocks of an edge and ours may differ, and besides how
// long a frame may be on its way. Whose clock is further ahead is told all.
const astray = time.Second

// since is when something came in that began at now: a write that waited for the
// store, or one of many, ends when edges have been answered meanwhile.
func (l *lane) since(now int64) int64 {
	if l.answered > now && l.answered-now < int64(time.Minute) { // or a clock was set back
		return l.answered
	}
	return now
}

// Of a bucket all is told each time: its carry and its slices belong together.

// since is the first slice that may have changed since an edge heard of the key in
// another one: it asked in that, and has what it was told.
func (c *counter) since(heard crdt.Slice, now int64) crdt.Slice {
	if current := sliceAt(c.shape, now); c.past != nil || heard == 0 || heard > current+1 || heard < current-crdt.Slice(c.shape.Slices) {
		return math.MinInt64
	}
	asked := int64(heard)*int64(c.shape.Width) - 2*int64(astray)
	if !c.late.before(asked) {
		return math.MinInt64
	}
	return sliceAt(c.shape, asked-int64(c.shape.Grace()))
}

// pushFrom is the first slice that a push has to tell of, to whom the last one that
// told all told all: whatever one of them tells, lost ones in between are no loss.
// All is told again soon, for those who missed that one, and for those who forgot.
func (c *counter) pushFrom(now int64) crdt.Slice {
	if c.past != nil {
		return math.MinInt64
	}
	every := int64(c.shape.Retold())
	if c.allTold.before(now-every+int64(time.Millisecond)) || !c.allTold.before(now+int64(time.Millisecond)) || !c.late.before(now-every) {
		c.allTold = stampOf(now)
		return math.MinInt64
	}
	return sliceAt(c.shape, c.shape.PushedFrom(now))
}

// pushOf is what a push tells of a counter. Where the last slices have all that they were charged
// given back, it tells of the others too, where these have not: an edge that knows nothing else of
// the key would take it for one that was reset.
func (l *lane) pushOf(c *counter, now int64) deltasync.Totals {
	from := c.pushFrom(now)
	t := l.everybodys(c, from, now)
	if from == math.MinInt64 || !balanced(t.Others, t.Peers) {
		return t
	}
	all := l.everybodys(c, math.MinInt64, now)
	if balanced(all.Others, all.Peers) {
		return t
	}
	c.allTold = stampOf(now)
	return all
}

// balanced says that as much was given back in cells as was charged.
func balanced(lists ...[]crdt.Cell) bool {
	charges, refunds := uint64(0), uint64(0)
	for _, cells := range lists {
		for _, cell := range cells {
			charges, refunds = crdt.SatAdd(charges, cell.Charges), crdt.SatAdd(refunds, cell.Refunds)
		}
	}
	return charges > 0 && charges <= refunds
}

// stamp is an instant in milliseconds, of which the last 32 bits are kept: a counter
// has no room for more. 0: never.
type stamp uint32

func stampOf(now int64) stamp { return stamp(max(1, uint32(now/int64(time.Millisecond)))) }

// before says that it was before an instant, from which it is less than 24 days away.
func (s stamp) before(now int64) bool {
	return s == 0 || int32(uint32(s)-uint32(now/int64(time.Millisecond))) < 0
}
