package deltasync

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/clocks"
)

// A clock that is set back changes nothing for who goes by it, from the first instant on, be
// it that nobody answers, that a region does, or that it is an aggregator's, who is asked by
// others while it is set; it comes to what the machine shows little by little.
func TestClockThatIsSetBackGoesOn(t *testing.T) {
	const step, after = 100 * time.Millisecond, 30 * time.Second
	for _, back := range []time.Duration{2 * time.Second, 5 * time.Second, 30 * time.Second, 59 * time.Second, 1000 * time.Second} {
		for others := range 4 {
			for _, equal := range []bool{false, true} {
				for _, asks := range []bool{false, true} { // before the clock turns
					var c Clock
					if equal {
						c.CountSelf()
					}
					m, told := clocks.Begin(), 0
					for d := time.Duration(0); d < 2*after; d += step {
						if d == after {
							m.Set = -back
						}
						now := m.After(d)
						hear := func() {
							sent := c.Raw(now)
							for o := range uint64(others) {
								c.Heard(o+1, 1, sent, m.True(d)+1e6, m.True(d)+1e6, sent+2e6)
							}
						}
						if asks {
							hear()
						}
						set, by := c.Turn(now)
						if by != 0 {
							told++
						}
						if !asks {
							hear()
						}
						off := time.Duration(c.At(now) - m.True(d))
						if distance(int64(off), 0) > int64(after)*5/1000+2e6 || set != 0 || by != 0 && distance(int64(by), int64(back)) > 2e7 {
							t.Fatalf("%v in, set back by %v, %d others, equal %v: it is off by %v, set by %v, told of %v", d, back, others, equal, off, set, by)
						}
					}
					if told != 1 {
						t.Errorf("set back by %v, %d others, equal %v: told %d times", back, others, equal, told)
					}
					off := c.Correction(m.After(2 * after))
					if offset, ok := c.Offset(m.After(2 * after)); ok && distance(int64(offset), int64(back)) > 1e7 {
						t.Errorf("set back by %v others are ahead by %v", back, offset)
					}
					if distance(int64(off), int64(back)) > int64(after)*6/1000 {
						t.Errorf("set back by %v it is corrected by %v", back, off)
					}
				}
			}
		}
	}
}

// Who has nobody else to go by is right again once the step is worked off, and never goes
// back by more than a second on the way.
func TestClockComesToWhatTheMachineShows(t *testing.T) {
	var c Clock
	m, last := clocks.Begin(), int64(0)
	for d := time.Duration(0); d < 400*time.Second; d += 100 * time.Millisecond {
		if d == time.Minute {
			m.Set = -2 * time.Second
		}
		at := c.At(m.After(d))
		if at < last-int64(time.Second) {
			t.Fatalf("%v in it goes back by %v", d, time.Duration(last-at))
		}
		last = max(last, at)
	}
	if off := c.Correction(m.After(400 * time.Second)); off != 0 {
		t.Errorf("it is off by %v for good", off)
	}
}

// What is set forward is believed at once, what is set back in error and right again is no
// step at all, and neither adds up; and what was never right is not gone by.
func TestClockThatIsSetOften(t *testing.T) {
	for name, tt := range map[string]struct {
		sets  []time.Duration // one after the other, a minute each
		want  time.Duration   // ahead of what the machine shows, at the end
		steps []time.Duration // when the clock is set, by how much it leaps
	}{
		"forward":          {[]time.Duration{time.Hour}, 0, []time.Duration{time.Hour}},
		"back and right":   {[]time.Duration{-10 * time.Minute, 0}, 0, []time.Duration{0, 0}},
		"forward and back": {[]time.Duration{10 * time.Minute, 0}, 10 * time.Minute, []time.Duration{10 * time.Minute, 0}},
		"often":            {[]time.Duration{-2 * time.Second, 0, -2 * time.Second, 0, -2 * time.Second, 0}, 0, make([]time.Duration, 6)},
		"back twice":       {[]time.Duration{-time.Minute, -2 * time.Minute}, 2 * time.Minute, []time.Duration{0, 0}},
		"back, then half":  {[]time.Duration{-2 * time.Minute, -time.Minute}, time.Minute, []time.Duration{0, 0}},
		"never right":      {[]time.Duration{-8 * time.Hour}, 0, []time.Duration{-8 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			var c Clock
			m, d := clocks.Begin(), time.Duration(0)
			tick := func() {
				d += time.Second
				c.Turn(m.After(d))
			}
			for range 60 {
				tick()
			}
			for i, set := range tt.sets {
				was := c.At(m.After(d))
				m.Set = set
				if leap := time.Duration(c.At(m.After(d+time.Millisecond)) - was); distance(int64(leap), int64(tt.steps[i])) > int64(time.Second) {
					t.Errorf("set by %v it leaps by %v, want %v", set, leap, tt.steps[i])
				}
				for range 60 {
					tick()
				}
			}
			if off := c.Correction(m.After(d)); distance(int64(off), int64(tt.want)) > int64(time.Second) {
				t.Errorf("at the end it is ahead by %v, want %v", off, tt.want)
			}
		})
	}
}

// Who was held up since he read the clock is late, and no clock was set: neither for him nor
// for who comes after.
func TestClockOfLateCallers(t *testing.T) {
	for _, set := range []time.Duration{0, -time.Minute, time.Minute, -time.Hour} {
		for _, late := range []time.Duration{time.Millisecond, 2 * time.Second, time.Minute} {
			var c Clock
			m := clocks.Begin()
			held := m.After(2*time.Minute - late)
			for d := time.Duration(0); d < 2*time.Minute; d += 500 * time.Millisecond {
				c.At(m.After(d))
			}
			m.Set = set
			on := c.At(m.After(2*time.Minute + time.Second))
			if got := time.Duration(on - c.At(held)); distance(int64(got), int64(late+time.Second)) > 1e7 {
				t.Errorf("set by %v, late by %v: %v before, want as much and a second", set, late, got)
			}
			if got := time.Duration(c.At(m.After(2*time.Minute+2*time.Second)) - on); distance(int64(got), int64(time.Second)) > 1e7 {
				t.Errorf("set by %v, late by %v: who comes a second later is %v later", set, late, got)
			}
		}
	}
}

// Times that somebody made up say what they say, whatever the machine's clock was set to,
// and hinder nobody else.
func TestClockAndTimesWithoutAReading(t *testing.T) {
	for _, set := range []time.Duration{-time.Minute, time.Hour} {
		var c Clock
		m := clocks.Begin()
		c.Turn(m.After(0))
		m.Set = set
		c.Turn(m.After(time.Minute))
		for _, at := range []time.Time{m.After(time.Minute).Round(0), midnight, time.Unix(0, 1)} {
			if got := c.At(at); got != at.UnixNano() {
				t.Errorf("set by %v: %v is taken for %v", set, at, time.Unix(0, got))
			}
		}
	}
	var c Clock
	m := clocks.Begin()
	c.At(m.After(0))
	c.At(m.After(24 * time.Hour)) // no such time was read
	m.Set = time.Minute
	c.At(m.After(time.Second))
	if off := c.Correction(m.After(1001 * time.Millisecond)); off != 0 {
		t.Errorf("one that is set forward, after a time of tomorrow, is off by %v", off)
	}
}
