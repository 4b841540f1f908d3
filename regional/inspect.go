package regional

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// Vectors are copies of all that the aggregator holds of a key, by replica.
func (a *Aggregator) Vectors(key deltasync.Key) []Vector {
	l := a.lanes[key.Lane(len(a.lanes))]
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counters[key]
	if c == nil {
		return nil
	}
	var out []Vector
	for _, source := range []Source{FromEdge, FromRegion, FromPeers, FromHomes} {
		for _, e := range c.of(source).Entries() {
			out = append(out, Vector{Source: source, Replica: e.Replica, Cells: e.Vector.Cells(nil)})
		}
	}
	return out
}

// Used is what counts against a key's limit, as far as is known: what thresholds are
// crossed by.
func (a *Aggregator) Used(now time.Time, key deltasync.Key) uint64 {
	l := a.lanes[key.Lane(len(a.lanes))]
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.counters[key]; c != nil {
		return l.used(c, a.clock.At(now))
	}
	return 0
}

// Homes are the regions to which a key's counts go wherever they are made, this one
// included where it is one: two, or all.
func (a *Aggregator) Homes(key deltasync.Key) (regions []string) {
	for j := range a.homes.targets(key).each {
		regions = append(regions, a.cfg.Peers[j])
	}
	if !a.homes.on || a.homes.own(key) {
		regions = append(regions, a.cfg.Region)
	}
	slices.Sort(regions)
	return regions
}
