package regional

import "github.com/spillgate/spillgate/sync"

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
	for _, source := range []Source{FromEdge, FromRegion, FromPeers} {
		for _, e := range c.of(source).Entries() {
			out = append(out, Vector{Source: source, Replica: e.Replica, Cells: e.Vector.Cells(nil)})
		}
	}
	return out
}
