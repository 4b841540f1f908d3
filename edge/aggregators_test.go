package edge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// scripted is an aggregator that answers as it is told, and keeps what it hears.
type scripted struct {
	epoch uint64
	store uint64 // 0: it does not say which
	other bool   // the lane is another's
	away  bool   // its store
	full  bool   // it takes no key that it has not
	has   map[deltasync.Key]uint64
	told  int // deltas with counts
}

// answer is what it says to a frame.
func (a *scripted) answer(t *testing.T, o Outgoing) []byte {
	t.Helper()
	var up deltasync.Up
	if err := up.UnmarshalBinary(o.Payload); err != nil {
		t.Fatal(err)
	}
	down := deltasync.Down{Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: a.epoch, LiveRegions: 1}
	down.Store = a.store
	switch {
	case a.away:
		down.Status = deltasync.StatusStoreDown
	case a.other:
		down.Status = deltasync.StatusNotOwner
	}
	for _, sec := range up.Sections {
		for _, d := range sec.Deltas {
			down.Totals = append(down.Totals, deltasync.Totals{})
			sum := uint64(0)
			for _, c := range d.Cells {
				sum += c.Charges
			}
			if d.Tells() {
				a.told++
			}
			if _, known := a.has[d.Key]; a.full && !known {
				down.Refused = append(down.Refused, uint32(len(down.Totals)-1))
				if down.Status == deltasync.StatusOK {
					down.Status = deltasync.StatusOverloaded
				}
				continue
			}
			a.has[d.Key] = max(a.has[d.Key], sum)
		}
	}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// served is an edge whose region is served by scripted aggregators.
type served struct {
	t       *testing.T
	n       *Node
	now     time.Time
	random  *rand.Rand
	serving []*scripted // who may be asked
}

// serve is an edge that knows so many aggregators; all of them serve.
func serve(t *testing.T, lanes, aggregators int) *served {
	t.Helper()
	n, err := New(Config{Region: "eu", Pop: "fra", Name: "e1", Secret: testSecret, Lanes: lanes, Incarnation: uint64(start.UnixMilli())})
	if err != nil {
		t.Fatal(err)
	}
	n.SetRules(compile(t, perUser(limit.RateSpec{Limit: 100, Per: 24 * time.Hour})))
	s := &served{t: t, n: n, now: start, random: rand.New(rand.NewPCG(1, 2))}
	for i := range aggregators {
		s.serving = append(s.serving, &scripted{epoch: uint64(i + 1), has: map[deltasync.Key]uint64{}})
	}
	for _, a := range s.serving { // each is new, and has everything sent again
		check(n, s.now, "first")
		s.flush(a)
		s.pass(5*time.Second, "")
	}
	return s
}

// flush has one aggregator answer all that is sent now.
func (s *served) flush(a *scripted) {
	s.t.Helper()
	for _, o := range s.n.Flush(s.now) {
		if err := s.n.Receive(s.now, o.Lane, a.answer(s.t, o)); err != nil {
			s.t.Fatalf("Receive: %v", err)
		}
	}
}

// pass lets time go by, any of those that serve answering each flush, and a
// request of a busy user, if there is one, in each.
func (s *served) pass(d time.Duration, busy string) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(100 * time.Millisecond)
		if busy != "" {
			check(s.n, s.now, busy)
		}
		s.n.Tick(s.now)
		s.flush(s.serving[s.random.IntN(len(s.serving))])
	}
}

// die takes an aggregator away.
func (s *served) die(a *scripted) {
	var left []*scripted
	for _, other := range s.serving {
		if other != a {
			left = append(left, other)
		}
	}
	s.serving = left
}

// hears says that an aggregator has a user's count.
func (s *served) hears(a *scripted, user string) bool { return a.has[keyOf(s.n, user)] > 0 }

// lane is what the edge knows of who serves a user's lane.
func (s *served) lane(user string) *service {
	return &s.n.lanes[keyOf(s.n, user).Lane(s.n.cfg.Lanes)]
}

// userOf is one whose counter is of the lane.
func (s *served) userOf(lane int) string {
	for i := 0; ; i++ {
		if user := fmt.Sprint("of lane ", lane, " ", i); keyOf(s.n, user).Lane(s.n.cfg.Lanes) == lane {
			return user
		}
	}
}

