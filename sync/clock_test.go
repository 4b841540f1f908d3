package deltasync

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

// A far is somebody whose clock is ahead of the true one.
type far struct {
	name      uint64
	ahead     time.Duration
	out, back time.Duration // the ways to it and back
}

// place is where it is: those of one hundred stand at one.
func (f far) place() uint64 {
	if f.name < 100 {
		return f.name
	}
	return f.name / 100
}

// ask is an exchange at a true instant of c's owner, whose clock is ahead too.
func (f far) ask(c *Clock, now time.Time, ahead time.Duration) {
	at := now.Add(f.out)
	c.Heard(f.place(), f.name, now.Add(ahead).UnixNano(), at.Add(f.ahead).UnixNano(), at.Add(f.ahead).UnixNano(), at.Add(f.back).Add(ahead).UnixNano())
}

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// run has the owner of c ask all others ten times a second for so long, and
// returns how far its corrected clock is from the true one at the end.
func run(c *Clock, from time.Time, length, ahead time.Duration, others ...far) time.Duration {
	now := from
	for ; now.Before(from.Add(length)); now = now.Add(100 * time.Millisecond) {
		for _, o := range others {
			o.ask(c, now, ahead)
		}
		c.Turn(now.Add(ahead))
	}
	return time.Duration(c.At(now.Add(ahead)) - now.UnixNano())
}

func TestClockFollowsTheMedian(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name       string
		own        time.Duration
		self       bool
		others     []far
		want, near time.Duration
	}{
		{"nobody", 50 * ms, false, nil, 50 * ms, 0},
		{"one", 50 * ms, false, []far{{1, 0, ms, ms}}, 0, ms / 5},
		{"one, behind", -50 * ms, false, []far{{1, 0, ms, ms}}, 0, ms / 5},
		{"one of three is wrong", 50 * ms, false, []far{{1, 0, ms, ms}, {2, 2 * ms, ms, ms}, {3, time.Hour, ms, ms}}, 2 * ms, ms / 5},
		{"an hour off", time.Hour, false, []far{{1, 0, ms, ms}}, 0, ms / 5},
		{"equals: two meet halfway", 100 * ms, true, []far{{1, 0, ms, ms}}, 50 * ms, ms},
		{"one of two is wrong", 50 * ms, false, []far{{1, 0, ms, ms}, {3, time.Hour, ms, ms}}, 0, ms / 5},
		{"equals: two that are an hour apart", time.Hour, true, []far{{1, 0, ms, ms}}, time.Hour, 0},
		{"equals: two against one", 100 * ms, true, []far{{1, 0, 80 * ms, 80 * ms}, {2, 4 * ms, 80 * ms, 80 * ms}}, 4 * ms, 17 * ms},
		{"equals: the odd one is another", 100 * ms, true, []far{{1, 100 * ms, ms, ms}, {2, time.Hour, ms, ms}}, 100 * ms, ms},
		{"equals: a place that is wrong has one voice", 0, true, []far{{1, 0, ms, ms}, {901, 40 * ms, ms, ms}, {902, 70 * ms, ms, ms}}, 0, ms},
		{"a lopsided path is no reason", 0, false, []far{{1, 0, 83 * ms, 77 * ms}}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Clock
			if tt.self {
				c.CountSelf()
			}
			got := run(&c, midnight, time.Minute, tt.own, tt.others...)
			if distance(int64(got), int64(tt.want)) > int64(tt.near) {
				t.Errorf("after a minute it is off by %v, want %v ± %v", got, tt.want, tt.near)
			}
		})
	}
}

// Corrected time goes on at its pace, give or take five thousandths, while the
// machine's clock is off by less than a second.
func TestClockIsSlewed(t *testing.T) {
	var c Clock
	o := far{name: 1, out: time.Millisecond, back: time.Millisecond}
	last := c.At(midnight.Add(-900 * time.Millisecond))
	const step = 100 * time.Millisecond
	for now := midnight.Add(step); now.Before(midnight.Add(5 * time.Minute)); now = now.Add(step) {
		o.ask(&c, now, -900*time.Millisecond)
		if by, _ := c.Turn(now.Add(-900 * time.Millisecond)); by != 0 {
			t.Fatalf("the clock was set by %v at once", by)
		}
		at := c.At(now.Add(-900 * time.Millisecond))
		if passed := time.Duration(at - last); passed < step || passed > step+step*6/1000 {
			t.Fatalf("%v passed in %v", passed, step)
		}
		last = at
	}
	if got := c.Correction(midnight); distance(int64(got), int64(900*time.Millisecond)) > int64(time.Millisecond) {
		t.Errorf("corrected by %v after five minutes, want 900 ms", got)
	}
}

// A clock that is set in between, ours or another's, makes what was heard
// before it untrue, and that shows.
func TestClockThatIsSet(t *testing.T) {
	near := far{name: 1, out: 100 * time.Microsecond, back: 100 * time.Microsecond}
	slow := far{name: 1, out: 20 * time.Millisecond, back: 20 * time.Millisecond}
	var c Clock
	run(&c, midnight, 10*time.Second, 0, near)
	if got := run(&c, midnight.Add(10*time.Second), time.Second, time.Minute, slow); distance(int64(got), 0) > int64(5*time.Millisecond) {
		t.Errorf("a second after ours was set ahead it is off by %v", got)
	}
	if c.Steps() != 1 {
		t.Errorf("set at once %d times, want once", c.Steps())
	}
	slow.ahead = 2 * time.Second
	if got := run(&c, midnight.Add(20*time.Second), time.Second, time.Minute, slow); distance(int64(got), int64(2*time.Second)) > int64(5*time.Millisecond) {
		t.Errorf("a second after the other's was set by two it is off by %v, want that", got)
	}
}

