package redisstore

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
)

const (
	format       = 0x10 // of a packed vector, in the high half of its first byte
	maxOffset    = 6    // bytes; Lua computes with offsets, exactly up to 2^53
	fieldLen     = 1 + 8 + 8
	fieldVersion = "v"
	fieldCarry   = "c"
	fieldRest    = "m"
	fieldUntil   = "u"
)

var errVector = errors.New("not a packed vector")

// appendVector appends the packed form of cells, which are not empty and belong
// to one group, whose first slice is first.
func appendVector(dst []byte, first crdt.Slice, cells []crdt.Cell) []byte {
	var charges, refunds uint64
	for _, c := range cells {
		charges |= c.Charges
		refunds |= c.Refunds
	}
	o := max(1, bytesOf(uint64(cells[len(cells)-1].Slice-first)))
	c, r := max(1, bytesOf(charges)), bytesOf(refunds)
	dst = append(dst, byte(format|o), byte(c<<4|r))
	for _, cell := range cells {
		dst = appendUint(dst, uint64(cell.Slice-first), o)
		dst = appendUint(dst, cell.Charges, c)
		dst = appendUint(dst, cell.Refunds, r)
	}
	return dst
}

// appendCells appends the cells of the packed vector src. A vector that is not
// well-formed, or has a slice outside of its group of the given size, is
// refused as a whole.
func appendCells(dst []crdt.Cell, src string, first crdt.Slice, size int64) ([]crdt.Cell, error) {
	if len(src) < 2 {
		return dst, errVector
	}
	o, c, r := int(src[0])-format, int(src[1]>>4), int(src[1]&15)
	stride := o + c + r
	if o < 1 || o > maxOffset || c < 1 || c > 8 || r > 8 || len(src) == 2 || (len(src)-2)%stride != 0 {
		return dst, errVector
	}
	out, last := dst, int64(-1)
	for src = src[2:]; len(src) > 0; src = src[stride:] {
		offset := int64(uintOf(src[:o]))
		cell := crdt.Cell{Slice: first + crdt.Slice(offset), Charges: uintOf(src[o : o+c]), Refunds: uintOf(src[o+c : stride])}
		if offset <= last || offset >= size || cell.Zero() {
			return dst, errVector
		}
		out, last = append(out, cell), offset
	}
	return out, nil
}

// appendField appends the name of a replica's field.
func appendField(dst []byte, source regional.Source, r crdt.Replica) []byte {
	letter := byte('e')
	switch source {
	case regional.FromRegion:
		letter = 'r'
	case regional.FromPeers:
		letter = 's'
	case regional.FromHomes:
		letter = 'o'
	}
	dst = append(dst, letter)
	dst = binary.BigEndian.AppendUint64(dst, r.Node)
	return binary.BigEndian.AppendUint64(dst, r.Incarnation)
}

// replicaOf reads the name of a replica's field; ok is false for other fields.
func replicaOf(field string) (source regional.Source, r crdt.Replica, ok bool) {
	if len(field) != fieldLen {
		return 0, r, false
	}
	switch field[0] {
	case 'e':
		source = regional.FromEdge
	case 'r':
		source = regional.FromRegion
	case 's':
		source = regional.FromPeers
	case 'o':
		source = regional.FromHomes
	default:
		return 0, r, false
	}
	return source, crdt.Replica{Node: uintOf(field[1:9]), Incarnation: uintOf(field[9:])}, true
}

func bytesOf(x uint64) int { return (bits.Len64(x) + 7) / 8 }

func appendUint(dst []byte, x uint64, width int) []byte {
	for i := width - 1; i >= 0; i-- {
		dst = append(dst, byte(x>>(8*i)))
	}
	return dst
}

func uintOf(s string) uint64 {
	x := uint64(0)
	for i := range len(s) {
		x = x<<8 | uint64(s[i])
	}
	return x
}
