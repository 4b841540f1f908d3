package deltasync

import (
	"fmt"

	"github.com/spillgate/spillgate/crdt"
	"google.golang.org/protobuf/encoding/protowire"
)

// carries are carries, one a key.
type carries struct {
	n  int
	at func(i int) *crdt.Carry
}

// carries appends the two columns of carries, each unless it is all zero. A
// carry of level 0 says nothing, wherever its boundary: it is written as none.
func (w *writer) carries(slices, levels protowire.Number, base crdt.Slice, c carries) error {
	some, moved := false, false
	for i := range c.n {
		carry := c.at(i)
		if err := checkCarry(*carry); err != nil {
			return err
		}
		if carry.Level > 0 {
			some = true
			moved = moved || carry.Boundary != base
		}
	}
	if moved {
		at := w.open(slices)
		for i := range c.n {
			distance := int64(0)
			if carry := c.at(i); carry.Level > 0 {
				distance = int64(carry.Boundary - base)
			}
			w.b = protowire.AppendVarint(w.b, protowire.EncodeZigZag(distance))
		}
		w.close(at)
	}
	if some {
		at := w.open(levels)
		for i := range c.n {
			w.b = protowire.AppendVarint(w.b, c.at(i).Level)
		}
		w.close(at)
	}
	return nil
}

func checkCarry(c crdt.Carry) error {
	if c.Level > 0 && (c.Boundary < -maxSlice || c.Boundary > maxSlice) {
		return fmt.Errorf("carry_slices: %d is out of range", c.Boundary)
	}
	return nil
}

// carrySize is what a carry takes in columns relative to base.
func carrySize(c crdt.Carry, base crdt.Slice) int {
	if c.Level == 0 {
		return 2
	}
	return protowire.SizeVarint(protowire.EncodeZigZag(int64(c.Boundary-base))) + protowire.SizeVarint(c.Level)
}

// carryColumns is the carries as they stand on the wire.
type carryColumns struct{ slices, levels column }

// read hands out the carries; absent columns are zeros.
func (c *carryColumns) read(base crdt.Slice, to carries) error {
	switch {
	case c.slices.set && c.slices.len() != to.n:
		return fmt.Errorf("carry_slices: %d of them for %d keys", c.slices.len(), to.n)
	case c.levels.set && c.levels.len() != to.n:
		return fmt.Errorf("carry_levels: %d of them for %d keys", c.levels.len(), to.n)
	case !c.slices.set && !c.levels.set:
		return nil
	}
	for i := range to.n {
		distance, ok := c.slices.orZero()
		if !ok {
			return fmt.Errorf("carry_slices: %w", errCut)
		}
		level, ok := c.levels.orZero()
		if !ok {
			return fmt.Errorf("carry_levels: %w", errCut)
		}
		if level == 0 {
			if distance != 0 {
				return fmt.Errorf("carry_levels: key %d has a boundary and no level", i)
			}
			continue
		}
		d := protowire.DecodeZigZag(distance)
		if d < -2*int64(maxSlice) || d > 2*int64(maxSlice) {
			return fmt.Errorf("carry_slices: a distance of %d is out of range", d)
		}
		carry := crdt.Carry{Boundary: base + crdt.Slice(d), Level: level}
		if err := checkCarry(carry); err != nil {
			return err
		}
		*to.at(i) = carry
	}
	return nil
}
