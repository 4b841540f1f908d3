package crdt

import (
	"encoding/binary"
	"math"
)

// Vector holds the cells of one replica in ascending order of slice. The zero
// value is empty and ready for use.
//
// The record is packed: each cell is an offset from the first slice and one or
// two counts, with offsets and counts as wide as the largest needs (1, 2, 4 or
// 8 bytes), refunds only once there was one, and offsets only once a slice was
// left out: busy keys have counts in all of them. A vector of 40 small counts
// takes 40 bytes, or 80 with gaps. It widens in place and never narrows until it
// is empty, so a vector that moves with its window stops allocating once it has
// been full.
type Vector struct {
	first   Slice // slice that offsets are relative to: no cell is earlier
	n       uint32
	offset  uint8 // bytes of an offset; 0: no slice between first and the last is left out
	count   uint8 // bytes of a count
	refunds bool  // cells carry a second count
	buf     []byte
}

// Len is the number of cells.
func (v *Vector) Len() int { return int(v.n) }

// At is cell i in ascending order, 0 <= i < Len.
func (v *Vector) At(i int) Cell {
	p := v.buf[i*v.stride():]
	c := Cell{Slice: v.first + Slice(i)}
	if v.offset > 0 {
		c.Slice = v.first + Slice(load(p, v.offset))
	}
	c.Charges = load(p[v.offset:], v.count)
	if v.refunds {
		c.Refunds = load(p[v.offset+v.count:], v.count)
	}
	return c
}

// Get is the cell of slice s, with zero counts where the vector has none.
func (v *Vector) Get(s Slice) Cell {
	if i, ok := v.find(s); ok {
		return v.At(i)
	}
	return Cell{Slice: s}
}

// First is the oldest slice held; ok is false in an empty vector.
func (v *Vector) First() (s Slice, ok bool) { return v.first, v.n > 0 }

// Last is the newest slice held; ok is false in an empty vector.
func (v *Vector) Last() (s Slice, ok bool) {
	if v.n == 0 {
		return 0, false
	}
	return v.At(int(v.n) - 1).Slice, true
}

// Add adds the counts of c to those of its slice, saturating. It is for the
// one writer of the vector and for sums; what comes from elsewhere is joined.
func (v *Vector) Add(c Cell) {
	if c.Zero() {
		return
	}
	i, ok := v.find(c.Slice)
	if !ok {
		v.insert(i, c)
		return
	}
	if v.offset == 0 && !v.refunds && c.Refunds == 0 { // nothing else stands beside its charges
		p := v.buf[i*int(v.count):]
		if sum := SatAdd(load(p, v.count), c.Charges); bytesOf(sum) <= v.count {
			store(p, v.count, sum)
			return
		}
	}
	v.set(i, v.At(i).Plus(c))
}

// Join raises the counts of c's slice to those of c and returns by how much
// they rose; a zero cell means that nothing changed.
func (v *Vector) Join(c Cell) (rise Cell) {
	i, ok := v.find(c.Slice)
	if !ok {
		if !c.Zero() {
			v.insert(i, c)
		}
		return c
	}
	old := v.At(i)
	if c.Charges <= old.Charges && c.Refunds <= old.Refunds {
		return Cell{Slice: c.Slice} // as of most that is told: it was told before
	}
	joined := old.Join(c)
	rise = joined.Less(old)
	if !rise.Zero() {
		v.set(i, joined)
	}
	return rise
}

// JoinAll joins cells and says whether anything rose.
func (v *Vector) JoinAll(cells []Cell) (rose bool) {
	for i := range cells {
		if !v.holds(&cells[i]) && !v.Join(cells[i]).Zero() {
			rose = true
		}
	}
	return rose
}

// holds is true where it is easily seen that c says nothing new: most that is told
// was told before, and most vectors have neither gaps nor refunds.
func (v *Vector) holds(c *Cell) bool {
	i := uint64(c.Slice - v.first)
	return v.offset == 0 && !v.refunds && i < uint64(v.n) && c.Refunds == 0 && c.Charges <= load(v.buf[i*uint64(v.count):], v.count)
}

// Merge joins every cell of o, which it leaves alone, and says whether
// anything rose.
func (v *Vector) Merge(o *Vector) bool {
	changed := false
	for i := range o.Len() {
		if !v.Join(o.At(i)).Zero() {
			changed = true
		}
	}
	return changed
}

// Retire drops the cells of slices before s and returns how many there were.
func (v *Vector) Retire(before Slice) int {
	if v.n == 0 || v.first >= before {
		return 0
	}
	k, _ := v.find(before)
	if k == 0 {
		return 0
	}
	stride := v.stride()
	left := int(v.n) - k
	if left == 0 {
		v.Reset()
		return k
	}
	first := v.At(k).Slice
	shift := uint64(first - v.first)
	copy(v.buf, v.buf[k*stride:])
	v.buf = v.buf[:left*stride]
	if v.offset > 0 {
		for i := range left {
			p := v.buf[i*stride:]
			store(p, v.offset, load(p, v.offset)-shift)
		}
	}
	v.first, v.n = first, uint32(left)
	return k
}

// Reset empties the vector and keeps its memory.
func (v *Vector) Reset() {
	*v = Vector{buf: v.buf[:0]}
}

// StartIn has an empty vector without memory keep its first cells in room, which
// nobody else uses then.
func (v *Vector) StartIn(room []byte) { v.buf = room[:0:len(room)] }

