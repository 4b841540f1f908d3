package deltasync

type sectionID struct {
	shape Shape
	life  uint32
}

// of names the entry of a key.
func (id *sectionID) of(key Key) lifeKey {
	return lifeKey{key, id.life, id.shape.Generation, id.shape.Width}
}

// section is a sectionID, interned while entries, or the frame being filled, use it.
type section struct {
	sectionID
	entries int // and one for the frame
	place   int // in the frame being filled, plus 1; 0: not in it
}

// section is the section that entries of id belong to. What was asked
// for last is at hand: deltas of one rate come in rows.
func (o *Outbox) section(id *sectionID) *section {
	if !o.atHand(id) {
		s := o.sections[*id]
		if s == nil {
			s = &section{sectionID: *id}
			o.sections[*id] = s
		}
		o.last = s
	}
	return o.last
}

// atHand says that id is that of the section that was looked up last.
func (o *Outbox) atHand(id *sectionID) bool {
	return o.last != nil && (id == &o.last.sectionID || *id == o.last.sectionID)
}

// leave takes e out of its section.
func (o *Outbox) leave(e *entry) {
	if e.section != nil {
		o.release(e.section)
	}
}

// release forgets a section that nobody else uses.
func (o *Outbox) release(s *section) {
	if s.entries--; s.entries == 0 {
		delete(o.sections, s.sectionID)
		if o.last == s {
			o.last = nil
		}
	}
}
