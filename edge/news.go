package edge

import (
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// news takes what the outbox lacks of a record, into the last delta of those drained.
func (s *shard) news(r *record, now int64, to *drained) {
	b, d := r.block, &to.news[len(to.news)-1].delta
	r.settle()
	if r.flags&charged != 0 {
		s.retireBefore(r, to.reach(b.rate, now))
		from := len(to.cells)
		to.cells = b.own.From(b.unsent, to.cells)
		d.Cells = to.cells[from:len(to.cells):len(to.cells)]
		if b.own.Len() == 0 {
			s.paid(r) // nobody asks for it any more
		}
	}
	first, some := b.own.First()
	full := !some || first >= b.unsent
	if r.flags&untold != 0 || full && r.flags&charged != 0 {
		d.Until = b.sentence(now)
	}
	if b.unsent = nothing; !d.Tells() {
		return
	}
	b.sentAt = now
	if full {
		b.fullAt, b.wave = now, s.wave
		d.Carry = b.carry()
		s.paid(r)
	}
}

// heardIn is the slice in which the region was last asked about the record, and
// answered, and when that was: it need not say again what has not changed since. 0:
// it is to say all. It does of periods of the calendar, whose slices are not those of
// now, and of sparse records, of which it said nothing.
func (d *drained) heardIn(r *record) (slice crdt.Slice, at int64) {
	if r.sparse() || r.flags&again != 0 || r.block.heardAt == 0 {
		return 0, 0
	}
	rate, at := r.block.rate, r.block.heardAt
	if rate.Period != limit.NoPeriod {
		return 0, 0
	}
	if h := &d.heard; h.rate != rate || h.at != at {
		*h = instant{rate, at, rate.SliceAt(at)}
	}
	return d.heard.slice, at
}

// instant is a slice that an instant has with a rate: keys of one rate come in rows,
// and a division takes long.
type instant struct {
	rate  *limit.Rate
	at    int64
	slice crdt.Slice
}

// reach is rate.Reach.
func (d *drained) reach(rate *limit.Rate, now int64) crdt.Slice {
	if h := &d.reaches; h.rate != rate || h.at != now {
		*h = instant{rate, now, rate.Reach(now)}
	}
	return d.reaches.slice
}

// newsOfSparse is news of a sparse record.
func (s *shard) newsOfSparse(r *record, now int64, to *drained) {
	if r.flags&charged == 0 {
		return
	}
	s.paid(r)
	b := r.block
	if r.expire(now); r.fresh > 0 {
		from := len(to.cells)
		to.cells = append(to.cells, r.cell())
		to.news[len(to.news)-1].delta.Cells = to.cells[from : from+1 : from+1]
		s.share(r, s.common(b.rate, b.slice, now), now)
	}
}
