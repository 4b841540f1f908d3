package trial

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// Two aggregators that each take a lane for their own are a fault with a bound: an
// answer to an edge lacks nothing that another had acknowledged, and so stored, more
// than regional.OwnersApart before.

// clocksApart is by how much an aggregator's clock may run faster than it should
// while it is being corrected.
const clocksApart = 100 * time.Millisecond

// apart is the bound by true time. Who has asked counts it by its own clock: when that
// is set back meanwhile, by no more than it bears, the same time passes once more.
func (p *plan) apart() time.Duration {
	if p.has[ServerClock] {
		return 2*regional.OwnersApart + clocksApart
	}
	return regional.OwnersApart + clocksApart
}

// stored is what an aggregator of a region acknowledged of a key.
type stored struct {
	at      time.Time
	by      string
	replica crdt.Replica
	cells   []crdt.Cell
}

// stores notes an acknowledgement.
func (t *trial) stores(v *world.Server, key deltasync.Key, replica crdt.Replica, cells []crdt.Cell) {
	if t.servers > 1 && len(cells) > 0 {
		at := place{v.Region, key}
		t.owned[at] = append(t.owned[at], stored{t.w.Now(), v.Name, replica, cells})
	}
}

// verifyOwners holds an aggregator that has just answered of a key, from a store that
// it can reach, to the bound.
func (t *trial) verifyOwners(v *world.Server, c *counter) {
	at := place{v.Region, c.key}
	if len(t.owned[at]) == 0 || t.crowds() {
		return // what has no place is answered from the store itself
	}
	has := map[crdt.Replica]*crdt.Vector{}
	for _, vec := range v.Aggregator().Vectors(c.key) {
		if vec.Source == regional.FromEdge {
			for _, cell := range vec.Cells {
				of(has, vec.Replica).Add(cell)
			}
		}
	}
	reach := c.rate.Reach(t.w.Now().UnixNano())
	for _, s := range t.owned[at] {
		age := t.w.Now().Sub(s.at)
		if age <= t.apart() {
			continue
		}
		for _, cell := range within(s.cells, reach) {
			if got := of(has, s.replica).Get(cell.Slice); got.Join(cell) != got {
				t.failf("owners", "%s answers of %s (%s), %v after %s acknowledged %+v of %v; it has %+v", v.Name, c.user, c.rate.Policy, age, s.by, cell, s.replica, got)
			}
		}
	}
}

// disowned: what a region's store had acknowledged is gone with it.
func (t *trial) disowned(region string) {
	for at := range t.owned {
		if at.name == region {
			delete(t.owned, at)
		}
	}
}
