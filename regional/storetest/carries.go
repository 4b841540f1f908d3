package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// carried is an item with carries and no counts.
func carried(key deltasync.Key, carries ...crdt.Carry) regional.Item {
	it := item(key)
	it.Carries = carries
	return it
}

// carries checks that an answer has exactly these.
func (s *subject) carries(what string, got regional.Item, want ...crdt.Carry) {
	s.Helper()
	if g, w := slices.SortedFunc(slices.Values(got.Carries), crdt.Carry.Compare), slices.SortedFunc(slices.Values(want), crdt.Carry.Compare); !slices.Equal(g, w) {
		s.wrong("%s: the carries are %v, want %v", what, g, w)
	}
}

// level is a carry i slices before the newest.
func (s *subject) level(i int, level uint64) crdt.Carry {
	return crdt.Carry{Boundary: s.at(i), Level: level}
}

func testCarries(s *subject) {
	s.merge(carried(1, s.level(3, 5), s.level(20, 1<<40)))
	s.merge(carried(1, s.level(3, 4)), carried(2, s.level(3, 9)))
	s.merge(carried(1, s.level(1, 7), s.level(3, 6)))
	s.carries("merged", s.load(item(1))[0], s.level(20, 1<<40), s.level(3, 6), s.level(1, 7))
	s.carries("another key", s.load(item(2))[0], s.level(3, 9))

	// To the last bit, beside counts of the same slices, and in any order.
	v := edge(7, charge(s.at(3), 1), charge(s.at(2), math.MaxUint64))
	both := carried(3, s.level(2, math.MaxUint64-1), s.level(39, 1), s.level(3, 1<<53+1))
	both.Vectors = []regional.Vector{v}
	s.merge(both)
	s.merge(carried(3, s.level(2, math.MaxUint64), s.level(3, 1<<53)))
	s.holds(3, v)
	s.carries("beside counts", s.load(item(3))[0], s.level(39, 1), s.level(3, 1<<53+1), s.level(2, math.MaxUint64))
	if len(both.Carries) != 3 || both.Carries[0] != s.level(2, math.MaxUint64-1) {
		s.Errorf("Merge changed its batch to %v", both.Carries)
	}

	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 7))
		s.Wipe()
		want := map[crdt.Slice]uint64{}
		for range 30 {
			c := s.level(r.IntN(40), 1+r.Uint64()>>r.UintN(64))
			want[c.Boundary] = max(want[c.Boundary], c.Level)
			s.merge(carried(1, c), carried(1, c))
		}
		var all []crdt.Carry
		for b, l := range want {
			all = append(all, crdt.Carry{Boundary: b, Level: l})
		}
		s.carries(fmt.Sprint("seed ", seed), s.load(item(1))[0], all...)
	}
}

func testCarryVersions(s *subject) {
	first := s.merge(carried(1, s.level(5, 8)))[0]
	s.carries("nobody wrote before", first)
	again := carried(1, s.level(5, 8))
	again.Version = first.Version
	if got := s.merge(again)[0]; got.Version != first.Version || len(got.Carries) > 0 {
		s.Errorf("the same carry again: %v, want version %d and no carries", got, first.Version)
	}
	other := s.merge(item(1, edge(2, charge(s.at(0), 1))))[0] // an aggregator that comes for the first time
	s.carries("asked without a version", other, s.level(5, 8))
	higher := carried(1, s.level(5, 9))
	higher.Version = other.Version
	if got := s.merge(higher)[0]; got.Version == other.Version || len(got.Carries) > 0 {
		s.Errorf("a higher carry: %v, want another version and no carries", got)
	}
	late := item(1)
	late.Version = first.Version
	got := s.merge(late)[0]
	s.carries("asked with an old version", got, s.level(5, 9))
	s.same("asked with an old version", got.Vectors, []regional.Vector{edge(2, charge(s.at(0), 1))})
	s.Wipe()
	s.carries("after a wipe", s.load(item(1))[0])
}

