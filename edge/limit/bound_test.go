package limit_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// spread are charges of so much in each of a window's slices, the last of which is that
// of now; the first of them with from slices left out.
func spread(rate *limit.Rate, now int64, each uint64, from int) *crdt.Vector {
	var v crdt.Vector
	current := rate.SliceAt(now)
	for i := from; i <= rate.Slices; i++ {
		v.Add(crdt.Cell{Slice: current - crdt.Slice(rate.Slices-i), Charges: each})
	}
	return &v
}

func TestBound(t *testing.T) {
	const now = int64(1_700_000_000) * int64(time.Second)
	rateOf := func(spec limit.RateSpec) *limit.Rate {
		return compileRules(t, limit.RuleSpec{Name: "api", Rates: []limit.RateSpec{spec}}).Rules()[0].Rates[0]
	}
	second := rateOf(limit.RateSpec{Limit: 400, Per: time.Second})
	full := rateOf(limit.RateSpec{Limit: 400, Per: time.Second, Oldest: "full"})
	minute := rateOf(limit.RateSpec{Limit: 400, Per: time.Minute})
	open := rateOf(limit.RateSpec{Limit: 400, Per: time.Second, Oldest: "full", OnPartition: "open"})
	alone := rateOf(limit.RateSpec{Limit: 400, Per: time.Second, Scope: "edge"})
	bucket := rateOf(limit.RateSpec{Algorithm: "token_bucket", Capacity: 400, Refill: perSecond(400)})
	parted := func(lasted, met time.Duration) func(o *limit.Outlook) {
		return func(o *limit.Outlook) { o.Lost, o.Parted, o.Met = 1, lasted, met }
	}
	quarter := limit.Outlook{Regions: 5, Edges: 2, Hidden: 250 * time.Millisecond, Ahead: 250 * time.Millisecond, Blur: 20 * time.Millisecond}
	with := func(change func(o *limit.Outlook)) limit.Outlook {
		o := quarter
		change(&o)
		return o
	}
	share := func(o *limit.Outlook) { o.Share = &limit.Share{Demand: 400, Delay: o.Ahead} }
	shared := func(change func(o *limit.Outlook)) limit.Outlook {
		return with(func(o *limit.Outlook) { share(o); change(o) })
	}
	for _, tt := range []struct {
		name       string
		rate       *limit.Rate
		level      uint64
		others     uint64 // in each slice
		outlook    limit.Outlook
		least, now uint64 // error_bound, from and to
		surge      uint64 // at the least
	}{
		{"one edge of many, alone by its scope", alone, 400, 10, quarter, 0, 0, 0},
		{"the only edge", second, 400, 10, with(func(o *limit.Outlook) { o.Regions, o.Edges = 1, 1 }), 0, 0, 0},
		{"nothing charged", second, 0, 0, quarter, 0, 0, 0},
		{"far from the limit", second, 200, 5, quarter, 0, 0, 1600},
		// 9 in 25 ms are 90 in 250 ms; 90 + 3.09 √90 + 1.5 = 120.8
		{"at the limit, steady", full, 400, 9, quarter, 120, 121, 1900},
		{"30 below it", full, 370, 9, quarter, 90, 91, 1870},
		// the same in pieces of 5: 90 + 3.09 √(5 × 90) + 5 × 1.5
		{"requests that cost 5", full, 400, 9, with(func(o *limit.Outlook) { o.Cost = 5 }), 163, 164, 1900},
		// of more than is ever admitted at once none is: at most the ceiling, 400
		{"a request that never fits", full, 400, 9, with(func(o *limit.Outlook) { o.Cost = 1 << 53 }), 1200, 1300, 1900},
		// twice as long: 180 + 3.09 √180 + 1.5
		{"an old view", full, 400, 9, with(func(o *limit.Outlook) { o.Hidden *= 2 }), 222, 223, 1900},
		{"a region that is not heard of", full, 400, 9, with(func(o *limit.Outlook) { o.Lost = 1 }), 520, 521, 2300},
		// 9 in the 0.5 s that the last slice has lasted are 4.5 in 0.25 s, and of the oldest
		// slice a third is gone: 4.5 + 3.09 √(4.5 + 9 × 1/3 × 2/3) + 1.5
		{"a long window", minute, 400, 9, quarter, 13, 14, 40},
		// 5 % of 400, beside 0.75 × 400/s × 20 ms + 3.09 √(6 + 10/4) + 1.5, by squares
		{"shares", full, 400, 9, with(share), 25, 27, 25},
		{"shares, which cannot be above what is unheard", full, 290, 9, with(share), 21, 23, 25},
		{"shares, a region cut off", full, 400, 9, with(func(o *limit.Outlook) { share(o); o.Lost = 1 }), 45, 47, 45},
		// 50 above it here, and as many there
		{"shares, a region cut off, which both found late", full, 450, 9, with(func(o *limit.Outlook) { share(o); o.Lost = 1 }), 125, 127, 125},
		{"shares, nothing heard of a region that would be open", open, 400, 9, shared(func(o *limit.Outlook) { o.Share.Doubt = 60 }), 85, 87, 85},
		{"shares, a region cut off, and a guess what it has", full, 400, 9, shared(func(o *limit.Outlook) { o.Lost, o.Share.Doubt = 1, 260 }), 285, 287, 285},
		{"shares, a region cut off that is open", open, 400, 9, with(func(o *limit.Outlook) { share(o); o.Lost = 1 }), 425, 427, 425},
		// as of windows, and beside it a quarter of a second's for what passes before it is noticed
		{"a bucket, a region cut off", bucket, 400, 9, with(parted(time.Second, 0)), 620, 621, 2400},
		{"a bucket, a region cut off for long", bucket, 400, 9, with(parted(10*time.Second, 0)), 4220, 4221, 6000},
		// 7 there and 1 here in each of 40 slices, so that it drains by 80; unheard are 70 + 3.09 √70 + 1.5
		{"a bucket, a second after that", bucket, 400, 7, with(parted(10*time.Second, time.Second)), 3717, 3718, 5400},
		{"a bucket, a second after that, all used", bucket, 400, 9, with(parted(10*time.Second, time.Second)), 3820, 3821, 5400},
		{"a bucket of shares, a region cut off for long", bucket, 400, 9, shared(parted(10*time.Second, 0)), 325, 327, 325},
		{"a bucket of shares, and a guess what it has", bucket, 400, 9, shared(func(o *limit.Outlook) { parted(10*time.Second, 0)(o); o.Share.Doubt = 260 }), 2725, 2727, 2725},
		{"a bucket of shares, a second after that, all used", bucket, 400, 9, shared(parted(10*time.Second, time.Second)), 325, 327, 325},
		{"a bucket of shares, when that has drained", bucket, 400, 7, shared(parted(10*time.Second, 5*time.Second)), 25, 27, 25},
		{"shares, kept for it what it has not spent", full, 240, 9, with(func(o *limit.Outlook) { share(o); o.Lost, o.Share.Less = 1, 100 }), 49, 51, 49}, // a quarter of that
		{"shares, kept for an edge that is cut off", full, 240, 9, shared(func(o *limit.Outlook) { o.Share.Less = 100 }), 49, 51, 49},
		// a quarter of its part, 400 × 0.5 × 0.4
		{"shares, cut off from its region", full, 400, 9, shared(func(o *limit.Outlook) { o.Share.Alone, o.Share.Omega, o.Share.Weight = true, 0.5, 0.4 }), 45, 47, 45},
		// what it has spent beside, and all of that if it surges
		{"shares, cut off from its region before one was told", full, 400, 9, shared(func(o *limit.Outlook) {
			o.Share.Alone, o.Share.Unkept, o.Share.Omega, o.Share.Weight, o.Share.Mine = true, true, 0.5, 0.4, 70
		}), 115, 117, 125},
		{"two regions that are not heard of", full, 400, 9, with(func(o *limit.Outlook) { o.Lost = 2 }), 920, 921, 2700},
		{"shares, two regions cut off that are open", open, 400, 9, with(func(o *limit.Outlook) { share(o); o.Lost = 2 }), 825, 827, 825},
		// what passes of 400/s in the 0.15 s that the news is later than R2 takes it to be
		{"shares, and news that is late", full, 400, 9, with(func(o *limit.Outlook) { share(o); o.Share.Delay = 100 * time.Millisecond }), 81, 83, 81},
		// ten times the limit for 0.15 s is more than the limit: R2 lets pass nothing
		{"shares, and news that is late for nothing", full, 400, 9, with(func(o *limit.Outlook) { share(o); o.Share.Delay = 150 * time.Millisecond }), 25, 27, 25},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := tt.outlook
			o.Others, o.Own = spread(tt.rate, now, tt.others, 0), spread(tt.rate, now, 1, 0)
			got := tt.rate.Bound(limit.Level{Whole: tt.level}, &o, now)
			if !got.Known || got.Now < tt.least || got.Now > tt.now || got.Surge < tt.surge || got.Surge < got.Now {
				t.Errorf("Bound at %d of %d: %+v, want %d to %d, with a surge %d or more", tt.level, tt.rate.Limit, got, tt.least, tt.now, tt.surge)
			}
		})
	}
}