// So it does where what was heard before is still fresh, and came by a shorter way than
// anything since: it would be what tells most until it is the seventeenth, which for who
// seldom asks takes a while.
func TestClockThatIsSetAndHearsFromAfar(t *testing.T) {
	near := far{name: 1, out: 100 * time.Microsecond, back: 100 * time.Microsecond}
	slow := far{name: 1, out: 20 * time.Millisecond, back: 20 * time.Millisecond}
	for _, tt := range []struct {
		name       string
		own, other time.Duration // they are set by
	}{
		{"ours ahead", 9 * time.Second, 0},
		{"ours back", -9 * time.Second, 0},
		{"the other's ahead", 0, 9 * time.Second},
		{"the other's back", 0, -9 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Clock
			run(&c, midnight, 10*time.Second, 0, near)
			slow.ahead = tt.other
			if got := run(&c, midnight.Add(10*time.Second), time.Second, tt.own, slow); distance(int64(got), int64(tt.other)) > int64(5*time.Millisecond) {
				t.Errorf("a second after it was set it is off by %v, want %v", got, tt.other)
			}
		})
	}
}

// What nobody repeats is forgotten, and stamps that cannot be tell nothing.
func TestClockForgets(t *testing.T) {
	var c Clock
	far{name: 1, ahead: 30 * time.Millisecond, out: time.Millisecond, back: time.Millisecond}.ask(&c, midnight, 0)
	if got, ok := c.Offset(midnight.Add(time.Second)); !ok || got != 30*time.Millisecond {
		t.Errorf("offset %v, %v, want 30 ms", got, ok)
	}
	if got, ok := c.Offset(midnight.Add(2 * time.Minute)); ok {
		t.Errorf("offset %v after two minutes, want none", got)
	}
	c = Clock{}
	for _, stamps := range [][4]int64{{0, 5, 5, 9}, {1, 0, 5, 9}, {1, 5, 0, 9}, {9, 5, 5, 1}, {1, 5, 4, 9}, {1, 5, 20, 9}} {
		c.Heard(1, 1, stamps[0], stamps[1], stamps[2], stamps[3])
		if _, ok := c.Offset(time.Unix(0, 10)); ok {
			t.Errorf("stamps %v told something", stamps)
		}
	}
}

// Whatever others claim, nothing overflows.
func TestClockWithAnything(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var c Clock
	for i := range 10_000 {
		c.Heard(rnd.Uint64N(3), rnd.Uint64N(200), int64(rnd.Uint64()), int64(rnd.Uint64()), int64(rnd.Uint64()), int64(rnd.Uint64()))
		c.Turn(midnight.Add(time.Duration(i) * time.Millisecond))
	}
}

// Names are others' to invent: so many are remembered, and who was heard of least
// recently is forgotten first. All stamps here are believed: of random ones hardly any is
// kept, and they would show no bound.
func TestClockRemembersSoMany(t *testing.T) {
	var c Clock
	ask := func(name uint64) {
		far{name: name, out: time.Millisecond, back: time.Millisecond}.ask(&c, midnight, 0)
	}
	const steady, first = 1, 1000
	for i := range uint64(3 * othersKept) {
		ask(first + i)
		ask(steady)
		if want := min(int(i)+2, othersKept); len(c.others) != want {
			t.Fatalf("%d others are remembered after %d were heard of, want %d", len(c.others), i+2, want)
		}
	}
	kept := map[uint64]bool{}
	for _, o := range c.others {
		kept[o.name] = true
	}
	want := map[uint64]bool{steady: true}
	for i := range uint64(othersKept - 1) {
		want[first+3*othersKept-1-i] = true
	}
	if !maps.Equal(kept, want) {
		t.Errorf("remembered are %v, want the last ones and the one that answers always", kept)
	}
}

// Who answers no more while others do is not asked for a minute: an aggregator
// that gave its lanes away may have been wrong, and be corrected since.
func TestClockForgetsWhoAnswersNoMore(t *testing.T) {
	gone := far{name: 1, ahead: 100 * time.Millisecond, out: time.Millisecond, back: time.Millisecond}
	stays := far{name: 2, out: time.Millisecond, back: time.Millisecond}
	var c Clock
	run(&c, midnight, 5*time.Second, 0, gone)
	if got := run(&c, midnight.Add(5*time.Second), 30*time.Second, 0, stays); distance(int64(got), 0) > int64(time.Millisecond) {
		t.Errorf("corrected by %v half a minute after the one that is off fell silent, want 0", got)
	}
	if got, ok := c.Offset(midnight.Add(35 * time.Second)); !ok || distance(int64(got), 0) > int64(time.Millisecond) {
		t.Errorf("the others are ahead by %v, %v, want 0", got, ok)
	}
}

// Of the last sixteen exchanges the one with the shortest round trip tells: one quick
// answer among slow ones, whose ways there and back differ, is enough.
func TestClockTakesTheBestOfSixteen(t *testing.T) {
	const ms = time.Millisecond
	var c Clock
	quick, slow := far{1, 30 * ms, ms, ms}, far{1, 30 * ms, 150 * ms, 10 * ms}
	now := midnight
	says := func() time.Duration {
		now = now.Add(100 * ms)
		offset, _ := c.Offset(now)
		return offset
	}
	quick.ask(&c, now, 0)
	for i := range 15 {
		slow.ask(&c, now, 0)
		if got := says(); got != 30*ms {
			t.Fatalf("after %d slow exchanges the offset is %v, want 30ms, as the quick one told", i+1, got)
		}
	}
	if slow.ask(&c, now, 0); says() != 100*ms {
		t.Errorf("after 16 slow exchanges the offset is %v, want their 100ms", says())
	}
}
