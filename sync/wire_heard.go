package deltasync

import (
	"fmt"

	"github.com/spillgate/spillgate/crdt"
	"google.golang.org/protobuf/encoding/protowire"
)

// heards are the slices that totals were heard in, one a key.
type heards struct {
	n  int
	at func(i int) *crdt.Slice
}

// first is the first of them; 0 where there is none.
func (h heards) first() crdt.Slice {
	for i := range h.n {
		if heard := *h.at(i); heard != 0 {
			return heard
		}
	}
	return 0
}

// heards appends the column, unless it is all zero.
func (w *writer) heards(num protowire.Number, base crdt.Slice, h heards) error {
	if h.first() == 0 {
		return nil
	}
	at, b := w.open(num), w.b
	for i := range h.n {
		heard := *h.at(i)
		if err := checkHeard(heard); err != nil {
			return err
		}
		b = appendVarint(b, heardValue(heard, base))
	}
	w.b = b
	w.close(at)
	return nil
}

func checkHeard(heard crdt.Slice) error {
	if heard < -maxSlice || heard > maxSlice {
		return fmt.Errorf("heard: %d is out of range", heard)
	}
	return nil
}

// heardValue is how a slice is written.
func heardValue(heard, base crdt.Slice) uint64 {
	if heard == 0 {
		return 0
	}
	return protowire.EncodeZigZag(int64(heard-base)) + 1
}

// heardSize is what it takes in the column.
func heardSize(heard, base crdt.Slice) int { return protowire.SizeVarint(heardValue(heard, base)) }

// readHeards hands out the slices; an absent column is zeros.
func readHeards(c *column, base crdt.Slice, to heards) error {
	switch {
	case !c.set:
		return nil
	case c.len() != to.n:
		return fmt.Errorf("heard: %d of them for %d keys", c.len(), to.n)
	}
	for i := range to.n {
		v, ok := c.next()
		if !ok {
			return fmt.Errorf("heard: %w", errCut)
		}
		if v == 0 {
			continue
		}
		d := protowire.DecodeZigZag(v - 1)
		if d < -2*int64(maxSlice) || d > 2*int64(maxSlice) {
			return fmt.Errorf("heard: a distance of %d is out of range", d)
		}
		heard := base + crdt.Slice(d)
		if err := checkHeard(heard); err != nil {
			return err
		}
		*to.at(i) = heard
	}
	return nil
}
