package edge

import (
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// news takes what the outbox lacks of a record.
func (s *shard) news(r *record, now int64) deltasync.Delta {
	b := r.block
	r.settle()
	d := deltasync.Delta{Key: r.key}
	if r.flags&charged != 0 {
		s.retire(r, now)
		d.Cells = b.own.From(b.unsent, nil)
		if b.own.Len() == 0 {
			s.paid(r) // nobody asks for it any more
		}
	}
	full := b.own.Len() == 0 || b.own.At(0).Slice >= b.unsent
	if r.flags&untold != 0 || full && r.flags&charged != 0 {
		d.Until = b.sentence(now)
	}
	if b.unsent = nothing; !d.Tells() {
		return d
	}
	b.sentAt = now
	if full {
		b.fullAt, b.wave = now, s.wave
		d.Carry = b.carry()
		s.paid(r)
	}
	return d
}

// newsOfSparse is news of a sparse record.
func (s *shard) newsOfSparse(r *record, now int64) deltasync.Delta {
	d := deltasync.Delta{Key: r.key}
	if r.flags&charged == 0 {
		return d
	}
	s.paid(r)
	b := r.block
	if r.expire(now); r.fresh > 0 {
		d.Cells = []crdt.Cell{r.cell()}
		s.share(r, s.common(b.rate, b.slice, now), now)
	}
	return d
}
