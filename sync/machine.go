package deltasync

import (
	"sync"
	"sync/atomic"
	"time"
)

// A machine is this machine's clock, but for its being set, as the monotonic reading of what
// time.Now returns tells. Where that is set back by more than a second it goes on as if it
// were not, and slower by five milliseconds a second until both show the same. So nothing that
// was counted lies ahead of it, and receipts are of slices that are there. What is set forward
// is believed at once, as far as it was not set back before; and so is what is set back by
// more than neverRight at a time, which is a clock that was never right. While others tell what
// time it is, it goes on in any case.
//
// A time without a monotonic reading (Time.Round(0), one that was parsed or made up) is what
// it says. A machine may be read by many goroutines at a time.
type machine struct {
	last     atomic.Pointer[look] // nil: there was none
	answered atomic.Bool          // others tell
	sure     atomic.Bool          // they did, and it was not believed forward since
	mu       sync.Mutex           // held while there is a new one
}

// look is what was shown when both were last compared.
type look struct {
	until time.Time // when they are again, if not before
	wall  int64     // what was shown, in ns since 1970
	since int64     // when, in ns since epoch
	lead  int64     // of the machine against the time since epoch, in ns, from then on
	off   bool      // it is not what was shown
}

const (
	// lookEvery is how often the two are compared, or less often where nobody asks. Monotonic
	// clocks are slewed with the others on Linux, and may run off from them elsewhere.
	lookEvery = 3 * time.Second / 4
	// late is how much older than the last look a time may be that is not compared: with
	// lookEvery no more than stepFrom, so that no step hides between both.
	late = time.Second / 4
	// neverRight is as far as time daemons set a clock unasked (ntpd, "panic threshold").
	neverRight = int64(1000 * time.Second)
)

// epoch is an instant with a monotonic reading.
var epoch = time.Now()

// monotonic says that an instant has a monotonic reading.
func monotonic(t time.Time) bool { return t != t.Round(0) }

// at is what it shows at an instant, in ns since 1970.
func (m *machine) at(t time.Time) int64 {
	wall := t.UnixNano()
	l := m.last.Load()
	if l != nil && uint64(wall-l.wall+int64(late)) < uint64(lookEvery+late) && t.Before(l.until) && !l.off {
		return wall
	}
	return m.compared(t, wall)
}

// present is at of who asks what time it is by now: one that was held up since it read its clock
// is told what the last look showed, which is younger.
func (m *machine) present(t time.Time) int64 {
	wall := t.UnixNano()
	l := m.last.Load()
	if l != nil && uint64(wall-l.wall+int64(late)) < uint64(lookEvery+late) && t.Before(l.until) && !l.off {
		return wall
	}
	if l != nil && monotonic(t) && int64(t.Sub(epoch)) < l.since-int64(late) && int64(time.Since(epoch)) >= l.since { // a look at what lies ahead is none
		if !l.off {
			return l.wall
		}
		return l.since + l.lead
	}
	return m.compared(t, wall)
}

// compared is at where a while has passed, the time is an old one, or the clock was set.
func (m *machine) compared(t time.Time, wall int64) int64 {
	if !monotonic(t) {
		return wall
	}
	since, l := int64(t.Sub(epoch)), m.last.Load()
	if l == nil || since-l.since >= int64(lookEvery) || since > l.since && distance(wall-since, l.wall-l.since) > stepFrom {
		l = m.look(t, wall, since)
	}
	if !l.off && distance(wall-since, l.lead) <= stepFrom {
		return wall
	}
	return since + l.lead // the time is of before the clock was set, too
}

// look compares the two at an instant, if it is a new one.
func (m *machine) look(t time.Time, wall, since int64) *look {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, shows := m.last.Load(), wall-since
	lead := shows
	if l != nil {
		if since <= l.since {
			return l
		}
		step := shows - (l.wall - l.since)
		switch {
		case distance(step, 0) <= stepFrom && !l.off:
		case distance(step, 0) <= stepFrom:
			most := int64(slewing * float64(since-l.since))
			lead = l.lead + min(max(shows-l.lead, -most), most)
		case m.answered.Load():
			lead = l.lead
		case step > 0:
			if lead = l.lead; shows > lead {
				lead = shows
				m.sure.Store(false)
			}
		case step >= -neverRight:
			lead = l.lead
		}
	}
	l = &look{until: t.Add(lookEvery), wall: wall, since: since, lead: lead, off: lead != shows}
	m.last.Store(l)
	return l
}