// Clone is a copy that shares no memory with v.
func (v *Vector) Clone() Vector {
	c := *v
	c.buf = append([]byte(nil), v.buf...)
	return c
}

// Cells appends the cells to dst in ascending order.
func (v *Vector) Cells(dst []Cell) []Cell {
	if v.offset == 0 && v.count == 1 && !v.refunds { // as of busy keys with small counts
		for i, charges := range v.buf {
			dst = append(dst, Cell{Slice: v.first + Slice(i), Charges: uint64(charges)})
		}
		return dst
	}
	for i := range v.Len() {
		dst = append(dst, v.At(i))
	}
	return dst
}

// From appends the cells of slice s and later to dst in ascending order.
func (v *Vector) From(s Slice, dst []Cell) []Cell {
	i, _ := v.find(s)
	for ; i < v.Len(); i++ {
		dst = append(dst, v.At(i))
	}
	return dst
}

// Bytes is the memory that the vector's cells hold, in bytes.
func (v *Vector) Bytes() int { return cap(v.buf) }

func (v *Vector) stride() int {
	s := int(v.offset) + int(v.count)
	if v.refunds {
		s += int(v.count)
	}
	return s
}

// find is the index of slice s, or the index where it belongs. The newest
// cells are the ones asked for, so it looks there before it bisects.
func (v *Vector) find(s Slice) (int, bool) {
	n := int(v.n)
	if n == 0 || s < v.first {
		return 0, false
	}
	want := uint64(s - v.first)
	if v.offset == 0 {
		return int(min(want, uint64(n))), want < uint64(n)
	}
	stride := v.stride()
	if last := load(v.buf[(n-1)*stride:], v.offset); last <= want {
		if last == want {
			return n - 1, true
		}
		return n, false
	}
	lo, hi := 0, n-1
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if load(v.buf[mid*stride:], v.offset) < want {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, load(v.buf[lo*stride:], v.offset) == want
}

// set overwrites the counts of cell i.
func (v *Vector) set(i int, c Cell) {
	if bytesOf(max(c.Charges, c.Refunds)) > v.count || c.Refunds > 0 && !v.refunds {
		v.widen(c, v.first)
	}
	v.put(i, c)
}

// insert makes room at i and writes c there.
func (v *Vector) insert(i int, c Cell) {
	if v.n == 0 {
		v.first = c.Slice
	}
	v.widen(c, min(v.first, c.Slice))
	stride := v.stride()
	v.extend(stride)
	copy(v.buf[(i+1)*stride:], v.buf[i*stride:int(v.n)*stride])
	v.n++
	v.put(i, c)
}

// extend makes the record longer. Its memory grows by a quarter, where append
// would double it: most vectors grow to a window's slices and stay there.
func (v *Vector) extend(by int) {
	n := len(v.buf) + by
	if n > cap(v.buf) {
		grown := make([]byte, n, roomFor(n+len(v.buf)/4))
		copy(grown, v.buf)
		v.buf = grown
		return
	}
	v.buf = v.buf[:n]
}

// roomFor is n rounded up to what the allocator gives anyway, or nearly so.
func roomFor(n int) int {
	if n <= 32 {
		return (n + 7) &^ 7
	}
	return (n + 15) &^ 15
}

func (v *Vector) put(i int, c Cell) {
	p := v.buf[i*v.stride():]
	if v.offset > 0 {
		store(p, v.offset, uint64(c.Slice-v.first))
	}
	store(p[v.offset:], v.count, c.Charges)
	if v.refunds {
		store(p[v.offset+v.count:], v.count, c.Refunds)
	}
}

// widen lays the record out anew where c does not fit, or where first moves.
func (v *Vector) widen(c Cell, first Slice) {
	span := uint64(c.Slice - first)
	if v.n > 0 {
		span = max(span, uint64(v.At(int(v.n)-1).Slice-first))
	}
	w := Vector{first: first, n: v.n, buf: v.buf}
	if v.offset > 0 || first != v.first || span > uint64(v.n) { // else c is the next slice, or one that is there
		w.offset = max(v.offset, bytesOf(span))
	}
	w.count = max(v.count, bytesOf(max(c.Charges, c.Refunds)))
	w.refunds = v.refunds || c.Refunds > 0
	if first == v.first && w.offset == v.offset && w.count == v.count && w.refunds == v.refunds {
		return
	}
	if need := int(v.n) * w.stride(); need <= cap(v.buf) && first == v.first {
		w.buf = v.buf[:need]
	} else {
		w.buf = make([]byte, need, roomFor(need+w.stride()))
	}
	// From the back: a cell's new place ends after its old one, so in place
	// nothing is overwritten before it was read.
	for i := v.Len() - 1; i >= 0; i-- {
		w.put(i, v.At(i))
	}
	*v = w
}

func bytesOf(x uint64) uint8 {
	switch {
	case x <= math.MaxUint8:
		return 1
	case x <= math.MaxUint16:
		return 2
	case x <= math.MaxUint32:
		return 4
	}
	return 8
}

func load(p []byte, width uint8) uint64 {
	switch width {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(p))
	case 4:
		return uint64(binary.LittleEndian.Uint32(p))
	default:
		return binary.LittleEndian.Uint64(p)
	}
}

func store(p []byte, width uint8, x uint64) {
	switch width {
	case 1:
		p[0] = byte(x)
	case 2:
		binary.LittleEndian.PutUint16(p, uint16(x))
	case 4:
		binary.LittleEndian.PutUint32(p, uint32(x))
	default:
		binary.LittleEndian.PutUint64(p, x)
	}
}