// An edge that is asked for much more than before takes the others to be likewise,
// until it hears of them.
func TestBoundOfASurge(t *testing.T) {
	const now = int64(1_700_000_000)*int64(time.Second) + 24_999_999 // the end of a slice
	rate := compileRules(t, limit.RuleSpec{Name: "api", Rates: []limit.RateSpec{{Limit: 400, Per: time.Second}}}).Rules()[0].Rates[0]
	o := limit.Outlook{Regions: 5, Edges: 2, Hidden: 250 * time.Millisecond, Own: &crdt.Vector{}, Others: &crdt.Vector{}}
	o.Fresh = crdt.Cell{Slice: rate.SliceAt(now - 1), Charges: 50}
	if got := rate.Bound(limit.Level{Whole: 50}, &o, now).Now; got < 100 || got > 500 {
		t.Errorf("50 at once at one of ten edges: %d, want about 10 × 50 and some, less the limit", got)
	}
	o.Own, o.Others = spread(rate, now, 50, 1), spread(rate, now, 1, 1) // it alone is asked for so much, and was
	o.Fresh = crdt.Cell{}
	if got := rate.Bound(limit.Level{Whole: 400}, &o, now).Now; got > 30 {
		t.Errorf("one edge is asked for nearly all: %d, want what the others charge, about 10", got)
	}
}

