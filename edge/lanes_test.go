package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// owned lets time go by with each lane served by its owner, who answers 10 ms
// later; nil: by nobody. A request of a busy user, if there is one, goes first.
func (s *served) owned(d time.Duration, busy string, owners ...*scripted) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(90 * time.Millisecond)
		if busy != "" {
			check(s.n, s.now, busy)
		}
		s.n.Tick(s.now)
		out := s.n.Flush(s.now)
		s.now = s.now.Add(10 * time.Millisecond)
		for _, o := range out {
			if owner := owners[o.Lane]; owner == nil {
				s.n.Lost(s.now, o.Lane, o.Seq)
			} else if err := s.n.Receive(s.now, o.Lane, owner.answer(s.t, o)); err != nil {
				s.t.Fatalf("Receive: %v", err)
			}
		}
	}
}

// serveLanes is an edge with two lanes and a user of each, both told to their
// owners.
func serveLanes(t *testing.T) (s *served, first, second string) {
	t.Helper()
	s = serve(t, 2, 0)
	first, second = s.userOf(0), s.userOf(1)
	return s, first, second
}

func newScripted(epoch, store uint64) *scripted {
	return &scripted{epoch: epoch, store: store, has: map[deltasync.Key]uint64{}}
}

// Who owns a lane in which nothing happens is not missed, however much there is
// to tell in others.
func TestIdleOwnerIsNotMissed(t *testing.T) {
	s, first, second := serveLanes(t)
	a, b := newScripted(1, 7), newScripted(2, 7)
	check(s.n, s.now, second)
	s.owned(10*time.Second, first, a, b)
	before, frames := s.n.stats.resends.Load(), s.n.stats.framesSent.Load()
	s.owned(5*time.Minute, first, a, b)
	if got := s.n.stats.resends.Load() - before; got != 0 {
		t.Errorf("%d resends", got)
	}
	if got := s.n.stats.framesSent.Load() - frames; got > 3000+3000/20 { // one each 100 ms in the busy lane
		t.Errorf("%d frames, want about one an interval: the idle lane may be silent", got)
	}
}

// A lane that changes hands is told again to who has another store, and no other
// lane is. Who has the store of the one before is told what that one took last.
func TestTakeoverTellsWhatIsNeeded(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after uint64 // stores
		old, last     bool   // what is told again
	}{
		"the same store":      {7, 7, false, true},
		"another store":       {7, 8, true, true},
		"who does not say":    {0, 0, true, true},
		"who has not said so": {0, 7, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, first, second := serveLanes(t)
			a, b, next := newScripted(1, tt.before), newScripted(2, tt.before), newScripted(3, tt.after)
			check(s.n, s.now, first)
			check(s.n, s.now, second)
			s.owned(4*time.Second, "", a, b)
			last := s.userOf(1) + " too"
			for i := 0; keyOf(s.n, last).Lane(2) != 1; i++ {
				last = fmt.Sprint("last ", i)
			}
			check(s.n, s.now, last)
			s.owned(300*time.Millisecond, "", a, b)
			if !s.hears(a, first) || !s.hears(b, second) || !s.hears(b, last) {
				t.Fatal("the owners were not told")
			}
			a.told = 0
			s.owned(700*time.Millisecond, "", a, nil)
			s.owned(7*time.Second, "", a, next)
			if got := s.hears(next, second); got != tt.old {
				t.Errorf("what was told long ago is told again: %v, want %v", got, tt.old)
			}
			if got := s.hears(next, last); got != tt.last {
				t.Errorf("what was told last is told again: %v, want %v", got, tt.last)
			}
			if a.told > 0 || s.hears(next, first) {
				t.Errorf("%d counts of the other lane are told again", a.told)
			}
			told := next.told
			if s.owned(time.Minute, "", a, next); next.told > told {
				t.Errorf("in a minute of rest %d counts are told again", next.told-told)
			}
		})
	}
}

// In a lane that falls silent after it was told something, who took it is looked
// after until he has told the other regions: if he dies before, the next one is
// told.
func TestQuietLaneFindsItsOwnerDead(t *testing.T) {
	for _, lives := range []time.Duration{100 * time.Millisecond, time.Second, 1900 * time.Millisecond} {
		s, first, second := serveLanes(t)
		a, b, next := newScripted(1, 7), newScripted(2, 7), newScripted(3, 7)
		s.owned(time.Second, first, a, b)
		check(s.n, s.now, second)
		s.owned(lives, first, a, b)
		if !s.hears(b, second) {
			t.Fatal("the owner was not told")
		}
		s.owned(700*time.Millisecond, first, a, nil)
		if s.owned(6*time.Second, first, a, next); !s.hears(next, second) {
			t.Errorf("%v after it was told the owner died: 6 s later the next one has not heard", lives)
		}
	}
}

