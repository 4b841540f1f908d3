package crdt

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// The canonical form of a counter: equal counters have equal bytes, and
// UnmarshalBinary refuses every other spelling. All integers are minimal LEB128
// varints, as encoding/binary writes them.
//
//	counter  = entries:uvarint entry*                  ascending by replica
//	entry    = node:8 incarnation:8 vector             big endian
//	vector   = cells:uvarint first:varint cell*        at least one cell
//	cell     = gap:uvarint charges:uvarint refunds:uvarint
//
// gap is the distance from the slice before (0 in the first cell, else at
// least 1); one of the counts is not zero.

// ErrEncoding is what UnmarshalBinary returns, wrapped, for bytes that are not
// the canonical form of a counter.
var ErrEncoding = errors.New("not a canonical counter")

// AppendBinary appends the canonical form of g to dst.
func (g *GCounter) AppendBinary(dst []byte) ([]byte, error) {
	dst = binary.AppendUvarint(dst, uint64(len(g.entries)))
	for i := range g.entries {
		e := &g.entries[i]
		dst = binary.BigEndian.AppendUint64(dst, e.Replica.Node)
		dst = binary.BigEndian.AppendUint64(dst, e.Replica.Incarnation)
		dst = e.Vector.appendBinary(dst)
	}
	return dst, nil
}

func (v *Vector) appendBinary(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(v.Len()))
	prev := Slice(0)
	for i := range v.Len() {
		c := v.At(i)
		if i == 0 {
			dst = binary.AppendVarint(dst, int64(c.Slice))
			prev = c.Slice
		}
		dst = binary.AppendUvarint(dst, uint64(c.Slice-prev))
		dst = binary.AppendUvarint(dst, c.Charges)
		dst = binary.AppendUvarint(dst, c.Refunds)
		prev = c.Slice
	}
	return dst
}

// UnmarshalBinary replaces g by the counter that src is the canonical form of.
// On an error, which wraps ErrEncoding, g is left as it was. It allocates no
// more than a small multiple of len(src).
func (g *GCounter) UnmarshalBinary(src []byte) error {
	r := reader{src: src}
	var out GCounter
	var cells []Cell
	n := r.uvarint()
	for i := uint64(0); i < n && r.err == nil; i++ {
		e := Entry{Replica: Replica{Node: r.fixed(), Incarnation: r.fixed()}}
		if i > 0 && out.entries[i-1].Replica.Compare(e.Replica) >= 0 {
			r.fail("replicas out of order")
		}
		cells = r.vector(&e.Vector, cells)
		out.entries = append(out.entries, e)
	}
	if r.err == nil && r.at != len(src) {
		r.fail("bytes after the end")
	}
	if r.err != nil {
		return fmt.Errorf("decode counter at byte %d: %w", r.at, r.err)
	}
	// In order of slice: summed entry by entry, hostile input could make each
	// cell go in front of all others.
	slices.SortFunc(cells, func(a, b Cell) int { return cmp.Compare(a.Slice, b.Slice) })
	for _, c := range cells {
		out.sums.Add(c)
	}
	out.cells = out.measure()
	*g = out
	return nil
}

type reader struct {
	src []byte
	at  int
	err error
}

func (r *reader) fail(why string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrEncoding, why)
	}
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	x, k := binary.Uvarint(r.src[r.at:])
	if k <= 0 {
		r.fail("truncated or oversized varint")
		return 0
	}
	if k > 1 && r.src[r.at+k-1] == 0 {
		r.fail("varint is not minimal")
		return 0
	}
	r.at += k
	return x
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	x := int64(u >> 1)
	if u&1 != 0 {
		x = ^x
	}
	return x
}

func (r *reader) fixed() uint64 {
	if r.err != nil {
		return 0
	}
	if len(r.src)-r.at < 8 {
		r.fail("truncated replica")
		return 0
	}
	x := binary.BigEndian.Uint64(r.src[r.at:])
	r.at += 8
	return x
}

// vector reads the cells of one vector into v and appends them to all.
func (r *reader) vector(v *Vector, all []Cell) []Cell {
	n := r.uvarint()
	if r.err == nil && n == 0 {
		r.fail("empty vector")
	}
	at := r.varint()
	for i := uint64(0); i < n && r.err == nil; i++ {
		gap := r.uvarint()
		c := Cell{Charges: r.uvarint(), Refunds: r.uvarint()}
		switch {
		case r.err != nil:
		case (i == 0) != (gap == 0):
			r.fail("slices out of order")
		case gap > uint64(math.MaxInt64)-uint64(at): // what is left above at, exact in uint64
			r.fail("slice out of range")
		case c.Zero():
			r.fail("cell without a count")
		default:
			at = int64(uint64(at) + gap)
			c.Slice = Slice(at)
			v.Join(c)
			all = append(all, c)
		}
	}
	return all
}
