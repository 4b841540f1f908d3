package storetest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/sync"
)

// RightsSubject is an empty log of rights, which began not long ago, and the hands that
// the suite needs on it.
type RightsSubject struct {
	Log escrow.Log
	// Advance returns when the log's clock is d further.
	Advance func(d time.Duration)
	// Wipe makes the log lose everything, as a fault would.
	Wipe func()
}

// Rights runs the suite that every escrow.Log passes; open is called once for each test.
func Rights(t *testing.T, open func(t *testing.T) RightsSubject) {
	for _, tt := range []struct {
		name string
		run  func(*rights)
	}{
		{"who takes a lane fences off who had it", testTakeFences},
		{"a lane that nobody took", testNotTaken},
		{"age", testAge},
		{"a wiped log is new, and nobody's", testRightsWiped},
		{"which regions there are, and were", testRegionsNoted},
		{"when a lane was disowned last", testDisowned},
		{"absent keys", testRightsAbsent},
		{"what is committed is there for the next", testCommitStays},
		{"versions that are not above", testOldVersions},
		{"deposits without holdings are removed", testRemoved},
		{"lanes are apart", testLanesApart},
		{"many deposits", testManyDeposits},
		{"nothing is shared with the caller", testRightsNotShared},
		{"a context that has ended", testRightsEnded},
		{"writers, and one that takes the lane", testRightsConcurrent},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(&rights{T: t, RightsSubject: open(t)}) })
	}
}

// rights adds the words in which the tests are written.
type rights struct {
	*testing.T
	RightsSubject
}

func (s *rights) take(lane int, token uint64, regions ...string) escrow.Origin {
	s.Helper()
	o, err := s.Log.Take(s.Context(), lane, token, regions)
	if err != nil || o.Age < 0 {
		s.Fatalf("Take(%d, %d) = %+v, %v, want an age", lane, token, o, err)
	}
	return o
}

func (s *rights) commit(lane int, token uint64, deposits ...escrow.Deposit) {
	s.Helper()
	if err := s.Log.Commit(s.Context(), lane, token, deposits); err != nil {
		s.Fatalf("Commit(%d, %d, %d deposits): %v", lane, token, len(deposits), err)
	}
}

// holds checks that these deposits are there, just so.
func (s *rights) holds(lane int, token uint64, want ...escrow.Deposit) {
	s.Helper()
	keys := make([]deltasync.Key, len(want))
	for i := range want {
		keys[i] = want[i].Key
	}
	got, err := s.Log.Load(s.Context(), lane, token, keys)
	if err != nil || len(got) != len(want) {
		s.Fatalf("Load(%d, %d, %d keys) = %d deposits, %v", lane, token, len(keys), len(got), err)
	}
	for i := range want {
		if err := sameDeposit(got[i], want[i]); err != nil {
			s.Errorf("deposit %d: %v", i, err)
		}
	}
}

// sameDeposit says whether both are the same; one without holdings has no version that
// anybody could rely on.
func sameDeposit(got, want escrow.Deposit) error {
	if got.Key != want.Key || len(got.Holdings) != len(want.Holdings) || len(want.Holdings) > 0 && !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%+v, want %+v", got, want)
	}
	return nil
}

// fenced checks that a token may neither read nor write a lane, as another has it.
func (s *rights) fenced(lane int, token uint64) {
	s.Helper()
	s.refused(lane, token, false)
}

// lost checks that it may not as nobody has the lane.
func (s *rights) lost(lane int, token uint64) {
	s.Helper()
	s.refused(lane, token, true)
}

func (s *rights) refused(lane int, token uint64, lost bool) {
	s.Helper()
	_, load := s.Log.Load(s.Context(), lane, token, []deltasync.Key{1})
	_, look := s.Log.Load(s.Context(), lane, token, nil)
	commit := s.Log.Commit(s.Context(), lane, token, []escrow.Deposit{deposit(1, math.MaxUint64, 666)})
	for what, err := range map[string]error{"Load": load, "an empty Load": look, "Commit": commit, "an empty Commit": s.Log.Commit(s.Context(), lane, token, nil)} {
		if !errors.Is(err, escrow.ErrFenced) || errors.Is(err, escrow.ErrLog) || errors.Is(err, escrow.ErrLost) != lost {
			s.Errorf("%s of who does not have the lane: %v, want ErrFenced, and ErrLost: %v", what, err, lost)
		}
	}
}

