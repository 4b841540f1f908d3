package regional

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// The width of slices is part of what a key is made of, so that honest nodes agree on
// it for good, and counts of another width are refused. But whoever named a key first
// could keep everybody else's out, by a width of its choice. So it is in force as long
// as no more PoPs and regions tell another one than have counts of it, and as long as
// some PoP of this region has. When that ends the counter begins anew, but for its
// penalty; what it had lapses in the store. An aggregator that knows the rules knows
// better: no majority is needed for a width that they have, and none helps another; of
// two that they have, under the generations of two rates, the majority decides again, as
// nothing tells which of them a key is of: a key is a hash under a secret that edges alone
// have, hostile ones too.
//
// So what hostile PoPs can do with a key that they can name, by the generation of another
// rate, is to keep the counts of as many others out of it as they are themselves, in their
// own region: one alone those of one PoP, which nobody else needs until he counts too, and
// then he is the second to tell it. That PoP tells its counts again within 16 s
// (edge/refusal.go); for so long the others decide without them. Another region drops
// what it heard of the hostile ones with the first count of its own edges.

// rival is what a PoP or region tells, whose counts of a key are refused.
type rival struct {
	width time.Duration
	at    int64
}

// rivalFor is how long it counts that it was told.
const rivalFor = int64(time.Minute)

// contest hears that a PoP tells another width than the counter's. It says whether
// that is in force from now on.
func (a *Aggregator) contest(l *lane, key deltasync.Key, c *counter, kind deltasync.Kind, pop uint64, told deltasync.Shape, now int64, m *merged) bool {
	right, ours := a.inRules(told.Generation), a.inRules(c.shape.Generation)
	if m.looked > mostLooked || ours && !right {
		return false
	}
	c.forgetRivals(now)
	if c.rivals == nil {
		c.rivals = map[uint64]rival{}
	}
	c.rivals[pop] = rival{told.Width, now}
	rivals := 0
	for _, r := range c.rivals {
		if r.width == told.Width {
			rivals++
		}
	}
	m.looked += c.edges.Len() + c.regions.Len()
	foreign := kind == deltasync.KindEdge && c.edges.Len() == 0 // other regions alone have counts of it
	if known := right && !ours; c.writing > 0 || !known && !foreign && rivals <= c.parties() {
		l.weigh(c)
		return false
	}
	l.strike(c)
	m.recast = &recast{key: key, was: c.shape.Width, width: told.Width}
	*c = counter{
		fresh: true, weight: c.weight, paid: c.paid, guest: c.guest, pushed: c.pushed, retried: c.retried, again: c.again,
		pop: c.pop, parts: c.parts,
		penalty: c.penalty, // or by another width anybody could end it
	}
	c.reshape(told)
	l.weigh(c)
	return true
}

// inRules says that a generation is of the rules that the aggregator knows. Then frames
// tell it with their width: see misshapes.
func (a *Aggregator) inRules(generation uint64) bool {
	rates := a.tallies.rates.Load()
	if rates == nil {
		return false
	}
	_, known := (*rates)[generation]
	return known
}

// misshapes says that the rules have slices of another width, or another scope, for what a
// section tells. What tenants and overrides change, PoPs agree on among themselves.
func (a *Aggregator) misshapes(told deltasync.Shape) bool {
	rates := a.tallies.rates.Load()
	if rates == nil {
		return false
	}
	k, known := (*rates)[told.Generation]
	return known && (k.rate.Width != told.Width || (k.rate.Scope == limit.ScopeRegion) != told.Regional)
}

// forgetRivals forgets who told another width long ago.
func (c *counter) forgetRivals(now int64) {
	for pop, r := range c.rivals {
		if passed(r.at, now, rivalFor) {
			delete(c.rivals, pop)
		}
	}
	if len(c.rivals) == 0 {
		c.rivals = nil
	}
}

// recast is a key that began anew with slices of another width.
type recast struct {
	key        deltasync.Key
	was, width time.Duration
}

// tellRecast logs that a frame had a key begin anew, once a minute at most: whoever can
// do so can do it with every key that it names.
func (a *Aggregator) tellRecast(subject string, m *merged, now int64) {
	last := a.recastTold.Load()
	if m.recast == nil || last != 0 && !passed(last, now, int64(time.Minute)) || !a.recastTold.CompareAndSwap(last, now) {
		return
	}
	a.cfg.Logger.Warn("a key was first told with slices of another width than most PoPs tell, and what was counted so is dropped: who told it is mistaken, or hostile; told once a minute",
		"key", fmt.Sprintf("%016x", uint64(m.recast.key)), "was", m.recast.was, "width", m.recast.width, "subject", subject)
}

// parties is how many PoPs and regions have counts of a key.
func (c *counter) parties() int {
	n, entries := c.regions.Len(), c.edges.Entries()
	for len(entries) > 0 {
		entries = entries[len(entriesIn(entries, deltasync.PopOf(entries[0].Replica.Node))):]
		n++
	}
	return n
}
