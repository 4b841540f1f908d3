package edge

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A clock that is set back by little may be set back over the end of a window: who was
// limited in it was let go of a moment ago, and would be free a second time. So time stands
// still until the clock has caught up, for a second at the most. What is set back by more is
// believed; see recall.

// mostStill is how long time may stand still.
const mostStill = time.Second

// steady is the time by which a shard decides: that of the clock, or the latest that it
// decided at, where the clock was set back by little. s.mu is held.
func (s *shard) steady(now int64) int64 {
	switch back := s.latest - now; {
	case back <= 0:
	case back <= int64(mostStill):
		return s.latest
	default:
		s.setBack(now)
	}
	s.latest = now
	return now
}

// mostSteps is how many times a shard's clock was set back are known.
const mostSteps = 4

// setBack has all charges of a shard that lie ahead of a clock which was set back go back
// with it, at once: so it is known where those are that receipts of before tell of.
func (s *shard) setBack(now int64) {
	s.era++
	s.steps[s.era%mostSteps] = now
	for i := range s.table {
		if r := &s.table[i]; r.key != 0 {
			s.follow(r, now)
		}
	}
}

// follow has the charges of a record go back with a clock that was set back.
func (s *shard) follow(r *record, now int64) {
	b := r.block
	if r.sparse() && r.fresh > 0 && b.rate.Scope == limit.ScopeEdge && b.slice > b.rate.SliceAt(now+int64(maxAhead)) {
		b = s.whole(r)
	}
	if !r.sparse() {
		r.settle()
		s.recall(b, now)
	}
}

// moved is a charge as it stands now: at the instant, and where others are not told of it in
// the slice, that its clock was set back to since.
func (s *shard) moved(c *limit.Charge) limit.Charge {
	m := *c
	for era := max(c.Era, s.era-min(s.era, mostSteps)) + 1; era <= s.era; era++ {
		to := s.steps[era%mostSteps]
		m.At = min(m.At, to)
		if c.Rate.Scope == limit.ScopeEdge && !c.Rate.Bucket() && m.Slice > c.Rate.SliceAt(to+int64(maxAhead)) {
			m.Slice = c.Rate.SliceAt(to)
		}
	}
	return m
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
