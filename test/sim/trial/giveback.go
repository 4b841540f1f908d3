package trial

import (
	"github.com/spillgate/spillgate/crdt"
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
		if t.foreign[t.placeOf(edge, c)]+cost > c.rate.Limit {
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
		t.lends(edge, c, before[i])
		t.verifyAt(edge, c)
	}
}

// lends notes what an edge has given back since before that it did not charge.
func (t *trial) lends(edge string, c *counter, before []crdt.Cell) {
	after, _, _ := t.w.Node(edge).Cells(c.key)
	for _, cell := range after {
		was := cellOf(before, cell.Slice)
		free := was.Net()
		t.foreign[t.placeOf(edge, c)] += crdt.SatSub(crdt.SatSub(cell.Refunds, was.Refunds), free)
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