// What an aggregator had in its memory alone, or had not told the other regions
// yet, is told to the next one when it is gone; whoever is left, and whatever
// else the edge has to say.
func TestCountsOfADeadAggregatorAreToldToTheNext(t *testing.T) {
	for _, tt := range []struct {
		name         string
		first, other bool // their stores are away
		busy         bool // another lane is
	}{
		{"without its store", true, false, false},
		{"without its store, the edge busy with others", true, false, true},
		{"without a store, nor has the other", true, true, true},
		{"stored, and maybe not told to the other regions", false, false, false},
		{"stored, the edge busy", false, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, 2, 2)
			first, other := s.serving[0], s.serving[1]
			busy, quiet := s.userOf(0), s.userOf(1)
			s.pass(time.Second, busy)
			first.away, other.away = tt.first, tt.other
			check(s.n, s.now, quiet)
			s.flush(first)
			if !s.hears(first, quiet) {
				t.Fatal("the first was not told")
			}
			s.die(first)
			if !tt.busy {
				busy = ""
			}
			told := 0
			for range 20 {
				s.pass(time.Second, busy)
				if s.hears(other, quiet) {
					break
				}
				told++
			}
			if told > 6 {
				t.Errorf("%d s after it died the other has not heard", told)
			}
			s.pass(15*time.Second, busy) // it is found to be gone, besides
			other.told = 0
			s.pass(30*time.Second, "")
			if !tt.other && other.told > 0 {
				t.Errorf("half a minute of rest, and %d deltas are told again", other.told)
			}
		})
	}
}

// Whoever is left without a store while others serve is not forgotten: what it
// took is told to them, less and less often.
func TestAggregatorCutOffFromTheStore(t *testing.T) {
	alone.Mark(t)
	s := serve(t, 8, 2)
	cut, other := s.serving[0], s.serving[1]
	cut.away = true
	const users = 500
	for i := range users {
		check(s.n, s.now, fmt.Sprint("u", i))
	}
	s.flush(cut)
	s.pass(20*time.Second, "")
	missing := 0
	for i := range users {
		if !s.hears(other, fmt.Sprint("u", i)) {
			missing++
		}
	}
	if missing > users/50 { // half of it comes back to the same one each time
		t.Errorf("%d of %d counts are in the memory of one alone, 20 s after", missing, users)
	}
	cut.told, other.told = 0, 0
	s.pass(time.Minute, "")
	if told := cut.told + other.told; told > 0 {
		t.Errorf("%d deltas in a minute of rest for %d keys that the other has", told, users)
	}
	for minute := range 3 { // and so it is with what is new, however long it lasts
		for i := range 10 {
			check(s.n, s.now, fmt.Sprint("minute ", minute, " ", i))
			s.pass(6*time.Second, "")
			if i > 2 && !s.hears(other, fmt.Sprint("minute ", minute, " ", i-3)) {
				t.Errorf("minute %d: a count is not told to the other after 18 s", minute)
			}
		}
	}
	if told := cut.told + other.told; told > 5*30 {
		t.Errorf("%d deltas for 30 changes", told)
	}
	cut.away = false
	s.pass(20*time.Second, "")
	cut.told, other.told = 0, 0
	s.pass(time.Minute, "")
	if told := cut.told + other.told; told > 0 {
		t.Errorf("%d deltas in a minute of rest with the store back", told)
	}
}

// While nobody has a store, nobody is told twice: not for as long as it lasts,
// however many they are.
func TestOutageForAll(t *testing.T) {
	alone.Mark(t)
	s := serve(t, 2, 3)
	for _, a := range s.serving {
		a.away, a.told = true, 0
	}
	const users = 600
	for i := range users {
		check(s.n, s.now, fmt.Sprint("u", i))
		s.pass(time.Second, "")
	}
	told := 0
	for _, a := range s.serving {
		told += a.told
	}
	if told > users+users/10 {
		t.Errorf("%d deltas for %d changes while the store is away", told, users)
	}
	for _, a := range s.serving {
		a.away = false
	}
	s.pass(20*time.Second, "")
	for _, a := range s.serving {
		a.told = 0
	}
	s.pass(time.Minute, "")
	for _, a := range s.serving {
		if a.told > 0 {
			t.Errorf("aggregator %d is told %d deltas in a minute of rest", a.epoch, a.told)
		}
	}
}

