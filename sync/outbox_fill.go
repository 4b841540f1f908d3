package deltasync

import (
	"slices"
	"unsafe"

	"github.com/spillgate/spillgate/crdt"
	"google.golang.org/protobuf/encoding/protowire"
)

// filling is a frame on its way to be full. It counts what each delta adds to
// the encoded frame, from above and within a few bytes: sizes of columns that
// the codec can leave out are counted too.
type filling struct {
	frame  *Up
	room   int // bytes left
	parts  []part
	deltas int
	places int         // that they take of MaxDeltas: their cells are not packed
	booked [ranks]int  // of those, what queues count that they did not wait in
	cells  []crdt.Cell // of deltas, several to one allocation
	spare  []Delta     // room for those of a section
}

func (f *filling) each(do func(*Section, *Delta)) { f.frame.each(do) }

// part is a section of the frame.
type part struct {
	section *section
	ref     crdt.Slice // what the next first slice is written relative to
	started bool       // ref is set
	base    crdt.Slice // what carries are written relative to, once started
	deltas  int
	until   bool // some delta has a penalty: each takes room in its column
	heard   bool // likewise, of totals that were heard
	demand  bool // likewise, of what is asked for
}

const (
	// sectionSize bounds what a section takes beside its deltas: the shape (36
	// bytes), the life, the base, and tag and length of nine records.
	sectionSize = 84
	// bucketSize is what the section of a bucket takes beyond that: three
	// fields of the shape, and tag and length of two columns.
	bucketSize = 40
	// columnHead is what the tag and length of a column take that few sections
	// have.
	columnHead = 5
	// farthest is what a distance of two slices takes at most, in bytes: before
	// the first cell of a section it is not known what carries are relative to.
	farthest = 8
	// headSize bounds what the head of a frame takes.
	headSize = 208
	// cellsChunk is the number of cells to one allocation.
	cellsChunk = 512
)

// newFilling is an empty frame, with room as if its head were as large as can be.
func (o *Outbox) newFilling() *filling {
	f := &filling{frame: &Up{}, room: o.cfg.MaxFrame - headSize, spare: o.spare.deltas, cells: o.spare.cells}
	o.spare = spareRoom{}
	return f
}

// lead takes note of the head that the frame has got.
func (f *filling) lead() {
	head := *f.frame
	head.Sections = nil
	var buf [headSize]byte
	b, _ := head.AppendBinary(buf[:0]) // an error will meet the caller again when it encodes the frame
	f.room += headSize - len(b)
}

// spareRoom is what a frame took that nobody needs any more.
type spareRoom struct {
	deltas []Delta
	cells  []crdt.Cell
}

// mostSpare is the largest room that is kept, in deltas and in cells: that of
// nearly all frames, and leastSpare that of a few keys, which is always.
const (
	mostSpare  = 1024
	leastSpare = 64
)

// worthKeeping is the largest room that this outbox keeps: a fortieth of the memory
// that it may take is spare at most.
func (o *Outbox) worthKeeping() int { return min(max(o.cfg.MaxDeltas/16, leastSpare), mostSpare) }

// Reuse lets the outbox use the memory of a frame that Done returned, and that
// nobody looks at any more.
func (o *Outbox) Reuse(up *Up) {
	most := o.worthKeeping()
	for i := range up.Sections {
		deltas := up.Sections[i].Deltas
		if n := cap(deltas); n > most || n <= cap(o.spare.deltas) {
			continue
		}
		clear(deltas) // their cells are not to be kept
		o.spare.deltas = deltas[:0]
	}
	if n := cap(up.cells); n <= most && n > cap(o.spare.cells) {
		o.spare.cells = up.cells[:0]
	}
	up.Sections, up.cells = nil, nil
}

// add puts d into the frame, but for cells that do not fit, and returns the number
// of those that do, or -1 if not even the key does. A delta is cut in two only where
// it is larger than a frame; each part is a state like any other.
func (f *filling) add(in *section, d *Delta) int {
	fit, size := f.fits(in, d)
	if fit < len(d.Cells) && f.deltas > 0 {
		return -1
	}
	if fit >= 0 {
		f.put(in, d, fit, size)
	}
	return fit
}

