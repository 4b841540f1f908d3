package edge

import "github.com/spillgate/spillgate/sync"

// noteMistake takes note of what an answer says of our settings; n.mu is held. It is
// said with each answer, and logged once: a rolling change of a secret would else
// fill logs.
func (n *Node) noteMistake(lane int, m deltasync.Mistake, lanes int) {
	if m == deltasync.MistakeLanes && lanes == n.cfg.Lanes { // an aggregator of the build before, of what was sent before we were mended
		m = 0
	}
	n.lanes[lane].mistake = m
	if m.String() == "" || n.told[m] { // one of a later version says nothing to us
		return
	}
	n.told[m] = true
	switch m {
	case deltasync.MistakeLanes:
		n.cfg.Logger.Error("this edge has another number of lanes than its region, which takes nothing that it sends: set lanes alike at every edge and aggregator of the region",
			"lanes", n.cfg.Lanes, "region_lanes", lanes)
	case deltasync.MistakeSecret:
		n.cfg.Logger.Error("the secret of this edge is not that of the region's other edges, so that it counts keys of its own: give all edges of the cluster one secret")
	}
}

// mistake is what the region sees wrong in our settings; 0: nothing.
func (n *Node) mistake() (m deltasync.Mistake) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.lanes {
		if found := n.lanes[i].mistake; found.String() != "" && (m == 0 || found < m) {
			m = found
		}
	}
	return m
}
