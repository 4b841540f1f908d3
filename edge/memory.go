package edge

import (
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// memory is what a record keeps besides its slices where its algorithm is more
// than a window: limit.Rate.Exact says so.
type memory struct {
	exact limit.Exact // of own charges
	carry crdt.Carry  // of all charges, where slices were retired
	at    int64       // when the record was last folded: what is fresh counts as charged then
	// spilt is what counts with others' cells: own refunds that exact has no charge for, as they are
	// of others' charges, and own charges that exact has no more, as others gave them back.
	spilt crdt.Vector
}

// remember gives the block the memory that the rate needs, and takes from it
// what another rate left.
func (b *block) remember(rate *limit.Rate) {
	switch {
	case !rate.Exact():
		b.memory = nil
	case b.memory == nil:
		b.memory = &memory{}
	default: // of a block that was recycled
		b.memory.exact.Reset()
		b.memory.carry, b.memory.at = crdt.Carry{}, 0
		b.memory.spilt.Reset()
	}
}

// carry is what the block has of its retired past.
func (b *block) carry() crdt.Carry {
	if b.memory == nil {
		return crdt.Carry{}
	}
	return b.memory.carry
}

// spill notes own refunds of a slice that exact found no charge for. Those of our
// own charges, which have left the window, are not others': no more than goes
// beyond own charges is.
func (b *block) spill(slice crdt.Slice, left uint64) {
	if left == 0 {
		return
	}
	m, own := b.memory, b.own.Get(slice)
	beyond := crdt.SatSub(crdt.SatSub(own.Refunds, own.Charges), m.spilt.Get(slice).Refunds)
	if left = min(left, beyond); left > 0 {
		m.spilt.Add(crdt.Cell{Slice: slice, Refunds: left})
	}
}

// cede takes off what is exact what others gave back of this edge's own charges: what their cells
// have beyond what they charged. It is among what counts with theirs then, so that the sum stays as
// it is where it turns out to have been another's, of whose charge nothing was known yet. Of strict
// limits an edge's own charges are what it had rights for, whoever gives them back.
func (b *block) cede(now int64) {
	m := b.memory
	if m == nil || escrows(b.rate) {
		return
	}
	for i := range b.others.Len() {
		c := b.others.At(i)
		if c.Refunds <= c.Charges {
			continue
		}
		own, spilt := b.own.Get(c.Slice), m.spilt.Get(c.Slice)
		beyond := crdt.SatSub(crdt.SatAdd(c.Refunds, spilt.Refunds), crdt.SatAdd(c.Charges, spilt.Charges))
		has := crdt.SatSub(own.Charges, crdt.SatAdd(crdt.SatSub(own.Refunds, spilt.Refunds), spilt.Charges))
		if beyond = min(beyond, has); beyond == 0 {
			continue
		}
		if took := beyond - m.exact.Refund(b.rate, beyond, c.Slice, 0, &b.own, now); took > 0 {
			m.spilt.Add(crdt.Cell{Slice: c.Slice, Charges: took})
		}
	}
}

// retire drops slices that are out of reach, of a record that is settled. Of a
// bucket they live on in its carry.
func (s *shard) retire(r *record, now int64) { s.retireBefore(r, r.block.rate.Reach(now)) }

func (s *shard) retireBefore(r *record, reach crdt.Slice) {
	b := r.block
	if b.rate.Bucket() && (before(&b.own, reach) || before(&b.others, reach)) {
		b.memory.carry = b.rate.Drain.Advance(b.memory.carry, s.sums(b), reach)
	}
	b.own.Retire(reach)
	b.others.Retire(reach)
	if b.memory != nil {
		b.memory.spilt.Retire(reach)
	}
	if b.memory == nil && b.own.Len()+b.others.Len() == 0 {
		r.local, r.merged = 0, 0
	}
}

// before says that the vector has a cell of an earlier slice.
func before(v *crdt.Vector, slice crdt.Slice) bool {
	first, some := v.First()
	return some && first < slice
}

// inherit joins a carry that others computed of what they knew, as far as it is
// believed, and says whether more is used than was known. Both carries are lower
// bounds, so the larger one is, once both speak of the same boundary.
func (s *shard) inherit(b *block, c crdt.Carry, now int64) (rose bool) {
	if c.Zero() || !b.rate.Bucket() || c.Boundary > b.rate.SliceAt(now+int64(maxAhead)) {
		return false
	}
	m := b.memory
	c = b.rate.Believed(c)
	to := max(m.carry.Boundary, c.Boundary)
	sums := s.sums(b)
	known := b.rate.Drain.Advance(m.carry, sums, to)
	told := b.rate.Drain.Advance(c, sums, to)
	if told.Level <= known.Level {
		return false
	}
	m.carry = told
	return true
}

// idle says that nothing is left of the block that could still matter at now:
// no slice, no level, no penalty, and nothing that its rate wants kept for
// longer.
func (b *block) idle(now int64) bool {
	if b.own.Len()+b.others.Len() > 0 || b.punished(now) || b.share != nil && b.share.rights != nil && b.share.rights.keeps() {
		return false
	}
	m := b.memory
	if m == nil {
		return true
	}
	if lines, _ := m.exact.Lines(); b.rate.Queue && max(lines[0], lines[1]) > now {
		return false // who waits keeps his turn, whatever the level
	}
	level := b.rate.Measure(&m.exact, nil, nil, m.carry, now)
	return level.Whole <= b.rate.Drain.Floor && !level.Part && (b.rate.Memory == 0 || lapsed(now, m.at, b.rate.Memory))
}
