package edge

import (
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// A node that starts knows of no key what others have spent on it. It asks who
// owns each lane for those near their limit, part by part, and keeps the totals as
// it keeps those that are pushed. No decision waits for that: until they are there
// it decides as one that was never told.

// Ask is a request for a part of a lane's snapshot. Its answer goes to
// ReceiveSnapshot, its loss to LostSnapshot.
type Ask struct {
	Lane    int
	Subject string
	Payload []byte
	from    uint64
}

// snapshot is what a node has of it. Node.mu guards it.
type snapshot struct {
	lanes []laneSnapshot
	begun int64         // when it was first asked for; 0: it was not
	took  time.Duration // until the last part of all was there; 0: it is not
	keys  uint64
}

// laneSnapshot is what it has of a lane.
type laneSnapshot struct {
	from  uint64 // where the next part begins
	keys  int
	fails int
	until int64 // it is not asked for before this instant
	asked bool  // a part is under way
	done  bool  // or given up
}

// mostAsks is after how many losses in a row a lane's snapshot is given up: that
// is most of a minute, and by then the keys were asked for one by one. The
// aggregators may be of a build that knows no snapshots.
const mostAsks = 20

// Asks hands out requests for the parts of the snapshot that are missing. It has
// none before there are rules, by which totals are judged, nor when all is there.
// With a budget of bytes it asks for one part at a time, while half of what may be
// saved up is left: the answers are large, and frames have to go on. Call it every
// Config.Urgent.
func (n *Node) Asks(now time.Time) []Ask {
	if n.rules.Load() == nil {
		return nil
	}
	n.cluster.joined.Store(true)
	t := n.clock.At(now)
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &n.snapshot
	if s.begun == 0 {
		s.begun = t
	}
	var out []Ask
	for lane := range s.lanes {
		l := &s.lanes[lane]
		if l.done || l.asked || resting(t, l.until) {
			continue
		}
		if n.cfg.Budget > 0 && (s.asking() || !n.budget.Allows(t, deltasync.CanWait)) {
			break
		}
		snap := deltasync.Snap{Region: n.cfg.Region, Lane: lane, Lanes: n.cfg.Lanes, From: l.from}
		payload, err := snap.AppendBinary(nil)
		if err != nil { // our own bug
			n.cfg.Logger.Error("snapshot not asked for", "lane", lane, "err", err)
			l.done = true
			continue
		}
		l.asked = true
		n.budget.Spend(len(payload))
		out = append(out, Ask{Lane: lane, Subject: deltasync.SnapSubject(n.cfg.Region, lane), Payload: payload, from: l.from})
	}
	return out
}

// ReceiveSnapshot takes in a part of a snapshot. An error says that it cannot be
// used; it then counts as lost.
func (n *Node) ReceiveSnapshot(now time.Time, a Ask, payload []byte) error {
	n.spend(len(payload))
	var hot deltasync.Hot
	if err := hot.UnmarshalBinary(payload); err != nil {
		var down deltasync.Down // what a Snap is refused with
		if down.UnmarshalBinary(payload) == nil {
			return fmt.Errorf("snapshot of lane %d: aggregator of %s refused to tell it: %s", a.Lane, down.Region, down.Status)
		}
		n.stats.unread(err, &n.stats.badReplies)
		return fmt.Errorf("snapshot of lane %d: %w", a.Lane, err)
	}
	if hot.Region != n.cfg.Region {
		n.stats.foreign.Add(1)
		return fmt.Errorf("snapshot of lane %d: it is of region %q, want %q", a.Lane, hot.Region, n.cfg.Region)
	}
	if hot.Lane != a.Lane || hot.Next != 0 && hot.Next <= a.from {
		n.stats.badReplies.Add(1)
		return fmt.Errorf("snapshot of lane %d from %d: it is of lane %d and goes on at %d", a.Lane, a.from, hot.Lane, hot.Next)
	}
	t := n.clock.At(now)
	keys := n.hearAll(t, &hot)
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &n.snapshot
	l := &s.lanes[a.Lane]
	if l.done || l.from != a.from {
		return nil // it was given up, or answered twice
	}
	*l = laneSnapshot{from: hot.Next, keys: l.keys + keys}
	l.done = hot.Next == 0 || l.keys >= deltasync.MaxSnapshot
	s.keys += uint64(keys)
	s.end(t)
	return nil
}

// LostSnapshot takes back a request that nobody answered. Each time it is made
// again a little later.
func (n *Node) LostSnapshot(now time.Time, a Ask) {
	t := n.clock.At(now)
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &n.snapshot.lanes[a.Lane]
	if l.done || !l.asked || l.from != a.from {
		return
	}
	l.asked = false
	l.until = t + int64(min(n.cfg.Interval<<min(l.fails, 8), longestPause))
	if l.fails++; l.fails >= mostAsks {
		l.done = true
		n.cfg.Logger.Warn("no snapshot of what is hot: deciding from what is asked for key by key", "lane", a.Lane)
		n.snapshot.end(t)
	}
}

// spend takes note of bytes that came.
func (n *Node) spend(bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.budget.Spend(bytes)
}

// asking says that a part is under way.
func (s *snapshot) asking() bool {
	return slices.ContainsFunc(s.lanes, func(l laneSnapshot) bool { return l.asked })
}

// end notes that all lanes are there, or given up.
func (s *snapshot) end(now int64) {
	for i := range s.lanes {
		if !s.lanes[i].done {
			return
		}
	}
	s.took = max(1, time.Duration(now-s.begun))
}