// Somebody who answers that the lane is another's is nobody to reckon with.
func TestStrangerIsNoOwner(t *testing.T) {
	s, first, second := serveLanes(t)
	a, b, stranger := newScripted(1, 7), newScripted(2, 7), newScripted(3, 8)
	stranger.other = true
	check(s.n, s.now, second)
	s.owned(2*time.Second, first, a, b)
	before := s.n.stats.resends.Load()
	s.owned(200*time.Millisecond, first, stranger, b)
	if s.owned(5*time.Second, first, a, b); s.n.stats.resends.Load() != before {
		t.Errorf("%d resends", s.n.stats.resends.Load()-before)
	}
	b.told = 0
	// Nor is his store the lane's: who comes next with it may lack what was told.
	s.owned(200*time.Millisecond, second, a, stranger)
	next := newScripted(4, 8)
	if s.owned(3*time.Second, "", a, next); !s.hears(next, second) {
		t.Error("the next owner has another store, and is not told")
	}
}

// Who has the store of the one before has all that it was told.
func TestSameStoreIsToldNothingAgain(t *testing.T) {
	s, first, _ := serveLanes(t)
	a := newScripted(1, 7)
	check(s.n, s.now, first)
	s.owned(5*time.Second, "", a, a)
	before := s.n.stats.resends.Load()
	for i, want := range []uint64{0, 0, 1} {
		b := newScripted(uint64(2+i), 7+want)
		check(s.n, s.now, first)
		s.owned(200*time.Millisecond, "", b, a)
		if got := s.n.stats.resends.Load() - before; got != want {
			t.Errorf("aggregator %d, with store %d: %d resends, want %d", b.epoch, b.store, got, want)
		}
	}
}

// A lane without an owner is tried a few times a second until one has taken it
// over, and seldom when nobody does.
func TestLaneWithoutOwner(t *testing.T) {
	s, first, _ := serveLanes(t)
	s.owned(time.Second, first, newScripted(1, 7), nil)
	count := func(d time.Duration) uint64 {
		before := s.n.stats.framesLost.Load()
		s.owned(d, first, nil, nil)
		return s.n.stats.framesLost.Load() - before
	}
	if got := count(2 * time.Second); got < 6 || got > 12 {
		t.Errorf("%d tries in two seconds", got)
	}
	count(2 * time.Second)
	if got := count(10 * time.Second); got > 12 {
		t.Errorf("%d tries in ten seconds, later", got)
	}
}

// Where the budget is too small for all lanes each has its turn: a lane that is always
// asked first, and always has something to tell, would leave nothing for the others.
func TestLanesTakeTurnsInABudget(t *testing.T) {
	const lanes, seconds = 4, 30
	s := serve(t, lanes, 0)
	// Of so short a window nothing waits for its second.
	s.n.SetRules(compile(t, perUser(limit.RateSpec{Limit: 1_000_000, Per: 10 * time.Second})))
	s.n.budget = deltasync.NewBudget(1000) // a frame takes about as much, and its reply
	a := newScripted(1, 7)
	var told [lanes]int
	for range seconds * 10 {
		s.now = s.now.Add(100 * time.Millisecond)
		for i := range 20 * lanes {
			check(s.n, s.now, fmt.Sprint("u", i))
		}
		s.n.Tick(s.now)
		for _, o := range s.n.Flush(s.now) {
			before := a.told
			if err := s.n.Receive(s.now, o.Lane, a.answer(t, o)); err != nil {
				t.Fatal(err)
			}
			if a.told > before {
				told[o.Lane]++
			}
		}
	}
	frames := 0
	for _, n := range told {
		frames += n
	}
	if frames > lanes*10*seconds/4 {
		t.Fatalf("%d frames with counts in %d s, by lane %v: the budget was enough for all", frames, seconds, told)
	}
	for lane, n := range told {
		if n < frames/lanes*3/4 || n == 0 {
			t.Errorf("%d of %d frames with counts are of lane %d, want as many as of each: %v", n, frames, lane, told)
		}
	}
}