// Of 200 edges that have half a request each, most pass a whole one before they hear of
// each other. What is above the limit and known is told while it counts.
func TestBoundOfPartsOfARequest(t *testing.T) {
	const now = int64(1_700_000_000) * int64(time.Second)
	rate := compileRules(t, limit.RuleSpec{Name: "api", Rates: []limit.RateSpec{{Limit: 100, Per: time.Second}}}).Rules()[0].Rates[0]
	o := limit.Outlook{Regions: 20, Edges: 10, Hidden: 350 * time.Millisecond, Ahead: 350 * time.Millisecond, Blur: 35 * time.Millisecond, Own: &crdt.Vector{}, Others: &crdt.Vector{}}
	o.Fresh = crdt.Cell{Slice: rate.SliceAt(now), Charges: 1}
	bound := func(level uint64) limit.Bound {
		o.Share = &limit.Share{Omega: 1. / 20, Weight: 1. / 10, Delay: 300 * time.Millisecond}
		return rate.Bound(limit.Level{Whole: level}, &o, now)
	}
	if got := bound(1); got.Now < 75 || got.Surge < 100 {
		t.Errorf("after the first request here: %+v, want 200 edges × 0.7 less the limit, and its spread", got)
	}
	o.Others = spread(rate, now, 4, 0)
	if got := bound(164); got.Now < 64 || got.Now > 110 {
		t.Errorf("164 known of a second: %+v, want 64 and little more", got)
	}
	if got := bound(100); got.Now > 50 || got.Surge < 100 {
		t.Errorf("100 known: %+v, want little now, and of a surge as much as of the first", got)
	}
	o.Regions, o.Edges, o.Others = 5, 2, &crdt.Vector{}
	if got := bound(1); got.Now > 10 {
		t.Errorf("ten edges with ten requests each: %+v, want next to nothing", got)
	}
}

// The bound never falls as the view ages, the level rises or a region is lost, and it
// is a number whatever the counts are.
func TestBoundIsMonotone(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const now = int64(1_700_000_000)*int64(time.Second) + 12_345_678
	for range 2000 {
		per := time.Second << rnd.IntN(8)
		rate := compileRules(t, limit.RuleSpec{Name: "api", Rates: []limit.RateSpec{{Limit: 1 + rnd.Uint64N(1000), Per: per}}}).Rules()[0].Rates[0]
		random := func() *crdt.Vector {
			var v crdt.Vector
			for i := range crdt.Slice(rate.Slices + 1) {
				if rnd.IntN(3) > 0 {
					v.Add(crdt.Cell{Slice: rate.SliceAt(now) - crdt.Slice(rate.Slices) + i, Charges: rnd.Uint64N(1 + rnd.Uint64N(1<<rnd.IntN(50)))})
				}
			}
			return &v
		}
		o := limit.Outlook{
			Own: random(), Others: random(), Regions: 1 + rnd.IntN(10), Edges: 1 + rnd.IntN(10),
			Hidden: time.Duration(rnd.Int64N(int64(per))), Ahead: time.Duration(rnd.Int64N(int64(time.Second))), Blur: 18 * time.Millisecond,
		}
		if rnd.IntN(2) == 0 {
			o.Share = &limit.Share{Demand: 2000 * rnd.Float64(), Own: limit.Demand{Fast: 300 * rnd.Float64()}}
		}
		level := limit.Level{Whole: rnd.Uint64N(3 * rate.Limit)}
		b := rate.Bound(level, &o, now)
		if b.Surge < b.Now || b.Now > math.MaxInt64 {
			t.Fatalf("%+v of %+v", b, o)
		}
		if more := rate.Bound(limit.Level{Whole: level.Whole + 10}, &o, now); more.Now < b.Now || more.Surge < b.Surge {
			t.Fatalf("ten more: %+v, was %+v of %+v", more, b, o)
		}
		lost := o
		lost.Lost = 1
		if more := rate.Bound(level, &lost, now); more.Now < b.Now || more.Surge < b.Surge {
			t.Fatalf("a region less: %+v, was %+v of %+v", more, b, o)
		}
	}
}
