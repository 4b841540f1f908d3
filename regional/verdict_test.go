package regional

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

func spends(pairs ...uint64) (cells []crdt.Cell) {
	for i := 0; i < len(pairs); i += 2 {
		cells = append(cells, crdt.Cell{Slice: crdt.Slice(pairs[i]), Charges: pairs[i+1]})
	}
	return cells
}

func TestVerdictsOnWindows(t *testing.T) {
	for _, c := range []struct {
		name    string
		slices  int
		ceiling uint64
		cells   []crdt.Cell
		to      crdt.Slice
		want    []excess
	}{
		{"nothing", 4, 10, nil, 9, nil},
		{"at the ceiling", 4, 10, spends(1, 4, 2, 6), 9, nil},
		{"a fixed window", 1, 10, spends(1, 13, 2, 10, 3, 11), 9, []excess{{1, 3, 3}, {3, 1, 1}}},
		{"a hit too many counts once, however many windows it is in", 3, 10, spends(1, 10, 2, 4), 9, []excess{{2, 4, 4}, {3, 0, 4}}},
		{"what was too much does not take room from what comes later", 2, 10, spends(1, 15, 2, 1, 3, 9), 9, []excess{{1, 5, 5}, {2, 1, 6}}},
		{"what has not ended is not judged", 4, 10, spends(1, 13, 2, 5), 2, []excess{{1, 3, 3}}},
		{"refunds are given back", 1, 10, []crdt.Cell{{Slice: 1, Charges: 14, Refunds: 3}}, 9, []excess{{1, 1, 1}}},
		{"windows apart", 2, 5, spends(1, 6, 100, 7), 200, []excess{{1, 1, 1}, {2, 0, 1}, {100, 2, 2}, {101, 0, 2}}},
		{"all that can be charged", 1024, 1, []crdt.Cell{{Slice: 1, Charges: 1<<64 - 1}}, 2, []excess{{1, mostSpent - 1, mostSpent - 1}}},
	} {
		r := ruling{slices: c.slices, ceiling: func(crdt.Slice) uint64 { return c.ceiling }, to: c.to}
		if got := judgeWindows(nil, c.cells, nil, r); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// What is settled stands, and what comes later is judged by it.
func TestSettledVerdictsStand(t *testing.T) {
	r := ruling{slices: 2, ceiling: func(crdt.Slice) uint64 { return 10 }, settled: 2, to: 9}
	got := judgeWindows(nil, spends(1, 8, 2, 7), []excess{{1, 3, 3}}, r)
	if want := []excess{{1, 3, 3}, {2, 2, 5}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v: of slice 1 it is settled that 5 of 8 fitted", got, want)
	}
}

// However counts come in, what is too much only rises, and in the end is what a dumb
// limiter finds that sees all from the first.
func TestVerdictsOnlyRise(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		n, ceiling := 1+rnd.IntN(6), uint64(1+rnd.IntN(12))
		r := ruling{slices: n, ceiling: func(crdt.Slice) uint64 { return ceiling }, to: 40}
		var spent [30]uint64
		var found []excess
		before := uint64(0)
		for range 60 {
			spent[rnd.IntN(len(spent))] += uint64(rnd.IntN(4))
			var cells []crdt.Cell
			for s, n := range spent {
				if n > 0 {
					cells = append(cells, crdt.Cell{Slice: crdt.Slice(s), Charges: n})
				}
			}
			found = judgeWindows(nil, cells, found, r)
			sum := uint64(0)
			for _, x := range found {
				sum += x.hits
			}
			if sum < before {
				t.Fatalf("seed %d: %d hits too many, and before a charge %d", seed, sum, before)
			}
			before = sum
		}
		var fits [30]uint64
		dumb := uint64(0)
		for s := range spent {
			room := ceiling
			for i := max(0, s-n+1); i < s; i++ {
				room -= fits[i]
			}
			fits[s] = min(room, spent[s])
			dumb += spent[s] - fits[s]
		}
		if before != dumb {
			t.Errorf("seed %d: %d hits too many in windows of %d slices, want %d", seed, before, n, dumb)
		}
	}
}

func TestVerdictsOnBuckets(t *testing.T) {
	d := limit.Drain{Refill: 10, Per: time.Second, Width: 100 * time.Millisecond} // 1 a slice
	for _, c := range []struct {
		name  string
		level uint64 // when slice 1 begins
		cells []crdt.Cell
		want  []excess
	}{
		{"full", 0, spends(1, 21), nil},
		{"above", 0, spends(1, 25), []excess{{1, 4, 4}}},
		{"what was too much is not in it later", 0, spends(1, 25, 2, 3), []excess{{1, 4, 4}, {2, 2, 6}}},
		{"it drains", 0, spends(1, 21, 11, 10), nil},
		{"its past counts", 15, spends(1, 10), []excess{{1, 4, 4}}},
	} {
		carry := crdt.Carry{Boundary: 1, Level: c.level * micro}
		r := ruling{drain: d, ceiling: func(crdt.Slice) uint64 { return 20 }, to: 99}
		if got := judgeBucket(nil, c.cells, levels{carry, carry}, r); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestSumsOweWhatWasGivenBack(t *testing.T) {
	type step struct{ more, less, rise uint64 }
	owed, rise := uint64(0), uint64(0)
	for i, s := range []step{{5, 0, 5}, {0, 2, 0}, {1, 0, 0}, {3, 0, 2}, {4, 1, 3}} {
		if rise, owed = settle(s.more, s.less, owed); rise != s.rise {
			t.Errorf("step %d: rise by %d, want %d", i, rise, s.rise)
		}
	}
}

// A region that was silent has told all only when it was heard again for a while; one
// that was never heard holds nobody up.
func TestToldUntil(t *testing.T) {
	s := spoken{peers: make([]voice, 2)}
	at := func(sec float64) int64 { return int64(sec * float64(time.Second)) }
	if got := s.told(at(100)); got != at(100) {
		t.Errorf("nobody was ever heard: told until %d, want now", got)
	}
	step := func(from, to float64) {
		for x := from; x <= to; x += 0.5 {
			s.heard(0, at(x))
		}
	}
	for _, c := range []struct{ from, to, now, want float64 }{
		{100, 102, 102, 0},        // it may have more to tell
		{102.5, 110, 110.4, 110},  // in step
		{0, -1, 130, 110},         // silent
		{131, 133, 133.2, 110},    // back, and not all is told
		{133.5, 135, 135.25, 135}, // in step again
	} {
		step(c.from, c.to)
		if got := s.told(at(c.now)); got != at(c.want) {
			t.Errorf("at %v s: told until %v, want %v", c.now, time.Duration(got), time.Duration(at(c.want)))
		}
	}
}

func TestOneRegionReportsAKey(t *testing.T) {
	regions := []string{"ap", "eu", "sa", "us"}
	for key := range 200 {
		reports := []string{}
		for i, r := range regions {
			h := newHomes(TargetsAuto, r, slices.Concat(regions[:i:i], regions[i+1:]))
			if h.first(deltasync.Key(key*0x9e3779b9 + 1)) {
				reports = append(reports, r)
			}
		}
		if len(reports) != 1 {
			t.Fatalf("key %d is reported by %v, want one", key, fmt.Sprint(reports))
		}
	}
}