// deposit is a key of which one holder was granted so much.
func deposit(key deltasync.Key, version, granted uint64) escrow.Deposit {
	return escrow.Deposit{Key: key, Version: version, Holdings: []escrow.Holding{
		{Holder: uint64(key) + 1, Granted: granted, Returned: granted / 2, Limit: 100, Lasts: time.Minute, Region: "eu"},
	}}
}

func testTakeFences(s *rights) {
	s.take(3, 71)
	s.commit(3, 71, deposit(1, 1, 5))
	s.take(3, math.MaxUint64) // a smaller token is no older one
	s.fenced(3, 71)
	s.holds(3, math.MaxUint64, deposit(1, 1, 5))
	s.take(3, 1)
	s.fenced(3, math.MaxUint64)
	s.fenced(3, 71)
	s.commit(3, 1)
	s.holds(3, 1, deposit(1, 1, 5))
}

func testNotTaken(s *rights) {
	s.lost(0, 5)
	s.take(0, 5)
	s.lost(1, 5)
}

func testAge(s *rights) {
	const step = 30 * time.Millisecond
	first := s.take(0, 1)
	s.commit(0, 1, deposit(1, 1, 5))
	s.Advance(step)
	second := s.take(0, 2)
	if second.Age < first.Age+step || second.ID != first.ID {
		s.Errorf("origin = %+v, and %v later %+v", first, step, second)
	}
	s.Advance(step)
	if third := s.take(0, 2); third.Age < second.Age+step || third.ID != first.ID { // by the same token: a Take of which nobody heard
		s.Errorf("origin = %+v, and %v later %+v", second, step, third)
	}
}

func testRightsWiped(s *rights) {
	const step = 100 * time.Millisecond
	s.take(0, 1)
	s.commit(0, 1, deposit(1, 1, 5))
	s.Advance(step)
	before := s.take(0, 2)
	s.Wipe()
	s.lost(0, 2)
	after := s.take(0, 3)
	s.fenced(0, 2)
	if after.Age >= before.Age || after.ID == before.ID {
		s.Errorf("origin = %+v, and %+v when all was lost: want it to begin anew", before, after)
	}
	s.holds(0, 3, escrow.Deposit{Key: 1})
	s.Wipe()
	if again := s.take(0, 4); again.ID == after.ID || again.ID == before.ID {
		s.Errorf("origin = %+v, %+v and %+v: want each to have its own ID", before, after, again)
	}
}

// Since when a region has been named, or not any more, is known of those that came or left since the
// lane was taken first, and of each lane by itself.
func testRegionsNoted(s *rights) {
	const step, always = 50 * time.Millisecond, 400 * 24 * time.Hour
	is := func(o escrow.Origin, name string, named bool, least, most time.Duration) {
		s.Helper()
		at := slices.IndexFunc(o.Regions, func(r escrow.NotedRegion) bool { return r.Name == name })
		if at < 0 || o.Regions[at].Named != named || o.Regions[at].Since < least || o.Regions[at].Since > most {
			s.Errorf("regions are %+v, want %s named: %v, since %v to %v", o.Regions, name, named, least, most)
		}
	}
	first := s.take(0, 1, "ap", "us")
	is(first, "ap", true, always, escrow.Forever)
	is(first, "us", true, always, escrow.Forever)
	s.Advance(step)
	left := s.take(0, 2, "us")
	is(left, "ap", false, 0, time.Minute)
	is(left, "us", true, always, escrow.Forever)
	s.Advance(step)
	came := s.take(0, 3, "us", "eu")
	is(came, "ap", false, step, time.Minute)
	is(came, "eu", true, 0, time.Minute)
	s.Advance(step)
	back := s.take(0, 4, "eu", "us", "ap")
	is(back, "ap", true, 0, step-1)
	is(back, "eu", true, step, time.Minute)
	is(back, "us", true, always, escrow.Forever)
	if o := s.take(1, 1, "us"); len(o.Regions) != 1 || len(back.Regions) != 3 {
		s.Errorf("regions of another lane are %+v, of this one %+v, want us, and three", o.Regions, back.Regions)
	}
	s.Wipe()
	is(s.take(0, 5, "ap", "us"), "ap", true, always, escrow.Forever)
}

