package limit_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// compileRate compiles one rate of an otherwise plain rule.
func compileRate(t testing.TB, spec limit.RateSpec) *limit.Rate {
	t.Helper()
	set, problems := limit.Compile(limit.Document{
		Namespace: "test",
		Rules:     []limit.RuleSpec{{Name: "rule", Rates: []limit.RateSpec{spec}}},
	})
	if problems != nil {
		t.Fatalf("Compile(%+v): %v", spec, problems[0])
	}
	return set.Rules()[0].Rates[0]
}

// epoch is a whole number of every window that the examples use.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// exactUsed is the definition, in rationals: every slice counts by the part of
// it that lies in the last Window before now; a slice ahead counts in full.
func exactUsed(r *limit.Rate, sums []crdt.Cell, now int64) *big.Rat {
	used := new(big.Rat)
	for _, c := range sums {
		net := new(big.Rat).SetUint64(c.Net())
		start, end := r.StartOf(c.Slice), r.StartOf(c.Slice)+int64(r.Width)
		switch from := now - int64(r.Window); {
		case r.Algorithm == limit.FixedWindow && end <= now:
			continue
		case r.Algorithm != limit.FixedWindow && end <= from:
			continue
		case r.Algorithm != limit.FixedWindow && start < from && r.Oldest != limit.OldestFull:
			net.Mul(net, big.NewRat(end-from, int64(r.Width)))
		}
		used.Add(used, net)
	}
	return used
}

func exactRounded(r *limit.Rate, used *big.Rat) uint64 {
	q, rem := new(big.Int).QuoRem(used.Num(), used.Denom(), new(big.Int))
	if rem.Sign() != 0 && r.Round != limit.RoundDown {
		q.Add(q, big.NewInt(1))
	}
	if !q.IsUint64() {
		return math.MaxUint64
	}
	return q.Uint64()
}

// generatedRates are rates of every algorithm and rounding.
func generatedRates(t testing.TB) []*limit.Rate {
	var rates []*limit.Rate
	for _, round := range []string{"down", "none", "up"} {
		for _, spec := range []limit.RateSpec{
			{Per: time.Minute, Algorithm: "fixed_window"},
			{Per: time.Minute, Algorithm: "sliding_window"},
			{Per: 700 * time.Millisecond, Algorithm: "sliding_window"},
			{Per: time.Hour, Slices: 60},
			{Per: time.Second, Slices: 7},
			{Per: time.Minute, Oldest: "full"},
		} {
			for _, limits := range []uint64{0, 1, 10, 1 << 40} {
				spec.Limit, spec.Round = limits, round
				rates = append(rates, compileRate(t, spec))
			}
		}
	}
	return rates
}

func generatedSums(rng *rand.Rand, r *limit.Rate, now int64) []crdt.Cell {
	var sums []crdt.Cell
	current := r.SliceAt(now)
	ahead := min(2, crdt.Slice(r.Slices)) // more than a window ahead counts no more
	for s := current - crdt.Slice(r.Slices) - 2; s <= current+ahead; s++ {
		c := crdt.Cell{Slice: s}
		switch rng.IntN(6) {
		case 0, 1:
			continue
		case 2:
			c.Charges = rng.Uint64N(2*r.Limit + 3)
		case 3:
			c.Charges, c.Refunds = rng.Uint64N(20), rng.Uint64N(30)
		case 4:
			c.Charges = rng.Uint64N(4)
		case 5:
			if s > current { // what is ahead is rare
				continue
			}
			c.Charges = rng.Uint64() >> rng.IntN(64)
		}
		sums = append(sums, c)
	}
	return sums
}

func describe(seed uint64, r *limit.Rate, sums []crdt.Cell, now int64) string {
	return fmt.Sprintf("seed %d: %v %v/%v in %d, oldest %v, round %v, at %d, sums %v", seed, r.Algorithm, r.Limit, r.Window, r.Slices, r.Oldest, r.Round, now, sums)
}

