package regional

import "slices"

// Two regions that are cut off from each other seem to be well to a third that hears both. So
// regions tell of whom they heard nothing for quietFor (deltasync.Up.Silent), and that is shown.
// Whom they suspect to be cut off is no such thing: one that is far away is suspected by turns,
// as its answers come late.

// silentNodes is the nodes of the regions of which nothing was heard for long, by exclusive or.
func (a *Aggregator) silentNodes(now int64) (nodes uint64) {
	s := &a.spoken
	s.mu.Lock()
	defer s.mu.Unlock()
	for j, node := range a.nodes {
		v := &s.peers[j]
		if known := v.last != 0 && (!v.recalled || passed(s.self.since, now, int64(quietFor))); known && passed(v.last, now, int64(quietFor)) {
			nodes ^= node
		}
	}
	return nodes
}

// unheardBy is the regions of which a peer has heard nothing for long, as it said last.
func (a *Aggregator) unheardBy(j int, now int64) (regions []string) {
	if passed(a.links.hearsAt[j].Load(), now, int64(quietFor)) {
		return nil
	}
	nodes, names := slices.Concat(a.nodes, []uint64{a.self.Node}), slices.Concat(a.cfg.Peers, []string{a.cfg.Region})
	nodes, names = slices.Delete(nodes, j, j+1), slices.Delete(names, j, j+1)
	for k, set := 0, among(nodes, a.links.silent[j].Load()); set != 0; k, set = k+1, set>>1 {
		if set&1 != 0 {
			regions = append(regions, names[k])
		}
	}
	return regions
}

// among is which nodes come to that by exclusive or, a bit each: of a few any, of more up to
// two, or all. None if it is of others.
func among(nodes []uint64, sum uint64) uint64 {
	all, rest := uint64(1)<<len(nodes)-1, sum
	for _, node := range nodes {
		rest ^= node
	}
	switch {
	case sum == 0:
		return 0
	case rest == 0:
		return all
	case len(nodes) <= 8:
		for set := range all {
			of := uint64(0)
			for k, node := range nodes {
				of ^= node * (set >> k & 1)
			}
			if of == sum {
				return set
			}
		}
		return 0
	}
	for k, node := range nodes {
		if node == sum {
			return 1 << k
		}
		if other := slices.Index(nodes[:k], sum^node); other >= 0 {
			return 1<<k | 1<<other
		}
	}
	return 0
}