// Of what Disown said the last counts, whoever has the lane, and of whoever had it before nothing.
func testDisowned(s *rights) {
	const step = 50 * time.Millisecond
	disown := func(token uint64, ago time.Duration, by ...string) {
		s.Helper()
		if err := s.Log.Disown(s.Context(), 0, token, ago, by); err != nil {
			s.Fatal(err)
		}
	}
	is := func(o escrow.Origin, least, most time.Duration, by ...string) {
		s.Helper()
		if o.Disowned < least || o.Disowned > most || !slices.Equal(o.Deniers, by) {
			s.Errorf("disowned %v ago by %q, want %v to %v, by %q", o.Disowned, o.Deniers, least, most, by)
		}
	}
	is(s.take(0, 1), 0, 0)
	disown(1, time.Hour, "us")
	s.Advance(step)
	is(s.take(0, 2), time.Hour+step, time.Hour+time.Minute, "us")
	disown(2, 10*time.Minute)
	disown(2, 20*time.Minute, "ap", "us-2")
	s.commit(0, 2, deposit(1, 1, 5))
	is(s.take(0, 3), 10*time.Minute, 11*time.Minute, "ap", "us-2")
	is(s.take(1, 3), 0, 0)
	if err := s.Log.Disown(s.Context(), 0, 2, 0, nil); !errors.Is(err, escrow.ErrFenced) {
		s.Errorf("Disown by who had the lane before: %v, want ErrFenced", err)
	}
	is(s.take(0, 4), 10*time.Minute, 11*time.Minute, "ap", "us-2")
	disown(4, 0)
	is(s.take(0, 5), 1, time.Minute)
	disown(5, escrow.Forever, "us") // it does not say since when: of several times the last
	is(s.take(0, 6), 1, time.Minute, "us")
}

func testRightsAbsent(s *rights) {
	s.take(0, 1)
	s.commit(0, 1, deposit(2, 1, 5))
	s.holds(0, 1, escrow.Deposit{Key: 1}, deposit(2, 1, 5), escrow.Deposit{Key: math.MaxUint64}, deposit(2, 1, 5))
	s.holds(0, 1)
}

func testCommitStays(s *rights) {
	s.take(63, 1)
	want := []escrow.Deposit{
		{Key: math.MaxUint64, Version: 1, Holdings: []escrow.Holding{
			{Holder: math.MaxUint64, Node: math.MaxUint64, Granted: math.MaxUint64, Returned: math.MaxUint64 - 1, Limit: math.MaxUint64, Lasts: 366*24*time.Hour + time.Minute, Region: strings.Repeat("z", deltasync.MaxToken)},
			{Holder: 1},
			{Holder: 2, Granted: 127, Returned: 128, Lasts: 1, Region: "a", Silent: 366 * 24 * time.Hour},
		}},
		deposit(1<<32, math.MaxUint64, 3),
		deposit(1, 1<<53+1, 3),
	}
	many := escrow.Deposit{Key: 7, Version: 9}
	for i := range 1000 {
		many.Holdings = append(many.Holdings, escrow.Holding{Holder: uint64(i) + 1, Node: uint64(i) << 40, Granted: uint64(i) << 20, Lasts: time.Second, Region: "us"})
	}
	want = append(want, many)
	s.commit(63, 1, want...)
	s.holds(63, 1, want...)
	s.take(63, 2)
	s.holds(63, 2, want...)
}

func testOldVersions(s *rights) {
	s.take(0, 1)
	for _, high := range []uint64{2, 1<<32 + 1, 1<<53 + 1, 1<<63 + 1, math.MaxUint64} {
		is := deposit(1, high, 10)
		s.commit(0, 1, is)
		s.commit(0, 1, deposit(1, high, 11), deposit(1, high-1, 12), deposit(1, 1, 13), escrow.Deposit{Key: 1, Version: high})
		s.holds(0, 1, is)
		s.take(0, 1)
		s.holds(0, 1, is)
	}
	s.commit(0, 1, deposit(2, 5, 1), deposit(2, 6, 2), deposit(2, 4, 3)) // in one call
	s.holds(0, 1, deposit(2, 6, 2))
}

func testRemoved(s *rights) {
	s.take(0, 1)
	s.commit(0, 1, deposit(1, 1, 5), deposit(2, 1, 5))
	s.commit(0, 1, escrow.Deposit{Key: 1, Version: 2}, escrow.Deposit{Key: 3, Version: 2})
	s.holds(0, 1, escrow.Deposit{Key: 1}, deposit(2, 1, 5), escrow.Deposit{Key: 3})
	s.take(0, 2)
	s.holds(0, 2, escrow.Deposit{Key: 1}, deposit(2, 1, 5))
	s.commit(0, 2, deposit(1, 3, 6))
	s.holds(0, 2, deposit(1, 3, 6))
}