func testCarryExpiry(s *subject) {
	it := brief()
	now := crdt.Slice(s.Now().UnixNano() / int64(it.Width))
	it.Carries = []crdt.Carry{{Boundary: now, Level: 5}, {Boundary: now + 70, Level: 6}} // in 1.75 s
	s.alive(it, now)
	s.merge(it)
	s.carries("just merged", s.load(it)[0], it.Carries...)
	s.Advance(it.Kept() + 2*it.Width)
	s.alive(it, now+70)
	s.carries("when the first has expired", s.merge(brief())[0], it.Carries[1])
	late := brief()
	late.Carries = it.Carries[:1]
	s.merge(late)
	s.carries("when a late one came", s.load(it)[0], it.Carries[1])
	s.Advance(71 * it.Width)
	s.ends = time.Time{}
	s.carries("when both have expired", s.load(it)[0])

	s.Wipe()
	first, last := it.Live(s.Now())
	for _, dead := range []crdt.Slice{math.MinInt64, -1, 0, first - 100, first - 1, last + 400, math.MaxInt64} {
		it := brief()
		it.Carries = []crdt.Carry{{Boundary: dead, Level: 5}}
		if got := s.merge(it)[0]; got.Version != 0 || len(got.Carries) > 0 {
			s.Errorf("slice %d, with %d to %d alive: the answer is %v, want nothing stored", dead, first, last, got)
		}
	}
	// Two in a window, as aggregators take them, stay few.
	long := regional.Item{Key: 78, Width: 25 * time.Millisecond, Slices: 80}
	seen := map[crdt.Slice]bool{}
	first, last = long.Live(s.Now())
	for at := first + 2; at <= last; at++ { // the first may expire meanwhile
		b := long.Boundary(at)
		if b > at || at-b >= 40 {
			s.Errorf("Boundary(%d) = %d, want at most 39 before it", at, b)
		}
		seen[b] = true
	}
	if len(seen) > 6 {
		s.Errorf("%d boundaries in what is kept of a key, want at most 6", len(seen))
	}
}

// resting is an item of a bucket with a floor.
func resting(rest crdt.Carry) regional.Item {
	it := item(1)
	it.Floor, it.Rest = true, rest
	return it
}

func testRests(s *subject) {
	rests := func(what string, want crdt.Carry) {
		s.Helper()
		if got := s.load(resting(crdt.Carry{}))[0].Rest; got != want {
			s.Fatalf("%s: %v rests, want %v", what, got, want)
		}
	}
	rests("nothing merged", crdt.Carry{})
	hours := func(h int) int { return h * int(time.Hour/width) }
	v := edge(1, charge(s.at(1), 5))
	first := resting(s.level(hours(20), 7)) // no slice of then is alive
	first.Vectors, first.Carries = []regional.Vector{v}, []crdt.Carry{s.level(2, 3)}
	version := s.merge(first)[0].Version
	rests("merged", s.level(hours(20), 7))
	s.holds(1, v)
	s.carries("beside what rests", s.load(resting(crdt.Carry{}))[0], s.level(2, 3))
	if got := s.load(item(1))[0].Rest; !got.Zero() {
		s.Errorf("without a floor %v rests, want nothing", got)
	}

	later := resting(s.level(hours(3), 5))
	later.Version = version
	if got := s.merge(later)[0]; got.Version == version || !got.Rest.Zero() {
		s.Errorf("a later boundary: %v, want another version and nothing told", got)
	}
	rests("later and lower", s.level(hours(3), 7))
	got := s.merge(resting(s.level(hours(20), 1<<60)))[0]
	if got.Rest != s.level(hours(3), 1<<60) {
		s.Errorf("asked without a version: %v rests, want the larger of both", got.Rest)
	}
	version = got.Version
	for _, known := range []crdt.Carry{{}, s.level(hours(3), 1<<60), s.level(hours(9), 1<<60-1)} {
		it := resting(known)
		it.Version = version
		if got := s.merge(it)[0]; got.Version != version || !got.Rest.Zero() {
			s.Errorf("merged %v, which changes nothing: %v", known, got)
		}
	}
	s.merge(resting(s.level(1, math.MaxUint64)))
	rests("to the last bit", s.level(1, math.MaxUint64))

	s.Wipe()
	for _, dead := range []crdt.Carry{s.level(hours(26), 5), s.level(-hours(1), 5), {Boundary: -1, Level: 5}, {Boundary: math.MinInt64, Level: 5}, {Boundary: math.MaxInt64, Level: 5}} {
		s.merge(resting(dead))
		rests(fmt.Sprint(dead), crdt.Carry{})
	}
}
