package deltasync

import (
	"math/bits"

	"github.com/spillgate/spillgate/crdt"
)

// Nearly always a frame leaves as soon as deltas come, and takes all of them. Then
// the next frame is begun with the first of them, and they go straight into it:
// nothing has to be found, queued and taken out again.

// Tell is Put for whoever calls Next, or Hold, before it tells of a key again. What is
// told of a key twice before that may leave as two deltas, of which each is a state like
// any other. It keeps no part of shape and d, and may take off d what is not told.
func (o *Outbox) Tell(shape *Shape, life uint32, d *Delta) bool {
	var id *sectionID
	if s := o.last; s != nil && s.life == life && s.shape == *shape {
		id = &s.sectionID // deltas of one rate come in rows, and are not compared again below
	} else {
		id = &sectionID{*shape, life}
	}
	return o.takes(id, d) && (o.goesStraight(id, d) || o.put(id, d))
}

// goesStraight puts d into the next frame if it would leave with that one, whatever
// else came.
func (o *Outbox) goesStraight(id *sectionID, d *Delta) bool {
	if o.begun == nil {
		if o.entries.taken > 0 || len(o.flights) >= o.cfg.MaxInFlight {
			return false // others were first
		}
		o.begun = o.newFilling()
	}
	f, rank := o.begun, rankOf(d.Flags)
	q := &o.queues[rank]
	if q.first != nil || f.room <= o.kept(rank) || !o.hasRoom(d.Flags) || len(d.Cells) > id.shape.Slices {
		return false
	}
	if !id.shape.Bucket() || d.Carry.Level == 0 {
		d.Carry = crdt.Carry{}
	}
	if d.Tells() {
		d.Flags &^= FlagTouch
	}
	if o.entries.taken > 0 {
		name := id.of(d.Key)
		if o.entries.find(&name) != nil {
			return false // what waits there may tell less, and would leave later
		}
	}
	s := o.section(id)
	fit, size := f.fits(s, d)
	if fit < len(d.Cells) {
		return false
	}
	f.put(s, d, fit, size)
	places := placesOf(packed(d.Cells))
	f.booked[rank] += places
	q.waits += places
	return true
}

// packed is about what cells take in an entry: who goes straight takes no more of
// its outbox than if it waited.
func packed(cells []crdt.Cell) int {
	if len(cells) <= 1 {
		return 0 // see fewCells
	}
	all := crdt.Cell{}
	for _, c := range cells {
		all.Charges, all.Refunds = all.Charges|c.Charges, all.Refunds|c.Refunds
	}
	bytes := 1 + (bits.Len64(all.Charges|all.Refunds)+7)/8
	if all.Refunds != 0 {
		bytes *= 2
	}
	return len(cells) * bytes
}

// unbook takes off queues what goes straight.
func (o *Outbox) unbook(f *filling) {
	for rank := range f.booked {
		o.queues[rank].waits -= f.booked[rank]
	}
	f.booked = [ranks]int{}
}

// Hold has what went straight into a frame wait, as all else does: none leaves now.
func (o *Outbox) Hold() {
	f := o.begun
	if f == nil {
		return
	}
	o.begun = nil
	o.unbook(f)
	f.each(func(s *Section, d *Delta) {
		name := lifeKeyOf(s, d)
		o.join(&sectionID{s.Shape, s.Life}, o.entries.find(&name), d)
	})
	o.close(f)
	o.Reuse(f.frame)
}
