package edge

import (
	"sync/atomic"
	"time"
)

// backlog is how long news waits as the budget is spent. Others have budgets like this
// one's, and much to tell when there is much to tell here: their news is taken to be as
// late. Written under Node.mu, read by decisions.
type backlog struct {
	since atomic.Int64 // when what waits began to; 0: nothing does
	usual atomic.Int64 // that a wait took of late, ns
}

// waits notes that there is news which may not be sent yet.
func (b *backlog) waits(now int64) {
	if b.since.Load() == 0 {
		b.since.Store(now)
	}
}

// goes notes that what there is may be sent.
func (b *backlog) goes(now int64) {
	waited, usual := b.waited(now), b.usual.Load()
	b.since.Store(0)
	b.usual.Store(usual + (waited-usual)/8)
}

// waited is how long something waits now; after a clock was set no longer than shares are
// remembered.
func (b *backlog) waited(now int64) int64 {
	since := b.since.Load()
	if since == 0 {
		return 0
	}
	return min(max(0, now-since), int64(forgetShare))
}

// most is how long news may have waited: seldom more than four times as long as usual,
// but for what waits still.
func (b *backlog) most(now int64) time.Duration {
	return time.Duration(max(b.waited(now), 4*b.usual.Load()))
}
