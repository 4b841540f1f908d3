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
		s.retire(r, now)
		from := len(to.cells)
		to.cells = b.own.From(b.unsent, to.cells)
		d.Cells = to.cells[from:len(to.cells):len(to.cells)]
		if b.own.Len() == 0 {
			s.paid(r) // nobody asks for it any more
		}
	}
	full := b.own.Len() == 0 || b.own.At(0).Slice >= b.unsent
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
func (r *record) heardIn() (slice crdt.Slice, at int64) {
	if r.sparse() || r.flags&again != 0 || r.block.heardAt == 0 {
		return 0, 0
	}
	rate := r.block.rate
	if rate.Period != limit.NoPeriod {
		return 0, 0
	}
	return rate.SliceAt(r.block.heardAt), r.block.heardAt
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