// An outage that the only aggregator lives through costs no resend: it writes
// what it has. Neither does one that comes and goes.
func TestOutageOfTheStore(t *testing.T) {
	for _, flapping := range []bool{false, true} {
		s := serve(t, 2, 1)
		before := s.n.stats.resends.Load()
		for i := range 300 {
			s.serving[0].away = !flapping && i < 200 || flapping && i%2 == 0
			check(s.n, s.now, fmt.Sprint("u", i))
			s.pass(100*time.Millisecond, "")
		}
		if got := s.n.stats.resends.Load() - before; got != 0 {
			t.Errorf("flapping %v: %d resends", flapping, got)
		}
	}
}

// An answer to a frame that left before the outage was heard of says nothing
// of what was taken since.
func TestLateAnswerDoesNotHideTheOutage(t *testing.T) {
	s := serve(t, 1, 2)
	first, other := s.serving[0], s.serving[1]
	check(s.n, s.now, "before")
	early := s.n.Flush(s.now)
	answer := first.answer(t, early[0])
	s.now = s.now.Add(20 * time.Millisecond)
	check(s.n, s.now, "meanwhile")
	first.away = true
	s.flush(first)
	if err := s.n.Receive(s.now, 0, answer); err != nil {
		t.Fatal(err)
	}
	s.now = s.now.Add(5 * time.Second) // longer than what is told again of anybody who is gone
	s.flush(first)
	first.has = nil
	s.die(first)
	s.pass(15*time.Second, "busy")
	if !s.hears(other, "meanwhile") {
		t.Error("what was taken in the outage is not told to the other")
	}
}

// To the nanosecond: who said that he has no store has all stored by his answer to a frame
// that left then or later.
func TestAnswerToAFrameAfterTheOutage(t *testing.T) {
	s := serve(t, 1, 1)
	l, said := &s.n.lanes[0], s.now.UnixNano()
	hear := func(status deltasync.Status, left int64) bool {
		s.n.mu.Lock()
		defer s.n.mu.Unlock()
		s.n.heardFrom(said, 0, &deltasync.Down{StoreEpoch: 1, Status: status}, left)
		return l.aggregators[0].stored
	}
	l.unmet = 1
	for _, tt := range []struct {
		status deltasync.Status
		left   int64
		want   bool
	}{
		{deltasync.StatusStoreDown, said - 9, false}, {deltasync.StatusOK, said - 1, false}, {deltasync.StatusOK, said, true},
	} {
		if got := hear(tt.status, tt.left); got != tt.want {
			t.Errorf("status %v to a frame of %d ns after it was said: stored %v, want %v", tt.status, tt.left-said, got, tt.want)
		}
	}
	if l.unmet != 0 {
		t.Errorf("%d shards are counted as swept since, want a new count", l.unmet)
	}
}

// Nor does an answer to what was told before the last charge: that may have gone
// to somebody without a store meanwhile.
func TestAnswerCoversWhatItWasAbout(t *testing.T) {
	s := serve(t, 1, 2)
	cut, other := s.serving[0], s.serving[1]
	cut.away = true
	check(s.n, s.now, "u")
	s.flush(cut)
	s.now = s.now.Add(time.Second)
	check(s.n, s.now, "busy")
	s.flush(other) // it has a store
	for range 10 {
		s.n.Tick(s.now)
	}
	again := s.n.Flush(s.now)
	if len(again) != 1 {
		t.Fatalf("%d frames with what the cut one took, want one", len(again))
	}
	slow := other.answer(t, again[0])
	s.now = s.now.Add(20 * time.Millisecond)
	check(s.n, s.now, "u")
	s.flush(cut)
	if err := s.n.Receive(s.now, 0, slow); err != nil {
		t.Fatal(err)
	}
	s.serving = []*scripted{other}
	s.pass(1500*time.Millisecond, "") // before the cut one counts as gone
	if got := other.has[keyOf(s.n, "u")]; got != 2 {
		t.Errorf("the other has %d of 2 charges", got)
	}
}

