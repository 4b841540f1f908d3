package deltasync

import (
	"testing"
	"time"
	"unsafe"
)

// machine is the clock of one: what time.Now says there, with its monotonic reading.
type machine struct {
	began time.Time
	set   time.Duration // by how much it was since it began
}

// after is what it shows so long after it began.
func (m *machine) after(d time.Duration) time.Time {
	now := m.began.Add(d)
	// A time with a monotonic reading has its seconds since 1885 above the lowest thirty bits.
	*(*uint64)(unsafe.Pointer(&now)) += uint64(m.set/time.Second) << 30
	return now
}

// A clock that is set back changes nothing for who goes by it, from the first instant on: it
// goes on from what it showed, be it that others answer or that there are none; then it comes
// to what the machine shows, little by little.
func TestClockThatIsSetBackGoesOn(t *testing.T) {
	const step = 100 * time.Millisecond
	for _, answers := range []bool{false, true} {
		var c Clock
		m := machine{began: time.Now()}
		wall := func(d time.Duration) int64 { return m.began.Add(d).Round(0).UnixNano() }
		for d := time.Duration(0); d < time.Minute; d += step {
			if d == 30*time.Second {
				m.set = -time.Hour
			}
			now := m.after(d)
			if got := c.At(now); distance(got, wall(d)) > int64(200*time.Millisecond) {
				t.Fatalf("%v in, set by %v, others: %v: it is off by %v", d, m.set, answers, time.Duration(got-wall(d)))
			}
			if answers {
				sent := now.UnixNano()
				c.Heard(1, 1, sent, wall(d)+1e6, wall(d)+1e6, sent+2e6)
			}
			c.Turn(now)
			if got := c.At(now.Round(0)); distance(got, wall(d)) > int64(200*time.Millisecond) && d < 30*time.Second {
				t.Fatalf("%v in: without a reading it is off by %v", d, time.Duration(got-wall(d)))
			}
		}
		if c.Steps() != 1 || answers != (c.Correction() > time.Hour-time.Millisecond) || c.Correction() > time.Hour+time.Millisecond {
			t.Errorf("others: %v: set %d times, and corrected by %v; want once, by the hour, or less where there are none", answers, c.Steps(), c.Correction())
		}
	}
}

// One that is set ahead, or that passed while the machine slept, is believed.
func TestClockThatIsSetAheadIsBelieved(t *testing.T) {
	var c Clock
	m := machine{began: time.Now()}
	c.Turn(m.after(0))
	m.set = time.Hour
	now := m.after(time.Second)
	c.Turn(now)
	if off := c.At(now) - now.UnixNano(); off != 0 {
		t.Errorf("it is off by %v, want what the machine shows", time.Duration(off))
	}
}
