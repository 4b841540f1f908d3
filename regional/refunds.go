package regional

import (
	"slices"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// What one edge charged another may give back: a client roams, a slot is released
// elsewhere. So refunds are taken off the sums of all edges, and a PoP that lies could
// take off what all others counted, and lift a limit everywhere. Its edges together
// may therefore give back what they charged themselves, slice by slice, and one limit
// besides: what others charged. More is refused, and told again by whoever is honest:
// the charge may be on its way. So a limit can be lifted by itself once for each PoP
// that lies.
//
// The limit is what it says, too, if it names the key first. So the smallest counts that
// anybody tells who has counts here, and but for a few, whose charges may be on their
// way, no more is given back than others charged: who charged here has told a limit. One
// who tells a small limit has honest refunds refused, which denies until their window ends
// and no longer. What others charged elsewhere alone, or told another aggregator, comes
// without a limit: of that a PoP which alone tells of the key here may give back all.
//
// The PoP counts, not the edge, as it may call as many edges its own as it likes.

// largestRefund bounds a cell's refunds, so that sums do not overflow: a slice of
// which they did would be one of which all is given back.
const largestRefund = 1 << 48

// early is what may be given back though no charge of it is known: some charges are told
// to another aggregator, and the refund is what has this one ask.
const early = 16

// clampRefunds lowers what an edge gives back, in slices that are kept and not beyond
// the horizon, to what it may. It leaves cells alone, and returns them, where all is
// well.
func (a *Aggregator) clampRefunds(l *lane, c *counter, replica crdt.Replica, cells []crdt.Cell, oldest, horizon crdt.Slice, delta int, m *merged) []crdt.Cell {
	own := c.edges.Of(replica)
	if own == nil {
		own = &crdt.Vector{}
	}
	first := slices.IndexFunc(cells, func(cell crdt.Cell) bool {
		return cell.Slice >= oldest && cell.Refunds > own.Get(cell.Slice).Refunds
	})
	if first < 0 {
		return cells
	}
	if m.looked > mostLooked {
		a.stats.crowded.Add(1)
		m.refuse(delta, deltasync.StatusOverloaded)
		return cells[:first]
	}
	last := cells[len(cells)-1].Slice
	if latest, ok := c.edges.Sums().Last(); ok {
		last = max(last, min(latest, horizon)) // one beyond was told before a clock was set back
	}
	of := l.countedBy(entriesIn(c.edges.Entries(), deltasync.PopOf(replica.Node)), oldest, last, m)
	room := min(c.smallestLimit(), max(l.chargedBeside(c, of, oldest), early))
	for _, cell := range cells {
		if cell.Slice >= oldest {
			s := &of[cell.Slice-oldest]
			s.Charges = crdt.SatAdd(s.Charges, crdt.SatSub(cell.Charges, own.Get(cell.Slice).Charges))
		}
	}
	for i := range of {
		room = crdt.SatSub(room, crdt.SatSub(of[i].Refunds, of[i].Charges))
	}
	kept, clamped := cells, false
	for i, cell := range cells {
		held := own.Get(cell.Slice).Refunds
		if cell.Slice < oldest || cell.Refunds <= held {
			continue
		}
		free := crdt.SatSub(of[cell.Slice-oldest].Charges, of[cell.Slice-oldest].Refunds)
		take := min(cell.Refunds-held, crdt.SatAdd(free, room), crdt.SatSub(largestRefund, held))
		room -= crdt.SatSub(take, free)
		if held+take == cell.Refunds {
			continue
		}
		if !clamped {
			kept, clamped = slices.Clone(cells), true
		}
		kept[i].Refunds = held + take
	}
	if clamped {
		a.stats.clamped.Add(1)
		m.refuse(delta, deltasync.StatusForbidden)
		kept = slices.DeleteFunc(kept, crdt.Cell.Zero)
	}
	return kept
}

// smallestLimit is the smallest that anybody tells who has counts here.
func (c *counter) smallestLimit() uint64 {
	least := c.shape.Limit
	if c.votes != nil {
		for i := range c.votes.tally {
			least = min(least, c.votes.tally[i].shape.Limit)
		}
	}
	return least
}

// chargedBeside is what is charged in slices from one on, less what some of them have,
// by slice.
func (l *lane) chargedBeside(c *counter, of []crdt.Cell, from crdt.Slice) (sum uint64) {
	for _, cell := range l.everything(c) {
		if cell.Slice < from {
			continue
		}
		charges := cell.Charges
		if at := cell.Slice - from; at < crdt.Slice(len(of)) {
			charges = crdt.SatSub(charges, of[at].Charges)
		}
		sum = crdt.SatAdd(sum, charges)
	}
	return sum
}

// countedBy is what some entries have in slices from one to another, together. It is
// valid until the next call.
func (l *lane) countedBy(entries []crdt.Entry, from, to crdt.Slice, m *merged) []crdt.Cell {
	n := int(to-from) + 1
	of := slices.Grow(l.given[:0], n)[:n]
	clear(of)
	l.given = of
	for i := range entries {
		v := &entries[i].Vector
		m.looked += v.Len() + 1
		for j := range v.Len() {
			if cell := v.At(j); cell.Slice >= from && cell.Slice <= to {
				of[cell.Slice-from] = of[cell.Slice-from].Plus(cell)
			}
		}
	}
	return of
}
