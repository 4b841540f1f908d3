package regional

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// The part of a region that fell silent is by what all were asked for when it was weighed
// last before it may not have heard of it: two intervals and its way, a third longer, before
// it owed its answer; or, where none is as old, the oldest that there is. Each weighs a
// little of which nothing is asked for.
func TestHad(t *testing.T) {
	const interval, way = 100 * time.Millisecond, 80 * ms
	a, err := New(Config{Region: "eu", Name: "a", Peers: []string{"us", "ap"}, Interval: interval}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1_800_000_000) * int64(time.Second)
	a.links.ways[0], a.links.ways[1] = 2*way, way
	c := &counter{shape: deltasync.Shape{Generation: 1, Width: 25 * time.Millisecond, Slices: 40, Limit: 300}}
	c.contest = &contest{regions: make([]regionDemand, 2)}
	const least = 5. // a twentieth of 300 a second, in three regions
	weights := [pastWeighed][3]float32{{10, 1000, 10}, {20, 60, 200}, {300, 0, 100}, {40, 700, 100}, {5, 70, 8}, {60, 1, 2}, {70, 9, 3}, {1, 8, 80}, {90, 2, 7}}
	for i, w := range weights {
		c.contest.past[i] = pastWeights{at: now - int64(i)*int64(time.Second), own: w[0]}
		c.contest.regions[0].past[i], c.contest.regions[1].past[i] = w[1], w[2]
	}
	part := func(i, j int) float64 {
		w := weights[i]
		return (float64(w[j+1]) + least) / (float64(w[0]+w[1]+w[2]) + 3*least)
	}
	hears := []int64{2*int64(interval) + 208*ms, 2*int64(interval) + 104*ms}
	for _, tt := range []struct {
		name   string
		region int
		owes   int64 // an answer, since so long after the last weights
		weighs int   // which of the past
	}{
		{"it has heard of the last", 0, hears[0], 0},
		{"just not of the last", 0, hears[0] - 1, 1},
		{"the nearer one has", 1, hears[1], 0},
		{"just not of the last, the nearer one", 1, hears[1] - 1, 1},
		{"as it was weighed", 0, 0, 1},
		{"not of the two before that", 0, hears[0] - int64(time.Second) - 1, 2},
		{"only of the oldest", 1, hears[1] - 7*int64(time.Second) - 1, 8},
		{"of none", 1, hears[1] - 8*int64(time.Second) - 1, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a.links.waiting[tt.region].Store(now + tt.owes)
			if got, guessed := a.had(c, tt.region, now); math.Abs(got-part(tt.weighs, tt.region)) > 1e-9 || guessed {
				t.Errorf("had = %v, guessed %v; want %v, of %v", got, guessed, part(tt.weighs, tt.region), weights[tt.weighs])
			}
		})
	}
	a.spoken.recall(0, now)
	if got, guessed := a.had(c, 0, now); math.Abs(got-1./3) > 1e-9 || !guessed {
		t.Errorf("had = %v, guessed %v, of a region that the store alone knows of; want a third, guessed", got, guessed)
	}
	c.contest = &contest{regions: make([]regionDemand, 2), past: [pastWeighed]pastWeights{{at: now}}}
	if got, guessed := a.had(c, 1, now); math.Abs(got-1./3) > 1e-9 || !guessed {
		t.Errorf("had = %v, guessed %v, of a key that was not known when it fell silent; want a third, guessed", got, guessed)
	}
}

// When a window began edges tell, and no old build, or liar, unsays it: one that began
// sooner is over.
func TestWindowsBeginAsEdgesTell(t *testing.T) {
	const second = int64(time.Second)
	now := int64(1e18)
	c := &contest{}
	for i, step := range []struct {
		after time.Duration
		since float32
		began int64 // seconds after the start; -1: nobody told
	}{
		{0, 0, -1},
		{0, 5, -5},
		{0, 0, -5}, // of the build before
		{2 * time.Second, 7, -5},
		{0, 1e19, -5},
		{3 * time.Second, 1, 4}, // the next window
		{0, 10, 4},
		{9 * time.Second, 0, 4},
		{time.Second, 0, -1}, // only those are left that do not tell
		{0, 1e19, 15 - int64(limit.MaxWindow/time.Second)},
	} {
		now += int64(step.after)
		c.asks(uint64(i%3), nil, &deltasync.Demand{Since: step.since}, now)
		began := (c.began - int64(1e18)) / second
		if c.began == 0 {
			began = -1
		}
		if began != step.began {
			t.Errorf("step %d: it began %d s after the start, want %d", i, began, step.began)
		}
	}
}

