package deltasync

import (
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
	cells  []crdt.Cell // of deltas, several to one allocation
	spare  []Delta     // room for those of a section
}

// part is a section of the frame.
type part struct {
	section *section
	ref     crdt.Slice // what the next first slice is written relative to
	started bool       // ref is set
	base    crdt.Slice // what carries are written relative to, once started
	deltas  int
	until   bool // some delta has a penalty: each takes room in its column
	heard   bool // likewise, of totals that were heard
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
	// cellsChunk is the number of cells to one allocation.
	cellsChunk = 512
)

func newFilling(head *Up, room int, spare *spareRoom) *filling {
	var buf [192]byte // no head is larger
	// An error will meet the caller again when it encodes the frame.
	b, _ := head.AppendBinary(buf[:0])
	f := &filling{frame: head, room: room - len(b), spare: spare.deltas, cells: spare.cells}
	*spare = spareRoom{}
	return f
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

// add puts e's delta into the frame and returns the number of its cells that
// fitted, or -1 if not even the key did. A delta is cut in two only where it is
// larger than a frame; each part is a state like any other.
func (f *filling) add(e *entry) int {
	size := 8 + protowire.SizeVarint(uint64(e.flags)) + protowire.SizeVarint(maxCells)
	p := part{section: e.section}
	if i := e.section.place - 1; i >= 0 {
		p = f.parts[i]
	} else {
		size += sectionSize
		if e.section.shape.Bucket() {
			size += bucketSize
		}
	}
	if e.section.shape.Bucket() {
		switch {
		case p.started:
			size += carrySize(e.carry, p.base)
		case e.cells.len() > 0:
			size += carrySize(e.carry, e.cells.at(0).Slice)
		default:
			size += carrySize(e.carry, e.carry.Boundary) + farthest
		}
	}
	if e.until != 0 && !p.until {
		size += columnHead + p.deltas // a zero for each of those before
	}
	if e.until != 0 || p.until {
		size += protowire.SizeVarint(uint64(e.until))
	}
	if e.heard != 0 && !p.heard {
		size += columnHead + p.deltas
	}
	if e.heard != 0 || p.heard {
		if p.started {
			size += heardSize(e.heard, p.base)
		} else {
			size += farthest
		}
	}
	fit := 0
	for prev := p.ref; fit < e.cells.len(); fit++ {
		c := e.cells.at(fit)
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
	if size > f.room || fit < e.cells.len() && f.deltas > 0 {
		return -1
	}
	f.put(e, fit)
	f.room -= size
	f.deltas++
	return fit
}

func (f *filling) put(e *entry, n int) {
	if e.section.place == 0 {
		f.parts = append(f.parts, part{section: e.section})
		f.frame.Sections = append(f.frame.Sections, Section{Shape: e.section.shape, Life: e.section.life})
		e.section.place = len(f.parts)
	}
	p := &f.parts[e.section.place-1]
	d := Delta{Key: e.key, Flags: e.flags &^ (FlagFirst | FlagRegular), Carry: e.carry, Until: e.until, Heard: e.heard}
	p.deltas++
	p.until = p.until || e.until != 0
	p.heard = p.heard || e.heard != 0
	if n > 0 {
		if cap(f.cells)-len(f.cells) < n {
			f.cells = make([]crdt.Cell, 0, max(n, min(2*cap(f.cells), mostSpare), cellsChunk))
		}
		from := len(f.cells)
		for i := range n {
			f.cells = append(f.cells, e.cells.at(i))
		}
		d.Cells = f.cells[from:len(f.cells):len(f.cells)]
		if p.ref = d.Cells[0].Slice; !p.started {
			p.base, p.started = p.ref, true
		}
	}
	s := &f.frame.Sections[e.section.place-1]
	if n := min(e.section.entries, f.room/10+1); s.Deltas == nil {
		if s.Deltas, f.spare = f.spare, nil; n > cap(s.Deltas) {
			s.Deltas = make([]Delta, 0, n)
		}
	}
	s.Deltas = append(s.Deltas, d)
}

// close lets go of the sections, for the next frame.
func (f *filling) close() {
	f.frame.cells = f.cells
	for i := range f.parts {
		f.parts[i].section.place = 0
	}
}
