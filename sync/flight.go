package deltasync

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// flight is a frame under way. Frames overtake each other: what a newer one
// told, answered or still under way, an older one that gets lost has no more to
// tell, or counts would be told smaller than they were told before.
type flight struct {
	*Up
	places int      // that it takes of MaxDeltas
	tells  tellings // what it tells; nil until somebody asks
	newer  tellings // what newer frames told of the same, that were answered
}

// tellings is what frames told of counters, whatever the limits were by then.
type tellings map[lifeKey]*telling

type lifeKey struct {
	key        Key
	life       uint32
	generation uint64
	width      time.Duration
}

func lifeKeyOf(s *Section, d *Delta) lifeKey {
	id := sectionID{s.Shape, s.Life}
	return id.of(d.Key)
}

type telling struct {
	shape Shape // as told last
	cells crdt.Vector
	carry crdt.Carry
	until int64
}

func (t tellings) add(s *Section, d *Delta) {
	id := lifeKeyOf(s, d)
	l := t[id]
	if l == nil {
		l = &telling{}
		t[id] = l
	}
	l.add(s.Shape, d)
}

func (t *telling) add(shape Shape, d *Delta) {
	t.shape = shape
	for _, c := range d.Cells {
		t.cells.Join(c)
	}
	t.carry, t.until = t.carry.Later(d.Carry), max(t.until, d.Until)
}

// all is what the frame tells.
func (f *flight) all() tellings {
	if f.tells == nil {
		f.tells = make(tellings, deltas(f.Up))
		f.each(f.tells.add)
	}
	return f.tells
}

// each calls do with every delta of the frame.
func (u *Up) each(do func(*Section, *Delta)) {
	for i := range u.Sections {
		s := &u.Sections[i]
		for j := range s.Deltas {
			do(s, &s.Deltas[j])
		}
	}
}

// overtaken notes what a newer frame told that was answered before this one.
func (f *flight) overtaken(by *flight) {
	by.each(func(s *Section, d *Delta) {
		if f.all()[lifeKeyOf(s, d)] == nil {
			return
		}
		if f.newer == nil {
			f.newer = tellings{}
		}
		f.newer.add(s, d)
	})
}

// left is what a lost frame's delta has to tell that newer ones did not, those
// under way included, and the shape that it is to be told under; false: nothing.
func (f *flight) left(s *Section, d Delta, underWay []*flight) (Delta, Shape, bool) {
	var since telling
	id, known := lifeKeyOf(s, &d), false
	if n := f.newer[id]; n != nil {
		since, known = telling{n.shape, n.cells.Clone(), n.carry, n.until}, true
	}
	for _, newer := range underWay {
		if n := newer.all()[id]; n != nil {
			since.add(n.shape, &Delta{Cells: n.cells.Cells(nil), Carry: n.carry, Until: n.until})
			known = true
		}
	}
	if !known {
		return d, s.Shape, true
	}
	d.Demand = nil                    // newer ones told it
	again := d.Flags&FlagRefresh != 0 // it is to be passed on, changed or not, and newer ones may have told a part of it so
	cells := make([]crdt.Cell, 0, len(d.Cells))
	for _, c := range d.Cells {
		if n := since.cells.Get(c.Slice); again || !c.Less(n).Zero() {
			cells = append(cells, c.Join(n))
		}
	}
	if d.Cells = cells; !again {
		if since.until >= d.Until {
			d.Until = 0
		}
		if since.carry.Later(d.Carry) == since.carry {
			d.Carry = crdt.Carry{}
		}
	}
	return d, since.shape, again || d.Tells() || d.Flags&FlagOwn != 0
}
