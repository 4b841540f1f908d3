package trial

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/test/sim/world"
)

// Who gives back without a receipt may ask another edge than the one that charged, of
// the region or of another. It gives back no more than it believes is counted, and first
// what it charged itself (configs/README.md). Of what its PoP did not charge one limit
// in a window is taken at the most: the trial asks for no more than that, so that all of
// it must reach everybody.

// giveBack has an edge give back what any edge charged a user; of rules that have but
// slots, one of each.
func (t *trial) giveBack(edge string, user int, cost uint64) {
	counters := t.at(edge, user)
	if t.has[Evict] && len(counters) > 1 {
		return // one may take the other's place, and nobody would see what became of that
	}
	for _, c := range counters {
		if t.foreign[t.placeOf(edge, c)]+t.waitingAt(edge, c)+cost > c.rate.Limit {
			return
		}
	}
	n := t.w.Node(edge)
	before := t.own(edge, counters)
	believed, knows := make([]uint64, len(counters)), make([]bool, len(counters))
	slots := true
	for i, c := range counters {
		slots = slots && c.rate.Lease > 0
		own, others, live := n.Cells(c.key) // what it has forgotten, its view may know
		believed[i], knows[i] = net(within(sum(own, others), c.rate.Reach(t.w.NowAt(edge).UnixNano()))), live
	}
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", counters[0].user)
	req.Cost = cost
	t.line("%s gives back %d of %s", edge, cost, counters[0].user)
	t.alone(edge, func() { n.GiveBack(t.w.NowAt(edge), req) })
	for i, c := range counters {
		most := cost
		if c.rate.Lease > 0 {
			if most = 1; !slots {
				most = 0
			}
		}
		charges, refunds := t.book(edge, c, before[i])
		c.readmit(edge, refunds)
		if charges != 0 {
			t.failf("16", "%s charged %d of %s as it gave back", edge, charges, c.user)
		}
		if want := min(most, believed[i]); refunds > most || knows[i] && refunds != want {
			t.failf("give-back", "%s gave back %d of %s (%s), it believed that %d are counted, want %d", edge, refunds, c.user, c.rate.Policy, believed[i], want)
		}
		after, others, _ := n.Cells(c.key)
		keeps := uint64(0) // of its own, that others have not given back
		for _, cell := range within(after, c.rate.Reach(t.w.NowAt(edge).UnixNano())) {
			keeps += min(cell.Net(), cell.Plus(cellOf(others, cell.Slice)).Net())
		}
		if more := crdt.SatSub(excess(after), excess(before[i])); more > 0 && keeps > 0 {
			t.failf("give-back", "%s gave back %d of %s (%s) that others charged, and keeps %d of its own", edge, more, c.user, c.rate.Policy, keeps)
		}
		t.lends(t.w.Site(edge), c, before[i])
		if most > refunds && req.Recorded {
			t.await(edge, c, most-refunds)
		}
		t.verifyAt(edge, c)
	}
}

// belated is a part of what was given back at an edge that had not heard of it yet: it gives
// that back once it has.
type belated struct {
	edge  string
	lives int
	c     *counter
	left  uint64
	until time.Time   // what it has not given back by then it gives back no more
	seen  []crdt.Cell // what the edge had counted when it was booked last
}

// belatedFor is longer than an edge has it wait, by whatever clock.
const belatedFor = 10 * time.Second

// await notes that so much more waits at an edge.
func (t *trial) await(edge string, c *counter, cost uint64) {
	for _, l := range t.belated {
		if l.edge == edge && l.c == c && l.lives == t.w.Site(edge).Lives() {
			l.left += cost
			l.until = t.w.Now().Add(belatedFor)
			return
		}
	}
	seen, _, _ := t.w.Node(edge).Cells(c.key)
	t.belated = append(t.belated, &belated{edge: edge, lives: t.w.Site(edge).Lives(), c: c, left: cost, until: t.w.Now().Add(belatedFor), seen: seen})
}

// waitingAt is how much of a counter waits so in an edge's region.
func (t *trial) waitingAt(edge string, c *counter) (sum uint64) {
	for _, l := range t.belated {
		if l.c == c && t.placeOf(l.edge, c) == t.placeOf(edge, c) {
			sum += l.left
		}
	}
	return sum
}

// bookLate books what an edge gave back since it was looked at last, be it about to leave.
func (t *trial) bookLate(s *world.Site) {
	if s == nil || !s.There() {
		return
	}
	t.belated = slices.DeleteFunc(t.belated, func(l *belated) bool {
		if l.edge != s.Name || l.lives != s.Lives() {
			return l.edge == s.Name && l.lives < s.Lives()-1
		}
		now, _, _ := s.Node().Cells(l.c.key)
		before := l.seen
		for _, cell := range before {
			if is := cellOf(now, cell.Slice); !is.Zero() && (is.Charges < cell.Charges || is.Refunds < cell.Refunds) {
				before = nil // it was forgotten, and came back
				break
			}
		}
		charges, refunds := t.bookOf(s, l.c, before)
		if charges > 0 || refunds > l.left {
			t.failf("give-back", "%s charged %d of %s, and gave back %d, where %d wait to be given back", s.Name, charges, l.c.user, refunds, l.left)
		}
		l.c.readmit(s.Name, refunds)
		t.lends(s, l.c, before)
		l.left -= min(l.left, refunds)
		return l.left == 0 || t.w.Now().After(l.until)
	})
}

// lends notes what an edge has given back since before that it did not charge.
func (t *trial) lends(s *world.Site, c *counter, before []crdt.Cell) {
	after, _, _ := s.Node().Cells(c.key)
	for _, cell := range after {
		was := cellOf(before, cell.Slice)
		free := was.Net()
		t.foreign[place{s.Region, c.key}] += crdt.SatSub(crdt.SatSub(cell.Refunds, was.Refunds), free)
	}
}

// placeOf is an edge's region, where a counter is known.
func (t *trial) placeOf(edge string, c *counter) place {
	return place{t.w.Site(edge).Region, c.key}
}

// excess is what is given back in slices above what was charged there.
func excess(cells []crdt.Cell) (sum uint64) {
	for _, c := range cells {
		sum += crdt.SatSub(c.Refunds, c.Charges)
	}
	return sum
}
