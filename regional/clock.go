package regional

import (
	"sync"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// clock is the aggregator's, corrected by those of the aggregators of other
// regions: all take the median of what they see for the time. Edges correct
// theirs by what it shows.
type clock struct {
	deltasync.Clock
	mu sync.Mutex // guards what corrects it
}

// Now is what time it is by the aggregator's clock, corrected by those of other regions:
// the one that its store should go by.
func (a *Aggregator) Now() time.Time { return time.Unix(0, a.clock.At(a.cfg.Now())) }

// tellClock takes in the stamps of an exchange with an aggregator of another region.
func (a *Aggregator) tellClock(region, name uint64, sent, received, replied, arrived int64) {
	a.clock.mu.Lock()
	defer a.clock.mu.Unlock()
	a.clock.Heard(region, name, sent, received, replied, arrived)
}

// turnClock brings the correction nearer to what was heard.
func (a *Aggregator) turnClock(now time.Time) {
	a.clock.mu.Lock()
	defer a.clock.mu.Unlock()
	step, set := a.clock.Turn(now)
	if set != 0 {
		a.cfg.Logger.Warn("this machine's clock was set: counting on from what it showed", "by", set)
	}
	if step != 0 {
		a.cfg.Logger.Warn("this machine's clock is not that of the other regions: counting by theirs", "off", -step)
	}
}
