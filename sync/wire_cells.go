package deltasync

import (
	"errors"
	"fmt"

	"github.com/spillgate/spillgate/crdt"
	"google.golang.org/protobuf/encoding/protowire"
)

// lists are lists of cells, one a key.
type lists struct {
	n  int
	at func(i int) []crdt.Cell
}

// firstSlice is the slice that a message's cells and carries are written
// relative to: the first one of all cells, or else of all carries, so that it
// costs its full length once.
func firstSlice(or carries, of ...lists) crdt.Slice {
	for _, l := range of {
		for i := range l.n {
			if cells := l.at(i); len(cells) > 0 {
				return cells[0].Slice
			}
		}
	}
	for i := range or.n {
		if c := or.at(i); c.Level > 0 {
			return c.Boundary
		}
	}
	return 0
}

// cells appends a block of cells, unless it is empty and may be left out.
func (w *writer) cells(num protowire.Number, base crdt.Slice, l lists, optional bool) error {
	total, single, moved, refunded := 0, true, false, false
	for i := range l.n {
		cells := l.at(i)
		if err := checkCells(cells); err != nil {
			return err
		}
		total += len(cells)
		single = single && len(cells) == 1
		for _, c := range cells {
			moved = moved || c.Slice != base
			refunded = refunded || c.Refunds != 0
		}
	}
	if total == 0 && optional {
		return nil
	}
	block := w.open(num)
	if !single {
		at, b := w.open(cellsCounts), w.b
		for i := range l.n {
			b = appendVarint(b, uint64(len(l.at(i))))
		}
		w.b = b
		w.close(at)
	}
	if moved {
		w.slices(base, l)
	}
	if total > 0 {
		at, b := w.open(cellsCharges), w.b
		for i := range l.n {
			for _, c := range l.at(i) {
				b = appendVarint(b, c.Charges)
			}
		}
		w.b = b
		w.close(at)
	}
	if refunded {
		at, b := w.open(cellsRefunds), w.b
		for i := range l.n {
			for _, c := range l.at(i) {
				b = appendVarint(b, c.Refunds)
			}
		}
		w.b = b
		w.close(at)
	}
	w.close(block)
	return nil
}

func (w *writer) slices(base crdt.Slice, l lists) {
	at, b := w.open(cellsSlices), w.b
	for i := range l.n {
		prev := base
		for j, c := range l.at(i) {
			b = appendVarint(b, protowire.EncodeZigZag(int64(c.Slice-prev)))
			if prev = c.Slice; j == 0 {
				base = c.Slice
			}
		}
	}
	w.b = b
	w.close(at)
}

// cellColumns is a block of cells as it stands on the wire.
type cellColumns struct {
	counts, slices, charges, refunds column
}

// cells gathers the columns of a field that is a block of cells.
func (m *message) cells(field string, c *cellColumns) {
	in := m.message(field)
	for in.next() {
		switch in.num {
		case cellsCounts:
			in.varints("counts", &c.counts)
		case cellsSlices:
			in.varints("slices", &c.slices)
		case cellsCharges:
			in.varints("charges", &c.charges)
		case cellsRefunds:
			in.varints("refunds", &c.refunds)
		}
	}
	if in.err != nil && m.err == nil {
		m.err = fmt.Errorf("%s.%w", field, in.err)
	}
}

// lists is the number of lists in the block.
func (c *cellColumns) lists() int {
	if c.counts.set {
		return c.counts.len()
	}
	return c.charges.len()
}

// read hands out the lists of the block, one after the other; an absent block
// has none with a cell. They share one piece of room, as large as the column of
// charges says, whatever the counts claim.
func (c *cellColumns) read(n int, base crdt.Slice, room func(cells int) []crdt.Cell, put func(i int, cells []crdt.Cell)) error {
	total := c.charges.len()
	switch {
	case c.slices.set && c.slices.len() != total:
		return fmt.Errorf("slices: %d of them for %d charges", c.slices.len(), total)
	case c.refunds.set && c.refunds.len() != total:
		return fmt.Errorf("refunds: %d of them for %d charges", c.refunds.len(), total)
	case !c.counts.set && total == 0:
		return nil
	case c.lists() != n:
		return fmt.Errorf("counts: %d lists of cells for %d keys", c.lists(), n)
	}
	free := room(total)
	for i := range n {
		k := uint64(1)
		if c.counts.set {
			var ok bool
			if k, ok = c.counts.next(); !ok {
				return fmt.Errorf("counts: %w", errCut)
			}
		}
		switch {
		case k > maxCells:
			return fmt.Errorf("counts: %d cells of one key, want at most %d", k, maxCells)
		case k > uint64(len(free)):
			return fmt.Errorf("counts: more cells than the %d charges", total)
		case k == 0:
			continue
		}
		cells := free[:k:k]
		free = free[k:]
		if !c.short(cells, base) {
			if err := c.list(cells, base); err != nil {
				return err
			}
		}
		base = cells[0].Slice
		put(i, cells)
	}
	if len(free) > 0 {
		return fmt.Errorf("counts: fewer cells than the %d charges", total)
	}
	return nil
}

// newCells is room that is nobody else's.
func newCells(n int) []crdt.Cell { return make([]crdt.Cell, n) }

// list fills cells, relative to slice prev.
func (c *cellColumns) list(cells []crdt.Cell, prev crdt.Slice) error {
	for j := range cells {
		var distance, charges, refunds uint64
		ok := true
		if c.slices.set {
			distance, ok = c.slices.next()
		}
		if ok {
			charges, ok = c.charges.next()
		}
		if ok && c.refunds.set {
			refunds, ok = c.refunds.next()
		}
		if !ok {
			return errors.New("malformed number in slices, charges or refunds")
		}
		d := protowire.DecodeZigZag(distance)
		if d < -2*int64(maxSlice) || d > 2*int64(maxSlice) {
			return fmt.Errorf("slices: a distance of %d is out of range", d)
		}
		cells[j] = crdt.Cell{Slice: prev + crdt.Slice(d), Charges: charges, Refunds: refunds}
		if err := checkCell(cells[j], prev, j == 0); err != nil {
			return err
		}
		prev = cells[j].Slice
	}
	return nil
}

// short is list where all numbers take a byte, as nearly all do, and nothing is wrong.
// Else it is false, and list begins anew.
func (c *cellColumns) short(cells []crdt.Cell, prev crdt.Slice) bool {
	charges, distances := c.charges.ahead(len(cells)), c.slices.ahead(len(cells))
	if charges == nil || distances == nil && c.slices.set || c.refunds.set {
		return false
	}
	for j := range cells {
		x, d := charges[j], byte(0)
		if distances != nil {
			d = distances[j]
		}
		if x == 0 || x|d >= 0x80 || j > 0 && (d == 0 || d&1 != 0) { // a zigzag that is odd goes back
			return false
		}
		prev += crdt.Slice(d>>1) ^ -crdt.Slice(d&1)
		cells[j] = crdt.Cell{Slice: prev, Charges: uint64(x)}
	}
	if cells[0].Slice < -maxSlice || prev > maxSlice {
		return false
	}
	c.charges.at += len(cells)
	c.slices.at += len(distances)
	return true
}
