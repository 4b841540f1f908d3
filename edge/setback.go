package edge

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// private says that nobody else was told of what is counted of a rate: its scope is the edge,
// or the edge is in no fleet, as of a program that limits alone.
func (s *shard) private(rate *limit.Rate) bool {
	return rate.Scope == limit.ScopeEdge || s.cluster != nil && !s.cluster.joined.Load()
}

// recall has own charges go back with a clock that was set back: what is exact,
// and, where nobody else is told of them, slices that lie further ahead than
// clocks differ, those that the view kept included. What they have counts as made
// now; of a bucket all go back together, as it drained in between.
func (s *shard) recall(b *block, now int64) {
	if b.memory != nil {
		b.memory.exact.Follow(b.rate, now)
	}
	if !s.private(b.rate) {
		return
	}
	ahead := b.rate.SliceAt(now + int64(maxAhead))
	own, kept := beyond(&b.own, ahead), beyond(&b.others, ahead)
	if !own && !kept && b.carry().Boundary <= ahead {
		return
	}
	current, back := b.rate.SliceAt(now), crdt.Slice(0)
	b.slice = min(b.slice, current) // what is charged next must not go back too
	if b.rate.Bucket() && own {
		back = poured(&b.own) - current
	}
	if b.rate.Bucket() && kept {
		back = max(back, poured(&b.others)-current)
	}
	back = max(0, back)
	if own {
		last, _ := b.own.Last()
		s.strayed.note(now, b.rate.StartOf(last))
		s.pull(&b.own, back, ahead, current)
		b.unsent = min(b.unsent, current)
	}
	if kept {
		last, _ := b.others.Last()
		s.strayed.note(now, b.rate.StartOf(last))
		s.pull(&b.others, back, ahead, current)
	}
	if b.memory != nil && !b.memory.carry.Zero() {
		if b.memory.carry.Boundary -= back; b.memory.carry.Boundary > ahead {
			b.memory.carry.Boundary = current
		}
	}
}

// poured is the last slice of a vector that has charges: what comes after it was
// given back.
func poured(v *crdt.Vector) crdt.Slice {
	for i := v.Len() - 1; i >= 0; i-- {
		if c := v.At(i); c.Charges > 0 {
			return c.Slice
		}
	}
	return 0
}

// pull has all cells of a vector go back by so many slices, and what then still
// lies ahead of all clocks to the current one.
func (s *shard) pull(v *crdt.Vector, back, ahead, current crdt.Slice) {
	s.scratch = v.Cells(s.scratch[:0])
	v.Reset()
	for _, c := range s.scratch {
		if c.Slice -= back; c.Slice > ahead {
			c.Slice = current
		}
		v.Add(c)
	}
}

// beyond says that the vector has a cell of a later slice.
func beyond(v *crdt.Vector, slice crdt.Slice) bool {
	last, some := v.Last()
	return some && last > slice
}

// strayed tells which slices recall has moved charges of: a receipt names the one that they
// were made in.
type strayed struct {
	back  int64 // the earliest instant that a clock was found set back to; ns since 1970
	ahead int64 // up to when slices began that were moved; 0: none were
	last  int64 // when some were moved last
}

// longestStray is how long after a clock was set back that is one more step with the next.
const longestStray = 24 * time.Hour

func (t *strayed) note(now, ahead int64) {
	if t.ahead == 0 || t.last < now-int64(longestStray) {
		t.back, t.ahead = now, ahead
	}
	t.back, t.ahead, t.last = min(t.back, now), max(t.ahead, ahead), now
}

// has says that charges of a slice may have been moved, and count yet. A bucket's went back together.
func (t *strayed) has(rate *limit.Rate, slice crdt.Slice, now int64) bool {
	at := rate.StartOf(slice)
	return t.ahead != 0 && at > t.back && at <= t.ahead && now < t.last+int64(rate.Lingers()) && !rate.Bucket()
}

// takeBack books a refund where its charge is by now: in its slice, and for what is not there any
// more in those that recall may have moved it to, the first ones first, as it moved it before
// others were charged. What is nowhere was forgotten, or given back.
func (n *Node) takeBack(s *shard, r *record, c *limit.Charge, cost uint64, now int64) {
	b := r.block
	if h := b.confined(); h != nil && h.before(c) && c.Slice == c.Rate.SliceAt(h.born) {
		h.back += cost
	}
	if !s.strayed.has(b.rate, c.Slice, now) || !s.private(b.rate) {
		n.giveBack(s, r, c, cost, now, dated)
		return
	}
	var places []crdt.Cell
	back := b.rate.SliceAt(s.strayed.back)
	for _, cell := range s.sums(b) {
		switch {
		case cell.Slice == c.Slice:
			places = append([]crdt.Cell{cell}, places...)
		case cell.Slice >= back && cell.Slice < c.Slice:
			places = append(places, cell)
		}
	}
	for _, cell := range places {
		if took := min(cost, cell.Net()); took > 0 {
			n.giveBackIn(s, r, cell.Slice, c, took, now, dated)
			cost -= took
		}
	}
	if cost > 0 && b.confined() != nil { // that alone knows of what was forgotten
		n.giveBack(s, r, c, cost, now, dated)
	}
}