func testLanesApart(s *rights) {
	for lane := range 4 {
		s.take(lane, 1) // tokens are a lane's own too
		s.commit(lane, 1, deposit(1, 1, uint64(lane)+1))
	}
	s.take(1, 2)
	s.commit(1, 2, escrow.Deposit{Key: 1, Version: 2})
	s.fenced(1, 1)
	for _, lane := range []int{0, 2, 3} {
		s.holds(lane, 1, deposit(1, 1, uint64(lane)+1))
	}
	s.holds(1, 2, escrow.Deposit{Key: 1})
}

func testManyDeposits(s *rights) {
	s.take(0, 1)
	var all []escrow.Deposit
	for i := range 2*deltasync.MaxClaims + 1 {
		all = append(all, deposit(deltasync.Key(i+1), 1, uint64(i)))
	}
	s.commit(0, 1, all...)
	s.take(0, 2)
	s.holds(0, 2, all...)
}

func testRightsNotShared(s *rights) {
	s.take(0, 1)
	given, want := deposit(1, 1, 5), deposit(1, 1, 5)
	s.commit(0, 1, given)
	given.Holdings[0].Granted = 99
	s.holds(0, 1, want)
	got, err := s.Log.Load(s.Context(), 0, 1, []deltasync.Key{1, 1})
	if err != nil {
		s.Fatal(err)
	}
	got[0].Holdings[0].Granted = 99
	if err := sameDeposit(got[1], want); err != nil {
		s.Errorf("one answer changed with the other: %v", err)
	}
	s.holds(0, 1, want)
}

func testRightsEnded(s *rights) {
	s.take(0, 1)
	s.commit(0, 1, deposit(1, 1, 5))
	_, take := s.Log.Take(cancelled(), 0, 2, nil)
	_, load := s.Log.Load(cancelled(), 0, 1, []deltasync.Key{1})
	commit := s.Log.Commit(cancelled(), 0, 1, []escrow.Deposit{deposit(1, 2, 6)})
	for what, err := range map[string]error{"Take": take, "Load": load, "Commit": commit} {
		if !errors.Is(err, escrow.ErrLog) || errors.Is(err, escrow.ErrFenced) {
			s.Errorf("%s with a context that has ended: %v, want ErrLog", what, err)
		}
	}
	s.holds(0, 1, deposit(1, 1, 5)) // and the lane was not taken
}

// testRightsConcurrent: what was acknowledged is there for whoever takes the lane, and
// nothing is acknowledged to the one before from then on.
func testRightsConcurrent(s *rights) {
	const writers, keys, takes = 4, 8, 5
	var acked [keys]atomic.Uint64 // the highest version that was acknowledged
	var version, owner atomic.Uint64
	s.take(0, 1)
	owner.Store(1)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() { // ends with stop; waited for below
			for i := w; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key, v, token := i%keys, version.Add(1), owner.Load()
				err := s.Log.Commit(s.Context(), 0, token, []escrow.Deposit{deposit(deltasync.Key(key+1), v, v)})
				switch {
				case err == nil:
					for old := acked[key].Load(); old < v && !acked[key].CompareAndSwap(old, v); {
						old = acked[key].Load()
					}
				case !errors.Is(err, escrow.ErrFenced) || owner.Load() == token && token != 0:
					s.Errorf("Commit of who has the lane: %v", err)
					return
				}
			}
		})
	}
	for take := range uint64(takes) {
		for at := version.Load(); version.Load() < at+50 && !s.Failed(); {
			s.Advance(0) // let the others write
		}
		before := owner.Swap(0) // nobody has 0: who writes meanwhile is fenced, and may be
		s.take(0, take+2)
		s.fenced(0, before)
		loaded, err := s.Log.Load(s.Context(), 0, take+2, []deltasync.Key{1, 2, 3, 4, 5, 6, 7, 8})
		if err != nil || len(loaded) != keys {
			s.Fatalf("Load = %d deposits, %v", len(loaded), err)
		}
		for i, d := range loaded {
			if least := acked[i].Load(); d.Version < least || d.Version > version.Load() || d.Version > 0 && d.Holdings[0].Granted != d.Version {
				s.Errorf("deposit of key %d is %+v, want version %d, which was acknowledged, or above", i+1, d, least)
			}
		}
		again, err := s.Log.Load(s.Context(), 0, take+2, []deltasync.Key{1, 2, 3, 4, 5, 6, 7, 8})
		if err != nil || !slices.EqualFunc(loaded, again, func(a, b escrow.Deposit) bool { return a.Version == b.Version }) {
			s.Errorf("deposits changed while nobody had the lane: %v, then %v, %v", loaded, again, err)
		}
		owner.Store(take + 2)
	}
	close(stop)
	all.Wait()
}
