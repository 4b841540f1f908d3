package edge

import (
	"slices"

	"github.com/spillgate/spillgate/sync"
)

// stride moves the shard that a flush begins with; it shares no factor with the
// number of shards.
const stride = 97

// resume sets the shard that the next flush begins with: where this one ran out
// of room, so that everybody has a turn, and after a whole round another one,
// so that nobody is always first in line.
func (n *Node) resume(c class, from, done int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if done == shards {
		done = stride
	}
	n.drainFrom[c] = (from + done) % shards
}

// begin says which wave of resends is on, the shard to begin with, and whether
// any outbox and the budget take more of a class, of which something waits.
func (n *Node) begin(now int64, c class, waits bool) (wave uint32, from int, room bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	room = n.anyRoom(c)
	if !room && c <= urgently {
		n.stats.outboxFull.Add(1)
	}
	if room && !n.budget.Allows(now, haste[c]) {
		room = false
		n.stats.overBudget.Add(1)
		if waits && c < cold {
			n.cluster.backlog.waits(now)
		}
	}
	return n.resend.wave, n.drainFrom[c], room
}

// Each class has a part of an outbox to itself, in eighths, however many there are
// of others; who is pressing has all.
var parts = [classes]int{pressing: 8, urgently: 3, hot: 2, cold: 1}

// hurries are the flags by which an outbox tells classes apart.
var hurries = [classes]deltasync.Flags{pressing: deltasync.FlagFirst, urgently: deltasync.FlagUrgent, hot: deltasync.FlagRegular}

// haste is what classes may do to the budget of bytes. Keys that are new are no
// more pressing than what changes: they may be a flood.
var haste = [classes]deltasync.Haste{pressing: deltasync.Pressing, urgently: deltasync.Regular, hot: deltasync.Regular, cold: deltasync.CanWait}

// anyRoom is false where every lane's outbox is full for a class; n.mu is held.
func (n *Node) anyRoom(c class) bool {
	return slices.ContainsFunc(n.outboxes, func(box *deltasync.Outbox) bool { return box.Takes(hurries[c], parts[c]) })
}
