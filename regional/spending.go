package regional

import (
	"math"
	"slices"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// spender is what somebody spent: a PoP of this region, or another region.
type spender struct {
	who   uint64
	cells crdt.Vector
}

// mostSpenders bounds those of a key: what others spent is nobody's in particular.
const mostSpenders = 64

// take joins what is counted, by everybody and by each.
func (v *truth) take(l *lane, c *counter) {
	at, from, rose := 0, crdt.Slice(0), false
	for _, cell := range l.everything(c) {
		for at < v.total.Len() && v.total.At(at).Slice < cell.Slice {
			at++
		}
		if at < v.total.Len() && v.total.At(at).Slice == cell.Slice && v.total.At(at).Join(cell) == v.total.At(at) {
			continue
		}
		if v.total.Join(cell); !rose {
			from, rose = cell.Slice, true
		}
		if cell.Slice < v.next && cell.Slice >= v.from {
			v.late++
		}
	}
	if rose {
		v.risen = true
		v.spendings(l, c, from)
	}
}

// spendings joins what each of them spent in slices from one on.
func (v *truth) spendings(l *lane, c *counter, from crdt.Slice) {
	sums := l.truths.sums[:0]
	add := func(who uint64, cells *crdt.Vector) {
		i := placeOf(sums, who)
		if i < 0 && len(sums) == mostSpenders {
			return
		}
		if i < 0 {
			i = len(sums)
			sums = slices.Grow(sums, 1)[:i+1] // with the memory of who stood there before
			sums[i].who = who
			sums[i].cells.Reset()
		}
		l.truths.cells = cells.From(from, l.truths.cells[:0])
		for _, cell := range l.truths.cells {
			sums[i].cells.Add(cell)
		}
	}
	for _, e := range c.edges.Entries() {
		add(deltasync.PopOf(e.Replica.Node), &e.Vector)
	}
	for _, e := range c.regions.Entries() {
		add(e.Replica.Node, &e.Vector)
	}
	for i := range sums {
		if spent := v.spentBy(sums[i].who); spent != nil && sums[i].cells.Len() > 0 {
			l.truths.cells = sums[i].cells.Cells(l.truths.cells[:0])
			spent.JoinAll(l.truths.cells)
		}
	}
	l.truths.sums = sums
}

// spentBy is what somebody spent; nil where there are too many.
func (v *truth) spentBy(who uint64) *crdt.Vector {
	i := placeOf(v.spenders, who)
	if i < 0 && len(v.spenders) == mostSpenders {
		return nil
	}
	if i < 0 {
		i, v.spenders = len(v.spenders), append(v.spenders, spender{who: who})
	}
	return &v.spenders[i].cells
}

// placeOf is where somebody stands; -1: nowhere.
func placeOf(list []spender, who uint64) int {
	return slices.IndexFunc(list, func(s spender) bool { return s.who == who })
}

// hear joins what a region tells, be it of slices that counters hold no more: it was cut
// off, and its outbox kept them. What an edge tells so late is lost, as nobody knows any
// more what it had told before; and so is what a home may have told already.
func (v *truth) hear(c *counter, region uint64, cells []crdt.Cell) {
	if v.shape.Regional || c.hears() {
		return
	}
	for _, cell := range cells {
		if cell.Slice < v.first {
			continue
		}
		spent := v.spentBy(region)
		if spent == nil {
			return
		}
		if rise := spent.Join(cell); !rise.Zero() {
			v.total.Add(rise)
			v.risen = true
			if cell.Slice < v.next && cell.Slice >= v.from {
				v.late++
			}
		}
	}
}

// everything is what all counted, by slice, as far as is known. It is valid until the
// next call: its memory is the lane's.
func (l *lane) everything(c *counter) []crdt.Cell {
	if c.taken == nil {
		return l.merged(c)
	}
	var all crdt.Vector
	for cell := range c.own(math.MinInt64) {
		all.Add(cell)
	}
	for cell := range c.foreign(math.MinInt64) {
		all.Add(cell)
	}
	l.scratch = all.Cells(l.scratch[:0])
	return l.scratch
}
