package trial

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// Invariant 7 of buckets. Their level falls by itself, so that what has been told is
// no measure of what should be: each upward crossing between two looks has a push of
// its own, and of what is contended all is told, as of windows.

// telling is a push of a bucket, and the level that it told.
type telling struct {
	at    time.Time
	clock time.Time // of who told it
	level uint64
	cells []crdt.Cell
	carry crdt.Carry
}

// levelWithout is the level that it told but for refunds that were not known before.
func (p *telling) levelWithout(c *counter, known []crdt.Cell) uint64 {
	cells := slices.Clone(p.cells)
	for i := range cells {
		cells[i].Refunds = min(cells[i].Refunds, cellOf(known, cells[i].Slice).Refunds)
	}
	return levelOf(c, cells, p.carry, p.clock)
}

// remembers is how long tellings are kept: as many looks as are compared. Between the
// last two nobody looks until all have agreed.
const remembers = window

// poured notes what all edges of a region are told of a bucket. In a quiet run a
// crossing is told twice at most: before there is a third one the bucket must have
// drained as far as it takes for it to count again.
func (t *trial) poured(v *world.Server, c *counter, k *deltasync.HotKey) {
	region, now, clock := v.Region, t.w.Now(), t.clockOf(v)
	cells := sum(k.Others, k.Peers)
	level := levelOf(c, cells, k.Carry, clock)
	all := t.crossings.poured[place{region, c.key}]
	for len(all) > 0 && now.Sub(all[0].at) > remembers {
		all = all[1:]
	}
	all = append(all, telling{now, clock, level, cells, k.Carry})
	t.crossings.poured[place{region, c.key}] = all
	if n := len(all); t.quiet() && !t.adaptive && n > 2 { // what shares follow from is pushed as it changes (seed 920066)
		calm := true
		for _, told := range all[n-3:] {
			p := passed(told.level, c.rate.Limit)
			calm = calm && p == 50 && told.level < part(c.rate.Limit, 80-rearm)
		}
		if drained := c.drains(now.Sub(all[n-3].at)); calm && drained < part(c.rate.Limit, rearm) {
			t.failf("7", "%s is told three times within %v that %s has passed 50 %% of %s, which drains %d meanwhile", region, now.Sub(all[n-3].at), c.user, c.rate.Policy, drained)
		}
	}
}

// early says that some was counted for later than an aggregator takes: by its clock as
// that was before it was set back.
func (k *knowledge) early(c *counter) bool {
	n := len(k.cells)
	return n > 0 && k.cells[n-1].Slice > c.rate.SliceAt(k.clock.Add(time.Second).UnixNano())
}

// drains is how much of a bucket does within a time, and one more for parts of it.
func (c *counter) drains(d time.Duration) uint64 {
	return uint64(d)*c.rate.Drain.Refill/uint64(c.rate.Drain.Per) + 1
}

// levelOf is the level of a bucket by such counts, at least.
func levelOf(c *counter, cells []crdt.Cell, carry crdt.Carry, now time.Time) uint64 {
	return c.rate.Used(cells, carry, now.UnixNano()).Whole
}

// verifyLevel demands that what an aggregator knew of a bucket when it was last
// looked at has been pushed since the look before.
func (t *trial) verifyLevel(v *world.Server, c *counter, before, was *knowledge) {
	limit := c.rate.Limit
	p := passed(was.level, limit)
	if was.by != t.clockSets(v) || before != nil && (before.set != was.set || before.early(c)) {
		return // a level is by a clock: when that is set it rises, or falls, and later with what was counted before
	}
	if p >= contended {
		told := of(t.crossings.told, place{v.Region, c.key})
		for _, cell := range was.cells {
			if got := told.Get(cell.Slice); got.Join(cell) != got {
				t.failf("7", "%s knows %+v of %s (%s), whose level is %d of %d; the edges of %s were told %+v", v.Name, cell, c.user, c.rate.Policy, was.level, limit, v.Region, got)
			}
		}
	}
	if len(t.old) > 0 { // who tell of a bucket as of a window, which crosses later
		return
	}
	if p == 0 || !before.same(was) || before.level >= part(limit, p-rearm) {
		return
	}
	// What has been given back between a look and the push that was due is told with it:
	// that is a crossing all the same (seed 40001362).
	most := uint64(0)
	for _, told := range t.crossings.poured[place{v.Region, c.key}] {
		if !told.at.Before(before.at) {
			most = max(most, told.levelWithout(c, was.cells))
		}
	}
	if most < part(limit, p-rearm) {
		t.failf("7", "%s knows that the level of %s (%s) rose from %d to %d of %d, the edges of %s were told of %d since", v.Name, c.user, c.rate.Policy, before.level, was.level, limit, v.Region, most)
	}
}