// fits is how many cells of d fit, or -1 if not even the key does, and what it takes
// with them.
func (f *filling) fits(in *section, d *Delta) (fit, size int) {
	size = 8 + protowire.SizeVarint(uint64(d.Flags)) + protowire.SizeVarint(maxCells)
	p := &part{}
	if in.place > 0 {
		p = &f.parts[in.place-1]
	} else {
		size += sectionSize
		if in.shape.Bucket() {
			size += bucketSize
		}
	}
	if in.shape.Bucket() {
		switch {
		case p.started:
			size += carrySize(d.Carry, p.base)
		case len(d.Cells) > 0:
			size += carrySize(d.Carry, d.Cells[0].Slice)
		default:
			size += carrySize(d.Carry, d.Carry.Boundary) + farthest
		}
	}
	if d.Until != 0 && !p.until {
		size += columnHead + p.deltas // a zero for each of those before
	}
	if d.Until != 0 || p.until {
		size += protowire.SizeVarint(uint64(d.Until))
	}
	if d.Heard != 0 && !p.heard {
		size += columnHead + p.deltas
	}
	if d.Heard != 0 || p.heard {
		if p.started {
			size += heardSize(d.Heard, p.base)
		} else {
			size += farthest
		}
	}
	if d.Demand != nil && !p.demand {
		size += demandHead + demandSize*p.deltas
	}
	if d.Demand != nil || p.demand {
		size += demandSize
	}
	for prev := p.ref; fit < len(d.Cells); fit++ {
		c := d.Cells[fit]
		if fit == 0 && !p.started {
			prev = c.Slice
		}
		more := cellSize(c, prev)
		if size+more > f.room {
			break
		}
		size += more
		prev = c.Slice
	}
	if size > f.room {
		return -1, 0
	}
	return fit, size
}

// put copies d with n of its cells, which take so many bytes.
func (f *filling) put(in *section, d *Delta, n, size int) {
	f.room -= size
	f.deltas++
	f.places += placesOf(n * int(unsafe.Sizeof(crdt.Cell{})))
	if in.place == 0 {
		f.parts = append(f.parts, part{section: in})
		f.frame.Sections = append(f.frame.Sections, Section{Shape: in.shape, Life: in.life})
		in.place = len(f.parts)
		in.entries++
	}
	p := &f.parts[in.place-1]
	p.deltas++
	p.until = p.until || d.Until != 0
	p.heard = p.heard || d.Heard != 0
	p.demand = p.demand || d.Demand != nil
	s := &f.frame.Sections[in.place-1]
	if s.Deltas == nil {
		s.Deltas, f.spare = f.spare, nil
	}
	if len(s.Deltas) == cap(s.Deltas) {
		s.Deltas = slices.Grow(s.Deltas, min(in.entries, f.room/10+1))
	}
	s.Deltas = append(s.Deltas, *d)
	to := &s.Deltas[len(s.Deltas)-1]
	if to.Cells = nil; n == 0 {
		return
	}
	if p.ref = d.Cells[0].Slice; !p.started {
		p.base, p.started = p.ref, true
	}
	if cap(f.cells)-len(f.cells) < n {
		f.cells = make([]crdt.Cell, 0, max(n, min(2*cap(f.cells), mostSpare), cellsChunk))
	}
	from := len(f.cells)
	f.cells = append(f.cells, d.Cells[:n]...)
	to.Cells = f.cells[from:len(f.cells):len(f.cells)]
}

// close ends the frame, and lets go of the sections, for the next one.
func (o *Outbox) close(f *filling) {
	f.frame.cells = f.cells
	for i := range f.parts {
		for deltas := f.frame.Sections[i].Deltas; len(deltas) > 0; deltas = deltas[1:] {
			deltas[0].Flags &^= FlagFirst | FlagRegular // they stay with us
		}
		f.parts[i].section.place = 0
		o.release(f.parts[i].section)
	}
}
