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
	tells tellings // what it tells; nil until somebody asks
	newer tellings // what newer frames told of the same, that were answered
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
	return lifeKey{d.Key, s.Life, s.Shape.Generation, s.Shape.Width}
}

type telling struct {
	cells crdt.Vector
	carry crdt.Carry
	until int64
}

func (t tellings) add(id lifeKey, d *Delta) {
	l := t[id]
	if l == nil {
		l = &telling{}
		t[id] = l
	}
	l.add(d)
}

func (t *telling) add(d *Delta) {
	for _, c := range d.Cells {
		t.cells.Join(c)
	}
	t.carry, t.until = t.carry.Later(d.Carry), max(t.until, d.Until)
}

// all is what the frame tells.
func (f *flight) all() tellings {
	if f.tells == nil {
		f.tells = make(tellings, deltas(f.Up))
		f.each(func(s *Section, d *Delta) { f.tells.add(lifeKeyOf(s, d), d) })
	}
	return f.tells
}

// each calls do with every delta of the frame.
func (f *flight) each(do func(*Section, *Delta)) {
	for i := range f.Sections {
		s := &f.Sections[i]
		for j := range s.Deltas {
			do(s, &s.Deltas[j])
		}
	}
}

// overtaken notes what a newer frame told that was answered before this one.
func (f *flight) overtaken(by *flight) {
	by.each(func(s *Section, d *Delta) {
		id := lifeKeyOf(s, d)
		if f.all()[id] == nil {
			return
		}
		if f.newer == nil {
			f.newer = tellings{}
		}
		f.newer.add(id, d)
	})
}

// left is what a lost frame's delta has to tell that newer ones did not, those
// under way included; false: nothing.
func (f *flight) left(id lifeKey, d Delta, underWay []*flight) (Delta, bool) {
	var since telling
	known := false
	if n := f.newer[id]; n != nil {
		since, known = telling{n.cells.Clone(), n.carry, n.until}, true
	}
	for _, newer := range underWay {
		if n := newer.all()[id]; n != nil {
			since.add(&Delta{Cells: n.cells.Cells(nil), Carry: n.carry, Until: n.until})
			known = true
		}
	}
	if !known {
		return d, true
	}
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
	return d, again || d.Tells()
}