func TestUsedAgainstExactModel(t *testing.T) {
	rates := generatedRates(t)
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := rates[rng.IntN(len(rates))]
		now := rng.Int64N(int64(40*time.Hour)) - int64(3*time.Hour) // before 1970 too
		sums := generatedSums(rng, r, now)
		level := r.Used(sums, limit.Carry{}, now)
		want := exactRounded(r, exactUsed(r, sums, now))
		if got := r.Rounded(level); got != want {
			t.Fatalf("%s: Rounded(Used) = %d, want %d", describe(seed, r, sums, now), got, want)
		}
		room := uint64(0)
		if want < r.Ceiling {
			room = r.Ceiling - want
		}
		if got := r.Room(level); got != room {
			t.Fatalf("%s: Room = %d, want %d", describe(seed, r, sums, now), got, room)
		}
	}
}

func TestUsedOnlyFalls(t *testing.T) {
	rates := generatedRates(t)
	for seed := range uint64(5_000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		r := rates[rng.IntN(len(rates))]
		now := rng.Int64N(int64(40 * time.Hour))
		sums := generatedSums(rng, r, now)
		before := r.Rounded(r.Used(sums, limit.Carry{}, now))
		for range 20 {
			now += rng.Int64N(int64(r.Width))
			after := r.Rounded(r.Used(sums, limit.Carry{}, now))
			if after > before {
				t.Fatalf("%s: used rose from %d to %d with nothing charged", describe(seed, r, sums, now), before, after)
			}
			before = after
		}
	}
}

func TestReachKeepsAllThatCounts(t *testing.T) {
	rates := generatedRates(t)
	for seed := range uint64(5_000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		r := rates[rng.IntN(len(rates))]
		now := rng.Int64N(int64(40 * time.Hour))
		sums := generatedSums(rng, r, now)
		var kept []crdt.Cell
		for _, c := range sums {
			if c.Slice >= r.Reach(now) {
				kept = append(kept, c)
			}
		}
		if got, want := r.Used(kept, limit.Carry{}, now), r.Used(sums, limit.Carry{}, now); got != want {
			t.Fatalf("%s: Used of what Reach keeps = %v, want %v", describe(seed, r, sums, now), got, want)
		}
	}
}

// RetryAfter is the first instant at which the cost fits: one nanosecond
// before it does not.
func TestRetryAfterIsTheFirstInstant(t *testing.T) {
	rates := generatedRates(t)
	denied := 0
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 4))
		r := rates[rng.IntN(len(rates))]
		now := rng.Int64N(int64(40*time.Hour)) - int64(3*time.Hour)
		sums := generatedSums(rng, r, now)
		cost := 1 + rng.Uint64N(12)
		fits := func(at int64) bool {
			rounded := r.Rounded(r.Used(sums, limit.Carry{}, at))
			if cost > r.Ceiling { // never fits; told is when nothing is used
				return rounded == 0
			}
			return rounded <= r.Ceiling-cost
		}
		if fits(now) {
			continue
		}
		denied++
		wait := int64(r.RetryAfter(sums, limit.Carry{}, cost, now))
		if wait < 1 || !fits(now+wait) {
			t.Fatalf("%s: cost %d is denied after RetryAfter, %v", describe(seed, r, sums, now), cost, time.Duration(wait))
		}
		if fits(now + wait - 1) {
			t.Fatalf("%s: cost %d is admitted 1 ns before RetryAfter, %v", describe(seed, r, sums, now), cost, time.Duration(wait))
		}
	}
	if denied < 1000 {
		t.Fatalf("only %d of the generated cases were denials", denied)
	}
}