// An outage that ended with another epoch is no reason to tell everything twice
// in the next one.
func TestOutageAfterARestartOfRedis(t *testing.T) {
	s := serve(t, 2, 1)
	only := s.serving[0]
	only.away = true
	check(s.n, s.now, "u")
	s.pass(time.Second, "")
	only.epoch, only.away = 100, false // Redis is another
	s.pass(4*time.Minute, "")
	only.away, only.told = true, 0
	for i := range 100 {
		check(s.n, s.now, fmt.Sprint("u", i))
		s.pass(100*time.Millisecond, "")
	}
	only.away = false
	s.pass(10*time.Second, "")
	if only.told > 100 {
		t.Errorf("%d deltas for 100 changes", only.told)
	}
}

// However many aggregators answer in turn, none is new each time, nor gone.
func TestManyAggregatorsAnswerInTurn(t *testing.T) {
	s := serve(t, 2, 20)
	s.pass(time.Minute, "busy") // they answered one after the other so far: some were gone
	before := s.n.stats.resends.Load()
	s.pass(5*time.Minute, "busy")
	if got := s.n.stats.resends.Load() - before; got > 3 { // chance leaves one out for long, now and then
		t.Errorf("%d resends in five quiet minutes", got)
	}
	if got := len(s.lane("busy").aggregators); got != 20 {
		t.Errorf("%d aggregators are known, want 20", got)
	}
}

// Whoever was gone and comes back may miss twice as many turns, up to a bound, and half as
// many again when he has been there for a while.
func TestWhoComesBackMayMissMore(t *testing.T) {
	s := serve(t, 1, 1)
	const back, other = 11, 12
	answers := func(epoch uint64) {
		s.n.mu.Lock()
		defer s.n.mu.Unlock()
		at := s.now.UnixNano()
		s.n.heardFrom(at, 0, &deltasync.Down{StoreEpoch: epoch, Status: deltasync.StatusOK}, at)
	}
	gone := func() bool {
		return slices.ContainsFunc(s.n.lanes[0].aggregators, func(a aggregator) bool { return a.epoch == back && a.gone })
	}
	s.now = s.now.Add(2 * forgetful) // the first is forgotten
	for i, want := range []int{2 * 14, 2 * 28, 2 * 56, 2 * 112, 2 * 224, 2 * 256, 2 * 256, 2 * 128} {
		answers(back)
		if want == 2*128 { // he is there for a minute, though seldom asked
			for _, wait := range []time.Duration{time.Second, forgetful, time.Second} {
				s.now = s.now.Add(wait)
				answers(back)
			}
		}
		missed := 0
		for ; !gone() && missed < 1000; missed++ {
			s.now = s.now.Add(50 * time.Millisecond)
			answers(other)
		}
		if missed != want {
			t.Errorf("time %d: he is gone after %d turns of two, want %d", i, missed, want)
		}
	}
}

// An answer that one had no store, which comes as the clock was set back, does not have
// him without it until the clock is there again.
func TestOutageOfAClockThatWasSetBack(t *testing.T) {
	s := serve(t, 1, 1)
	a := s.serving[0]
	check(s.n, s.now, "u")
	a.away = true
	s.flush(a)
	s.now, a.away = s.now.Add(-time.Hour), false
	check(s.n, s.now, "u")
	s.flush(a)
	if got := s.n.lanes[0].aggregators; len(got) != 1 || !got[0].stored {
		t.Errorf("%+v, want its counts stored", got)
	}
}

// The list of aggregators has a bound; who is on it longest leaves first.
func TestAggregatorsAreForgotten(t *testing.T) {
	s := serve(t, 1, 1)
	for i := range uint64(2 * deltasync.KnownEpochs) {
		s.serving[0].epoch = 1000 + i
		check(s.n, s.now, "u")
		s.pass(100*time.Millisecond, "")
	}
	list := s.n.lanes[0].aggregators
	if len(list) != deltasync.KnownEpochs || list[len(list)-1].epoch != 1000+2*deltasync.KnownEpochs-1 {
		t.Errorf("%d aggregators are known, the last %d", len(list), list[len(list)-1].epoch)
	}
}
