package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// punished is an item with a penalty and no counts.
func punished(key deltasync.Key, until int64) regional.Item {
	it := item(key)
	it.Until = until
	return it
}

// in is an instant by the store's clock, in nanoseconds since 1970.
func (s *subject) in(d time.Duration) int64 { return s.Now().Add(d).UnixNano() }

// until checks when the penalty of an answer ends.
func (s *subject) until(what string, got regional.Item, want int64) {
	s.Helper()
	if got.Until != want {
		s.wrong("%s: a penalty until %d, want %d", what, got.Until, want)
	}
}

func testPenalties(s *subject) {
	hour := s.in(time.Hour) + 1 // to the nanosecond
	s.merge(punished(1, hour))
	s.merge(punished(1, hour-1), punished(2, hour+time.Hour.Nanoseconds()))
	s.until("merged", s.load(item(1))[0], hour)
	s.until("another key", s.load(item(2))[0], hour+time.Hour.Nanoseconds())
	s.until("a third", s.load(item(3))[0], 0)
	s.merge(punished(1, hour+7))
	s.until("a later one", s.load(item(1))[0], hour+7)

	// Beside all else that an item may have; and each changes alone.
	v := edge(7, charge(s.at(3), 1))
	all := resting(s.level(2, 5))
	all.Key, all.Until = 4, hour
	all.Vectors, all.Carries = []regional.Vector{v}, []crdt.Carry{s.level(2, 3)}
	s.merge(all)
	asked := resting(crdt.Carry{})
	asked.Key = 4
	later, fuller := asked, asked
	later.Until, fuller.Rest = hour+1, s.level(1, 6)
	s.merge(later, fuller, asked)
	got := s.load(asked)[0]
	s.until("beside counts", got, hour+1)
	s.carries("beside counts", got, s.level(2, 3))
	s.same("beside counts", got.Vectors, []regional.Vector{v})
	if got.Rest != s.level(1, 6) {
		s.Errorf("%v rests beside a penalty, want %v", got.Rest, s.level(1, 6))
	}
}

func testPenaltyVersions(s *subject) {
	hour := s.in(time.Hour)
	first := s.merge(punished(1, hour))[0]
	s.until("nobody wrote before", first, 0)
	again := punished(1, hour)
	again.Version = first.Version
	if got := s.merge(again)[0]; got.Version != first.Version || got.Until != 0 {
		s.Errorf("the same penalty again: %v, want version %d and no penalty", got, first.Version)
	}
	s.until("asked without a version", s.merge(item(1))[0], hour)
	later := punished(1, hour+1)
	later.Version = first.Version
	second := s.merge(later)[0]
	if second.Version == first.Version || second.Until != 0 {
		s.Errorf("a later penalty: %v, want another version and no penalty", second)
	}
	old := item(1) // of an aggregator that has looked before
	old.Version = first.Version
	s.until("asked with an old version", s.merge(old)[0], hour+1)
	s.Wipe()
	s.until("after a wipe", s.load(item(1))[0], 0)
}

func testPenaltyExpiry(s *subject) {
	it := brief() // counts are gone long before the penalty is over
	now := crdt.Slice(s.Now().UnixNano() / int64(it.Width))
	it.Vectors = []regional.Vector{edge(1, charge(now, 5))}
	it.Until = s.in(it.Kept() + time.Second)
	s.merge(it)
	s.Advance(it.Kept() + 2*it.Width)
	s.ends = time.Unix(0, it.Until)
	got := s.load(brief())[0]
	s.until("when the counts have expired", got, it.Until)
	s.same("when the counts have expired", got.Vectors, nil)
	longer := brief()
	longer.Until = it.Until + int64(time.Second)
	s.merge(longer)
	s.Advance(time.Second)
	s.ends = time.Unix(0, longer.Until)
	s.until("when the first is over", s.merge(brief())[0], longer.Until)
	s.Advance(1010 * time.Millisecond)
	s.ends = time.Time{} // what follows is of hours
	s.until("when the later one is over", s.load(brief())[0], 0)

	short := punished(5, s.in(100*time.Millisecond))
	short.Vectors = []regional.Vector{edge(1, charge(s.at(0), 1))}
	s.merge(short)
	s.Advance(110 * time.Millisecond)
	s.until("over before its counts are", s.load(item(5))[0], 0)

	s.Wipe()
	for _, dead := range []int64{math.MinInt64, -1, 1, s.in(-time.Millisecond), s.in(limit.MaxWindow + time.Minute), math.MaxInt64} {
		if got := s.merge(punished(1, dead))[0]; got.Version != 0 || got.Until != 0 {
			s.Errorf("a penalty until %d: the answer is %v, want nothing stored", dead, got)
		}
	}
	longest := s.in(limit.MaxWindow)
	s.merge(punished(1, longest))
	s.until(fmt.Sprint("the longest of all, ", limit.MaxWindow), s.load(item(1))[0], longest)
}