func TestNarrow(t *testing.T) {
	for _, tc := range []struct {
		per    time.Duration
		wish   int
		slices int
		width  time.Duration
	}{
		{time.Minute, 40, 40, 1500 * time.Millisecond},
		{time.Hour, 60, 60, time.Minute},
		{time.Second, 40, 40, 25 * time.Millisecond},
		{time.Second, 60, 40, 25 * time.Millisecond},             // 25 ms is the narrowest
		{100 * time.Millisecond, 40, 4, 25 * time.Millisecond},   //
		{30 * time.Millisecond, 40, 1, 30 * time.Millisecond},    //
		{25 * time.Millisecond, 40, 1, 25 * time.Millisecond},    //
		{997 * time.Millisecond, 40, 1, 997 * time.Millisecond},  // prime
		{time.Minute, 7, 6, 10 * time.Second},                    // 60 s / 7 is no whole number of ms
		{24 * time.Hour, 1024, 1024, 84375 * time.Millisecond},   //
		{366 * 24 * time.Hour, 1, 1, 366 * 24 * time.Hour},       //
		{1001 * time.Millisecond, 40, 13, 77 * time.Millisecond}, // 7 * 11 * 13
	} {
		if slices, width := limit.Narrow(tc.per, tc.wish); slices != tc.slices || width != tc.width {
			t.Errorf("Narrow(%v, %d) = %d, %v, want %d, %v", tc.per, tc.wish, slices, width, tc.slices, tc.width)
		}
	}
}

func TestSoftMarginRaisesTheCeilingOnly(t *testing.T) {
	set, problems := limit.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{{
		Name: "rule", Rates: []limit.RateSpec{{Limit: 1000, Per: time.Minute}}, Margin: limit.MarginSpec{SoftPercent: 10},
	}}})
	if problems != nil {
		t.Fatal(problems[0])
	}
	if r := set.Rules()[0].Rates[0]; r.Limit != 1000 || r.Ceiling != 1100 {
		t.Errorf("limit %d, ceiling %d, want 1000 and 1100", r.Limit, r.Ceiling)
	}
}

func BenchmarkUsed(b *testing.B) {
	r := compileRate(b, limit.RateSpec{Limit: 1000, Per: time.Minute})
	var sums []crdt.Cell
	for s := range crdt.Slice(41) {
		sums = append(sums, crdt.Cell{Slice: r.SliceAt(epoch) - 40 + s, Charges: 30})
	}
	now := epoch + int64(r.Width)/3
	b.ReportAllocs()
	for b.Loop() {
		r.Used(sums, limit.Carry{}, now)
	}
}

// Whoever asks for all of the limit waits for every slice to leave the window.
func BenchmarkRetryAfter(b *testing.B) {
	for _, slices := range []int{40, limit.MaxSlices} {
		b.Run(fmt.Sprint("slices=", slices), func(b *testing.B) {
			r := compileRate(b, limit.RateSpec{Limit: 1_000_000, Per: 1024 * time.Minute, Slices: slices})
			var sums []crdt.Cell
			for s := r.Reach(epoch); s <= r.SliceAt(epoch); s++ {
				sums = append(sums, crdt.Cell{Slice: s, Charges: 1_000_000 / uint64(slices)})
			}
			b.ReportAllocs()
			for b.Loop() {
				r.RetryAfter(sums, limit.Carry{}, 1_000_000, epoch)
			}
		})
	}
}

// A slice that a clock counted in far ahead of itself, before it was set back,
// costs no more time to wait for than others.
func TestWaitBesideSlicesFarAhead(t *testing.T) {
	for _, spec := range []limit.RateSpec{
		{Limit: 1, Per: time.Second}, {Limit: 1, Per: time.Second, Algorithm: "fixed_window"}, {Limit: 1, Per: time.Second, Algorithm: "sliding_log"},
		{Limit: 1, Per: time.Second, Algorithm: "fixed_window", Align: "first_hit"}, {Algorithm: "token_bucket", Capacity: 1, Refill: perSecond(1)},
	} {
		r := compileRate(t, spec)
		sums := []crdt.Cell{{Slice: r.SliceAt(epoch), Charges: 1}, {Slice: math.MaxInt64, Charges: 1}}
		var x limit.Exact
		x.Charge(r, 1, epoch)
		for name, w := range map[string]time.Duration{
			"slices": r.RetryAfter(sums, limit.Carry{}, 2, epoch), "exact": r.Wait(&x, sums[1:], sums, limit.Carry{}, 2, epoch),
		} {
			if w < 900*time.Millisecond || w > 4*time.Second {
				t.Errorf("%v, %s: Wait = %v, want a few windows", r.Algorithm, name, w)
			}
		}
	}
}
