package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// cut has nobody answer for a while.
func (s *served) cut(d time.Duration) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(100 * time.Millisecond)
		s.n.Tick(s.now)
		for _, o := range s.n.Flush(s.now) {
			s.n.Lost(s.now, o.Lane, o.Seq)
		}
	}
}

// What an aggregator took into memory alone is told to the next, however long
// the edge heard nobody after the one died.
func TestWhatTheDeadTookIsNotForgotten(t *testing.T) {
	alone.Mark(t)
	for _, cut := range []time.Duration{20 * time.Second, 2 * forgetful, 2*forgetful + 5*time.Second, time.Hour} {
		s := serve(t, 2, 2)
		a, b := s.serving[0], s.serving[1]
		a.away, b.away = true, true
		check(s.n, s.now, "K")
		s.flush(a)
		s.pass(10*time.Second, "")
		if !s.hears(a, "K") || s.hears(b, "K") {
			t.Fatal("the aggregator that dies is not the only one that was told")
		}
		s.die(a)
		s.cut(cut)
		b.away = false
		if s.pass(3*time.Second, ""); !s.hears(b, "K") {
			t.Errorf("after a cut of %v the aggregator that is left does not hear of what the dead one took", cut)
		}
		told := b.told
		if s.pass(2*forgetful, ""); b.told > told+2 {
			t.Errorf("after a cut of %v: told %d times in two quiet minutes", cut, b.told-told)
		}
		// The dead one is settled: in the next outage nobody is told twice.
		b.away = true
		for i := range 50 {
			check(s.n, s.now, fmt.Sprint("later", i))
		}
		s.pass(3*time.Second, "")
		b.away = false
		told = b.told
		if s.pass(10*time.Second, ""); b.told > told+2 {
			t.Errorf("after a cut of %v and another outage: %d told again", cut, b.told-told)
		}
	}
}

// Who is gone without a store is settled when two rounds, one after the other,
// met nothing that he alone may have.
func TestSettle(t *testing.T) {
	now := start.UnixNano()
	for name, test := range map[string]struct {
		by    []remedy // of each round
		marks []bool   // met in it
		heard time.Duration
		want  bool
	}{
		"two rounds":                {[]remedy{tell, tell}, []bool{false, false}, 2 * forgetful, true},
		"one":                       {[]remedy{tell}, []bool{false}, 2 * forgetful, false},
		"marks in the second":       {[]remedy{tell, tell}, []bool{false, true}, 2 * forgetful, false},
		"marks in the first":        {[]remedy{tell, tell}, []bool{true, false}, 2 * forgetful, false},
		"nobody to tell in between": {[]remedy{tell, wait, tell}, []bool{false, false, false}, 2 * forgetful, false},
		"he may be back":            {[]remedy{tell, tell}, []bool{false, false}, forgetful, false},
	} {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 5, Per: time.Minute}))
		l := &n.lanes[0]
		l.aggregators = []aggregator{{epoch: 1, heard: now - int64(test.heard)}}
		for i, by := range test.by {
			l.settle(now, shards, by, test.marks[i])
		}
		if got := l.aggregators[0].stored; got != test.want {
			t.Errorf("%s: settled %v, want %v", name, got, test.want)
		}
	}
}

// Who fell silent now and then, and was there for long since, is missed as soon
// as others are.
func TestSilenceIsForgiven(t *testing.T) {
	s := serve(t, 2, 2)
	a, b := s.serving[0], s.serving[1]
	for range 4 {
		s.serving = []*scripted{b}
		s.pass(30*time.Second, "busy")
		s.serving = []*scripted{a, b}
		s.pass(10*time.Second, "busy")
	}
	if list := s.lane("busy").aggregators; list[0].turns+list[1].turns < 4*silentTurns {
		t.Fatalf("aggregators that come and go: %+v", list)
	}
	s.pass(10*forgetful, "busy")
	check(s.n, s.now, "K")
	s.flush(a)
	s.serving = []*scripted{b}
	if s.pass(5*time.Second, ""); !s.hears(b, "K") {
		t.Error("5 s after its death an aggregator is not missed")
	}
}

// What a dead aggregator had in memory alone is told to a full one as seldom as
// all that it refuses.
func TestAFullSurvivorIsNotSwamped(t *testing.T) {
	s := serve(t, 1, 2)
	a, b := s.serving[0], s.serving[1]
	a.away = true
	const keys = 300
	for i := range keys {
		check(s.n, s.now, fmt.Sprint("K", i))
	}
	s.flush(a)
	b.full = true
	s.die(a)
	s.pass(2*time.Minute, "")
	told := b.told
	if s.pass(time.Minute, ""); b.told-told > 8*keys || b.told-told < 3*keys {
		t.Errorf("%d keys were told %d times in a minute, want about every 16 s", keys, b.told-told)
	}
	// What is refused for the first time is told again at once: another may take it.
	check(s.n, s.now, "new")
	s.pass(200*time.Millisecond, "")
	b.full = false
	if s.pass(2500*time.Millisecond, ""); !s.hears(b, "new") {
		t.Error("a new key is not told again in 2.5 s")
	}
	if s.pass(18*time.Second, ""); !s.hears(b, "K1") || !s.hears(b, fmt.Sprint("K", keys-1)) {
		t.Error("with room again it does not hear of all in 18 s")
	}
}

// An outage in which nothing was refused makes nobody impatient: the first
// refusal after it is told again in a second or two.
func TestAnOutageIsNoRefusal(t *testing.T) {
	s := serve(t, 1, 1)
	a := s.serving[0]
	a.away = true
	s.pass(time.Minute, "busy")
	a.away = false
	s.pass(time.Second, "")
	a.full = true
	check(s.n, s.now, "K")
	s.pass(2500*time.Millisecond, "")
	a.full = false
	if s.pass(4*time.Second, ""); !s.hears(a, "K") {
		t.Error("what was refused twice is not told again in 4 s")
	}
}
