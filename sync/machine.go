package deltasync

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A machine is this machine's clock, but for being set back: where that is done, as the
// monotonic reading of what time.Now returns tells, it goes on as if it were not, and slower
// by five milliseconds a second until the machine shows the same. So nothing that was counted
// lies ahead of it, and receipts are of slices that are there. What is set forward is
// believed at once, be it that it was set back before; and so is what was set back by more
// than neverRight, which is a clock that was never right.
//
// A time without a monotonic reading (Time.Round(0), one that was parsed or made up) is what
// it says. A machine may be read by many goroutines at a time.
type machine struct {
	right  atomic.Int64 // what was shown at the last look, in ns since 1970; never, where it is not what this shows
	lead   atomic.Int64 // of it against the time since epoch, in ns
	looked atomic.Int64 // when that was last compared with what was shown, in ns since epoch; 0: it was not

	mu sync.Mutex // held while they change: looked before lead, so that who finds the new lead finds it
}

const (
	// lookEvery is how often the two are compared. Monotonic clocks are slewed with the
	// others on Linux, and may run off from them elsewhere.
	lookEvery = int64(time.Second)
	// latest is how late a time may come that tells nothing new. One that is later than that
	// shows that what was told last was not now.
	latest = 10 * lookEvery
	// neverRight is as far as time daemons set a clock unasked (ntpd, "panic threshold").
	neverRight = int64(1000 * time.Second)
	never      = int64(math.MinInt64 / 2)
)

// epoch is an instant with a monotonic reading.
var epoch = time.Now()

// monotonic says that an instant has a monotonic reading.
func monotonic(t time.Time) bool { return t != t.Round(0) }

// at is what it shows at an instant, in ns since 1970.
func (m *machine) at(t time.Time) int64 {
	wall := t.UnixNano()
	if uint64(wall-m.right.Load()) < uint64(lookEvery) {
		return wall
	}
	return m.compared(t, wall)
}

// compared is at where a while has passed, the time is an old one, or was set.
func (m *machine) compared(t time.Time, wall int64) int64 {
	if !monotonic(t) {
		return wall
	}
	since, lead := int64(t.Sub(epoch)), m.lead.Load()
	off, ago := wall-since-lead, since-m.looked.Load()
	if ago >= lookEvery || ago < -latest || off > stepFrom || off < -neverRight {
		lead = m.look(wall, since)
		off = wall - since - lead
	}
	if distance(off, 0) <= stepFrom {
		return wall
	}
	return since + lead // the time is of before the clock was set, too
}

// look compares the two at an instant, if it is a new one, and returns by how much the time
// since epoch is behind from then on.
func (m *machine) look(wall, since int64) (lead int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lead = m.lead.Load()
	shows, looked, right := wall-since, m.looked.Load(), wall
	back := lead - shows
	switch {
	case looked == 0:
	case since < looked-latest: // the next tells
		shows, right = lead, never
	case since <= looked:
		return lead
	case back > stepFrom && back <= neverRight:
		shows, right = lead-int64(slewing*float64(min(since-looked, lookEvery))), never
	}
	m.looked.Store(since)
	m.lead.Store(shows)
	m.right.Store(right)
	return shows
}
