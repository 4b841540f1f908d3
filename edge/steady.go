package edge

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A clock that is set back by little may be set back over the end of a window: who was
// limited in it was let go of a moment ago, and would be free a second time. So time stands
// still until the clock has caught up, for a second at the most. What is set back by more is
// believed; see recall. A time.Now of who was held up for longer is no clock that was set: see
// deltasync.Clock.Present.

// mostStill is how long time may stand still.
const mostStill = time.Second

// steady is the time by which a shard decides: that of the clock, or the latest that it
// decided at, where the clock was set back by little. s.mu is held.
func (s *shard) steady(now int64) int64 {
	if back := s.latest - now; back > 0 && back <= int64(mostStill) {
		return s.latest
	}
	s.latest = now
	return now
}

// steadyFor is steady for counters, whose shards are locked.
func (n *Node) steadyFor(counters []counter, now int64) (t int64) {
	t = now
	for i := range counters {
		t = max(t, n.shard(counters[i].key).steady(now))
	}
	return t
}

// keptOn is how long after its window an idle counter is kept: a clock that was ahead by more
// may be set right. Where windows slide only what was about to leave them would be free.
func keptOn(rate *limit.Rate) int64 {
	if rate.Algorithm != limit.FixedWindow {
		return 0
	}
	return int64(min(rate.Window/10, time.Minute))
}
