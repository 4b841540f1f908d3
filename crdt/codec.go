package crdt

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The canonical form of a counter: equal counters have equal bytes, and Decode
// refuses every other spelling. All integers are minimal LEB128 varints, as
// encoding/binary writes them.
//
//	counter  = entries:uvarint entry*                  ascending by replica
//	entry    = node:8 incarnation:8 vector             big endian
//	vector   = cells:uvarint first:varint cell*        at least one cell
//	cell     = gap:uvarint charges:uvarint refunds:uvarint
//
// gap is the distance from the slice before (0 in the first cell, else at
// least 1); one of the counts is not zero.

// ErrEncoding is what Decode returns, wrapped, for bytes that are not the
// canonical form of a counter.
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
	n := r.uvarint()
	var prev Replica
	for i := uint64(0); i < n && r.err == nil; i++ {
		rep := Replica{Node: r.fixed(), Incarnation: r.fixed()}
		if i > 0 && prev.Compare(rep) >= 0 {
			r.fail("replicas out of order")
		}
		prev = rep
		r.vector(func(c Cell) { out.Join(rep, c) })
	}
	if r.err == nil && r.at != len(src) {
		r.fail("bytes after the end")
	}
	if r.err != nil {
		return fmt.Errorf("decode counter at byte %d: %w", r.at, r.err)
	}
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

func (r *reader) vector(each func(Cell)) {
	n := r.uvarint()
	if r.err == nil && n == 0 {
		r.fail("empty vector")
	}
	at := r.varint()
	for i := uint64(0); i < n && r.err == nil; i++ {
		gap := r.uvarint()
		c := Cell{Charges: r.uvarint(), Refunds: r.uvarint()}
		switch next := at + int64(gap); {
		case r.err != nil:
			return
		case (i == 0) != (gap == 0):
			r.fail("slices out of order")
		case next < at || int64(gap) < 0:
			r.fail("slice out of range")
		case c.Zero():
			r.fail("cell without a count")
		default:
			at = next
			c.Slice = Slice(at)
			each(c)
		}
	}
}
