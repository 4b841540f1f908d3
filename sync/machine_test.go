package deltasync

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/clocks"
)

// Nor does it fall behind others while it comes to what the machine shows, however long that
// takes, on samples as they come where trips differ.
func TestClockThatIsSetBackStaysWithOthers(t *testing.T) {
	for _, equal := range []bool{false, true} {
		var c Clock
		if equal {
			c.CountSelf()
		}
		m, rnd := clocks.Begin(), rand.New(rand.NewPCG(1, 2))
		for d := time.Duration(0); d < 12*time.Hour; d += 500 * time.Millisecond {
			if d == 10*time.Second {
				m.Set = -300 * time.Second
			}
			trip := time.Duration(10+rnd.IntN(10)) * time.Millisecond
			for o := range uint64(2) {
				c.Heard(o+1, 1, c.Raw(m.After(d)), m.True(d+trip/2), m.True(d+trip/2), c.Raw(m.After(d+trip)))
			}
			step, _ := c.Turn(m.After(d + trip))
			if off := time.Duration(c.At(m.After(d+trip)) - m.True(d+trip)); step != 0 || distance(int64(off), 0) > int64(60*time.Millisecond) {
				t.Fatalf("%v in, equal %v: it is off by %v, and set by %v", d, equal, off, step)
			}
		}
	}
}

// A clock that is set back changes nothing for who goes by it, from the first instant on, be
// it that nobody answers, that a region does, or that it is an aggregator's, who is asked by
// others while it is set; nor does one that is set forward for who is answered. It comes to
// what the machine shows little by little.
func TestClockThatIsSetGoesOn(t *testing.T) {
	const step, after = 100 * time.Millisecond, 30 * time.Second
	for _, by := range []time.Duration{-2 * time.Second, -5 * time.Second, -30 * time.Second, -59 * time.Second, -1000 * time.Second, 2 * time.Second, time.Hour, -time.Hour} {
		for others := range 4 {
			for _, equal := range []bool{false, true} {
				for _, asks := range []bool{false, true} { // before the clock turns
					if others == 0 && (by > 0 || by < -1000*time.Second) {
						continue // it is believed
					}
					var c Clock
					if equal {
						c.CountSelf()
					}
					m, told := clocks.Begin(), 0
					for d := time.Duration(0); d < 2*after; d += step {
						if d == after {
							m.Set = by
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
						step, set := c.Turn(now)
						if set != 0 {
							told++
						}
						if !asks {
							hear()
						}
						off := time.Duration(c.At(now) - m.True(d))
						if distance(int64(off), 0) > int64(after)*5/1000+2e6 || step != 0 || set != 0 && distance(int64(set), int64(by)) > 2e7 {
							t.Fatalf("%v in, set by %v, %d others, equal %v: it is off by %v, set by %v, told of %v", d, by, others, equal, off, step, set)
						}
					}
					if told != 1 {
						t.Errorf("set by %v, %d others, equal %v: told %d times", by, others, equal, told)
					}
					off := c.Correction(m.After(2 * after))
					if offset, ok := c.Offset(m.After(2 * after)); ok && distance(int64(offset), int64(-by)) > 1e7 {
						t.Errorf("set by %v others are ahead by %v", by, offset)
					}
					if distance(int64(off), int64(-by)) > int64(after)*6/1000 {
						t.Errorf("set by %v it is corrected by %v", by, off)
					}
				}
			}
		}
	}
}

// Who has nobody else to go by is right again once the step is worked off, however seldom he
// asks, and never goes back on the way.
func TestClockComesToWhatTheMachineShows(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Millisecond, time.Second, time.Minute, 10 * time.Minute} {
		var c Clock
		m, last := clocks.Begin(), int64(0)
		for d := time.Duration(0); d < 2*time.Hour; d += every {
			if d >= 20*time.Minute {
				m.Set = -10 * time.Second
			}
			at := c.At(m.After(d))
			if at < last {
				t.Fatalf("%v in it goes back by %v", d, time.Duration(last-at))
			}
			last = at
		}
		if off := c.Correction(m.After(2 * time.Hour)); off != 0 {
			t.Errorf("asked every %v it is off by %v for good", every, off)
		}
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
		"back twice":       {[]time.Duration{-10 * time.Minute, -20 * time.Minute, -20*time.Minute - 3*time.Second}, 20*time.Minute + 3*time.Second, make([]time.Duration, 3)},
		"back, then half":  {[]time.Duration{-2 * time.Minute, -time.Minute}, time.Minute, []time.Duration{0, 0}},
		"never right":      {[]time.Duration{-8 * time.Hour}, 0, []time.Duration{-8 * time.Hour}},
	} {
		for _, idle := range []time.Duration{time.Millisecond, 5 * time.Minute} { // about the step
			t.Run(name+", idle for "+idle.String(), func(t *testing.T) {
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
					d += idle
					if leap := time.Duration(c.At(m.After(d))-was) - idle; distance(int64(leap), int64(tt.steps[i])) > int64(2*time.Second) {
						t.Errorf("set by %v it leaps by %v, want %v", set, leap, tt.steps[i])
					}
					for range 60 {
						tick()
					}
				}
				slewed := time.Duration(slewing*float64(time.Duration(len(tt.sets))*(time.Minute+idle))) + time.Second
				if off := c.Correction(m.After(d)); off > tt.want+time.Millisecond || off < tt.want-slewed {
					t.Errorf("at the end it is ahead by %v, want %v", off, tt.want)
				}
			})
		}
	}
}

