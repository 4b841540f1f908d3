package regional

import (
	"math"
	"math/bits"
	"slices"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

const (
	// growth is how many times its limit one edge's counts of a key may be in a
	// window, all its lives together: the limit that it tells itself, where that is
	// larger than what most say, as after a limit was raised, or where tiers share a
	// key. Beyond that a count decides nothing any more,
	// and a hostile edge is held to the keys that it can name: its figures cannot
	// drown those of others, nor overflow. Shadow rates, reports and denied
	// requests that are counted do pass their limit in earnest; if by more than
	// that, their figures are too low, which is what counts may always be, and nobody
	// is muted for it: all other keys of such an edge would go uncounted.
	growth = 16
	// unlimited is what an edge may count where no limit is known.
	unlimited = 1 << 40
	// mostLooked bounds the cells that are looked at to clamp what one frame tells:
	// some milliseconds. Only one made for it needs more, and is refused the rest.
	mostLooked = 1 << 20
)

// most is what an edge that tells such a shape may have counted of a key in a
// window, less its refunds.
func (c *counter) most(told deltasync.Shape) uint64 {
	return min(max(spendable(c.shape), spendable(c.complete(told))), largestNet)
}

func spendable(s deltasync.Shape) uint64 {
	if s.Limit == 0 {
		return unlimited
	}
	spend := holds(s)
	if s.Bucket() { // and what drains meanwhile
		spend = crdt.SatAdd(spend, satMul(s.Refill, uint64(s.Window()/s.RefillPer)+1))
	}
	return satMul(growth, spend)
}

func satMul(a, b uint64) uint64 {
	if hi, lo := bits.Mul64(a, b); hi == 0 {
		return lo
	}
	return math.MaxUint64
}

// clamp lowers the cells of a delta to what the edge may have counted. It is told
// that they are taken: it has nothing to tell again.
func (a *Aggregator) clamp(l *lane, c *counter, shape deltasync.Shape, replica crdt.Replica, cells []crdt.Cell, oldest crdt.Slice, delta int, m *merged) []crdt.Cell {
	if m.looked > mostLooked {
		a.stats.crowded.Add(1)
		m.refuse(delta, deltasync.StatusOverloaded)
		return nil
	}
	kept, clamped, looked := l.clamp(c, c.most(shape), replica, cells, oldest)
	if m.looked += looked; clamped {
		a.stats.clamped.Add(1)
	}
	return kept
}

// clamp lowers what an edge tells to what it may have counted, and says how many
// cells it had to look at for that. It leaves cells alone, and returns them where
// all is well, as nearly always: then what all edges counted is not as much.
func (l *lane) clamp(c *counter, most uint64, replica crdt.Replica, cells []crdt.Cell, oldest crdt.Slice) (kept []crdt.Cell, clamped bool, looked int) {
	told := uint64(0)
	for _, cell := range cells {
		told = crdt.SatAdd(told, cell.Charges)
	}
	if crdt.SatAdd(c.grown, told) <= most {
		return cells, false, 0
	}
	c.grown = 0 // some of it has retired
	sums := c.edges.Sums()
	for i := range sums.Len() {
		c.grown = crdt.SatAdd(c.grown, sums.At(i).Charges)
	}
	if crdt.SatAdd(c.grown, told) <= most {
		return cells, false, sums.Len()
	}
	for len(cells) > 0 && cells[0].Slice < oldest { // join leaves them out, too
		cells = cells[1:]
	}
	if len(cells) == 0 {
		return cells, false, sums.Len()
	}
	own := c.edges.Of(replica)
	if own == nil {
		own = &crdt.Vector{}
	}
	slots, looked := l.slotsOf(c, replica, oldest, cells[len(cells)-1].Slice+crdt.Slice(c.shape.Slices))
	looked += sums.Len() + len(slots)
	// sum is of slots[from:to], all that shares a window with a cell: two windows
	// less a slice, so that none holds more than it may, whatever comes later.
	sum, from, to := uint64(0), 0, 0
	kept = cells
	for i, cell := range cells {
		at := int(cell.Slice - oldest)
		for ; to < min(at+c.shape.Slices, len(slots)); to++ {
			sum += slots[to].own + slots[to].lives
		}
		for ; from < at-c.shape.Slices+1; from++ {
			sum -= slots[from].own + slots[from].lives
		}
		held := own.Get(cell.Slice)
		joined := held.Join(cell)
		others := sum - slots[at].own
		if room := most - min(most, others); joined.Net() > room {
			joined.Charges = max(held.Charges, crdt.SatAdd(joined.Refunds, room))
			if !clamped {
				kept, clamped = slices.Clone(cells), true
			}
			kept[i].Charges = min(cell.Charges, joined.Charges)
		}
		slots[at].own = min(joined.Net(), largestNet)
		sum = others + slots[at].own
	}
	if clamped {
		kept = slices.DeleteFunc(kept, crdt.Cell.Zero)
	}
	return kept, clamped, looked
}

// slot is what a node counted in a slice less what it refunded: as the replica
// that tells, and in its other lives.
type slot struct{ own, lives uint64 }

// largestNet bounds both, so that the slots of two windows do not overflow, and what any
// edge is believed to have counted of a key, be its limit larger: who names a key first
// names its limit, too.
const largestNet = 1 << 50

// slotsOf is a node's slots from slice oldest to last. They are valid until the
// next call.
func (l *lane) slotsOf(c *counter, replica crdt.Replica, oldest, last crdt.Slice) (slots []slot, looked int) {
	n := int(last-oldest) + 1
	slots = slices.Grow(l.slots[:0], n)[:n]
	clear(slots)
	l.slots = slots
	entries := entriesOf(c.edges.Entries(), replica.Node)
	for i := range entries {
		v := &entries[i].Vector
		looked += v.Len()
		for j := range v.Len() {
			cell := v.At(j)
			if cell.Slice < oldest || cell.Slice > last {
				continue
			}
			s, net := &slots[cell.Slice-oldest], min(cell.Net(), largestNet)
			if entries[i].Replica == replica {
				s.own = net
			} else {
				s.lives = min(s.lives+net, largestNet)
			}
		}
	}
	return slots, looked
}