// Where it is a guess what a region has that is cut off, all may exceed a limit by what that
// leaves here; not where it is known, nor of a key that is new to all.
func TestDoubtOfAGuess(t *testing.T) {
	a, err := New(Config{Region: "r0", Name: "a", Peers: []string{"r1", "r2"}, Lanes: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{shape: deltasync.Shape{Width: time.Second, Slices: 60, Limit: 300}, contest: &contest{regions: make([]regionDemand, 2)}}
	r := &c.contest.regions[0]
	for _, tt := range []struct {
		frozen          float64
		guessed, unread bool
		want            uint64
	}{{0, false, true, 0}, {0.5, false, true, 0}, {0.5, true, true, 150}, {0.5, true, false, 0}} {
		a.links.unread.Store(tt.unread)
		a.share.gained = 0
		r.frozen, r.guessed = tt.frozen, tt.guessed
		if got := a.doubt(a.lanes[0], c); got != tt.want {
			t.Errorf("%+v: doubt %d", tt, got)
		}
	}
	a.share.gained = 1 // and what is noted of its keys is not read
	if r.guessed = true; a.doubt(a.lanes[0], c) != 150 {
		t.Error("the store has yet to tell what is noted, and it is no guess")
	}
}

// Who took the lane over just before, or knows of a region by the store alone, goes by what was
// spent until that was heard last, weighed as demand is, of what those share who are not aside;
// where that comes to a quarter of the limit's pace, or more.
func TestHadByWhatWasSpent(t *testing.T) {
	now := int64(1_800_000_000) * int64(time.Second)
	for _, tt := range []struct {
		name           string
		own, us, ap    uint64
		late           uint64 // of us, since
		aside          float64
		taken, recalls bool
		want           float64
	}{
		{"taken over", 100, 800, 60, 0, 0, true, false, .783},
		{"known by the store alone", 100, 800, 60, 0, 0, false, true, .780},
		{"with what it spent since", 100, 800, 60, 100, 0, true, false, .783},
		{"beside one that is aside", 100, 800, 60, 0, .25, true, false, .642},
		{"too little", 100, 100, 40, 0, 0, true, false, 1. / 3},
		{"served for long", 100, 800, 60, 0, 0, false, false, 1. / 3},
		{"taken over long ago, and told nothing since", 100, 800, 60, 0, 0, true, false, .783},
	} {
		f := newSharers(t, second, "us", "ap")
		t.Run(tt.name, func(t *testing.T) {
			a, c, slice := f.Aggregator, f.c, sliceAt(f.c.shape, now)
			for _, spent := range []struct {
				source  Source
				node    uint64
				ago     crdt.Slice
				charges uint64
			}{{FromEdge, 1, 30, tt.own}, {FromRegion, a.nodes[0], 30, tt.us}, {FromRegion, a.nodes[1], 30, tt.ap}, {FromRegion, a.nodes[0], 2, tt.late}} {
				c.join(spent.source, crdt.Replica{Node: spent.node}, []crdt.Cell{{Slice: slice - spent.ago, Charges: spent.charges}}, 0, now)
			}
			c.contest = &contest{regions: make([]regionDemand, 2), taken: tt.taken, born: now, past: [pastWeighed]pastWeights{{at: now}}}
			c.contest.regions[1].frozen, c.asked = tt.aside, now
			if strings.HasPrefix(tt.name, "taken over long ago") { // somebody else has the lane too, and was told
				c.contest.born -= int64(time.Minute)
				c.contest.past[1].at = now - int64(500*ms)
				c.contest.past[2].at = now - int64(time.Minute)
			}
			if heard := now - int64(200*ms); tt.recalls {
				a.spoken.recall(0, heard)
			} else {
				a.spoken.heard(0, heard)
			}
			a.links.waiting[0].Store(now)
			if got, guessed := a.had(c, 0, now); math.Abs(got-tt.want) > .003 || !guessed {
				t.Errorf("had = %v, guessed %v; want %v, guessed", got, guessed, tt.want)
			}
			if c.asked = 0; tt.aside == 0 { // each has its part of what there is
				if got, _ := a.had(c, 0, now); math.Abs(got-1./3) > .02 {
					t.Errorf("had = %v while the store has not answered, want a third", got)
				}
			}
		})
	}
}