// Who asked nothing for as long as the clock was set back is told how long that was.
func TestClockThatIsSetBackByHowLongItWasIdle(t *testing.T) {
	for _, idle := range []time.Duration{1500 * time.Millisecond, 2500 * time.Millisecond, 20500 * time.Millisecond, 10 * time.Minute} {
		var c Clock
		m := clocks.Begin()
		was := c.At(m.After(0))
		m.Set = -idle.Truncate(time.Second)
		for d := time.Duration(0); d < 2*time.Second; d += 100 * time.Millisecond {
			if got := time.Duration(c.At(m.After(idle+d)) - was); distance(int64(got), int64(idle+d)) > int64(time.Second) {
				t.Fatalf("idle for %v, and set back by it: %v later it shows %v more", idle, idle+d, got)
			}
		}
	}
}

// Who was held up since he read the clock is late, and no clock was set: neither for him nor
// for who comes after, however many there are.
func TestClockOfLateCallers(t *testing.T) {
	for _, set := range []time.Duration{0, -time.Minute, time.Minute, -time.Hour} {
		for _, late := range []time.Duration{time.Millisecond, 2 * time.Second, time.Minute} {
			var c Clock
			m, d := clocks.Begin(), time.Duration(0)
			for ; d < 2*time.Minute; d += 500 * time.Millisecond {
				c.At(m.After(d))
			}
			var held []time.Time
			for i := range 100 {
				held = append(held, m.After(d-late+late*time.Duration(i)/100))
			}
			m.Set = set
			began := c.At(m.After(d))
			for i, h := range held {
				passed := time.Duration(i) * 10 * time.Millisecond
				if got := time.Duration(c.At(m.After(d+passed)) - began); distance(int64(got), int64(passed)) > 6e6 {
					t.Fatalf("set by %v, late by %v: after %v it shows %v more", set, late, passed, got)
				}
				want := late*time.Duration(i)/100 - late
				if got := time.Duration(c.At(h) - began); distance(int64(got), int64(want)) > 6e6 {
					t.Fatalf("set by %v, late by %v: it showed %v more, want %v", set, late, got, want)
				}
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
	for d := time.Second; d < time.Minute; d += time.Second {
		if off := c.Correction(m.After(d)); off != 0 {
			t.Fatalf("after a time of tomorrow it is off by %v", off)
		}
	}
}
