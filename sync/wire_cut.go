package deltasync

import (
	"math"

	"github.com/spillgate/spillgate/crdt"
	"google.golang.org/protobuf/encoding/protowire"
)

// downHead bounds what a Down takes beside its columns: the head (132 bytes),
// tag and length of eighteen records, the base, and the three first slices.
const downHead = 250

// Cut shortens Totals so that the frame fits in MaxFrame: what it says of the
// first keys is good, and its receiver asks again for the rest. Where Refused
// leaves no room for the first key it is left out: its receiver then takes all
// deltas for refused, which is slow and right. A frame that is too large with
// one key and nothing else stays too large.
func (d *Down) Cut() {
	room := MaxFrame - downHead
	for _, i := range d.Refused {
		room -= protowire.SizeVarint(uint64(i))
	}
	n := d.fitting(room)
	if n == 0 && len(d.Refused) > 0 {
		d.Refused = nil
		n = d.fitting(MaxFrame - downHead)
	}
	d.Totals = d.Totals[:min(max(n, 1), len(d.Totals))]
}

// fitting is how many Totals fit in so many bytes. It counts what each adds,
// from above and within a few bytes.
func (d *Down) fitting(room int) int {
	var others, peers, own measure
	carried, carry, distance := false, 0, d.farthest()
	punished, until := false, 0
	shared, share := false, 0
	for i := range d.Totals {
		t := &d.Totals[i]
		others.add(t.Others)
		peers.add(t.Peers)
		own.add(t.Own)
		size := others.size(true) + peers.size(false) + own.size(true)
		if t.Carry.Level > 0 {
			carried = true
			carry += distance + protowire.SizeVarint(t.Carry.Level)
		} else {
			carry += 2 // a zero in both columns
		}
		if carried {
			size += carry
		}
		punished = punished || t.Until != 0
		if until += protowire.SizeVarint(uint64(t.Until)); punished {
			size += until
		}
		if share += shareSize(t.Share); t.Share != nil {
			shared = true
		}
		if shared {
			size += shareHead + share
		}
		if size > room {
			return i
		}
	}
	return len(d.Totals)
}

// farthest is what the distance of a carry from the base takes at most, in
// bytes, whichever slice the base is once the frame is cut.
func (d *Down) farthest() int {
	low, high := crdt.Slice(math.MaxInt64), crdt.Slice(math.MinInt64)
	note := func(s crdt.Slice) { low, high = min(low, s), max(high, s) }
	for i := range d.Totals {
		t := &d.Totals[i]
		for _, cells := range [...][]crdt.Cell{t.Others, t.Peers, t.Own} {
			if len(cells) > 0 {
				note(cells[0].Slice)
			}
		}
		if t.Carry.Level > 0 {
			note(t.Carry.Boundary)
		}
	}
	if low > high {
		return 1
	}
	return protowire.SizeVarint(protowire.EncodeZigZag(int64(high - low)))
}

// measure counts the bytes of a block of cells, column by column, because those
// that say nothing are left out.
type measure struct {
	ref      crdt.Slice // what the next first slice is written relative to
	started  bool       // ref is set: some list has a cell
	counts   int
	plural   bool // some list has not one cell
	cells    int  // columns of slices and charges
	refunds  int
	refunded bool // some cell has refunds
}

// add counts one more list.
func (m *measure) add(cells []crdt.Cell) {
	m.counts += protowire.SizeVarint(uint64(len(cells)))
	m.plural = m.plural || len(cells) != 1
	if len(cells) == 0 {
		return
	}
	prev := m.ref
	if !m.started {
		prev = cells[0].Slice // its distance from the base is in downHead
	}
	m.ref, m.started = cells[0].Slice, true
	for _, c := range cells {
		refund := protowire.SizeVarint(c.Refunds)
		m.cells += cellSize(c, prev) - refund
		m.refunds += refund
		m.refunded = m.refunded || c.Refunds > 0
		prev = c.Slice
	}
}

// size is what the block takes, which is left out if it is optional and has no
// cell.
func (m *measure) size(optional bool) int {
	if optional && !m.started {
		return 0
	}
	size := m.cells
	if m.plural {
		size += m.counts
	}
	if m.refunded {
		size += m.refunds
	}
	return size
}

// cellSize is what a cell takes that is written relative to slice prev, in a
// block with all columns.
func cellSize(c crdt.Cell, prev crdt.Slice) int {
	return protowire.SizeVarint(protowire.EncodeZigZag(int64(c.Slice-prev))) +
		protowire.SizeVarint(c.Charges) + protowire.SizeVarint(c.Refunds)
}
