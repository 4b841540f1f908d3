package limit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// spentRate is the only rate of a strict rule.
func spentRate(t *testing.T, spec limit.RateSpec) *limit.Rate {
	t.Helper()
	spec.Consistency = "strict"
	set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "r", Key: []string{"user"}, Rates: []limit.RateSpec{spec}}}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set.Rules()[0].Rates[0]
}

// spend is one that was made, as an exact log has it.
type spend struct {
	at   limit.Instant
	cost uint64
}

// Edges that pass rights on as they please, each judging by its own spends alone, never
// spend more together than the limit in any window, of any algorithm, with clocks that
// are set as they like: held against an exact log.
func TestSpentIsNeverOver(t *testing.T) {
	for name, c := range map[string]struct {
		spec limit.RateSpec
		over func(rate *limit.Rate, log []spend, next spend) bool // whether next does not fit any more
	}{
		"sub_windows":    {limit.RateSpec{Limit: 20, Per: time.Second}, inWindow},
		"few slices":     {limit.RateSpec{Limit: 20, Per: time.Second, Slices: 2}, inWindow},
		"sliding_window": {limit.RateSpec{Algorithm: "sliding_window", Limit: 20, Per: time.Second}, inWindow},
		"sliding_log":    {limit.RateSpec{Algorithm: "sliding_log", Limit: 20, Per: time.Second}, inWindow},
		"token_bucket":   {limit.RateSpec{Algorithm: "token_bucket", Capacity: 20, Refill: limit.Flow{Units: 10, Per: time.Second}}, inBucket},
		"min_gap":        {limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 1, Outflow: limit.Flow{Units: 1, Per: 300 * time.Millisecond}}, inBucket},
	} {
		t.Run(name, func(t *testing.T) {
			rate := spentRate(t, c.spec)
			for seed := range uint64(60) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				const edges = 4
				var spent [edges]limit.Spent
				var held [edges]uint64
				held[0] = rate.Ceiling
				way := uint64(0) // rights on their way
				boot, admitted := time.Hour, 0
				var log []spend
				for range 3000 {
					boot += time.Duration(rnd.ExpFloat64() * float64(5*time.Millisecond))
					e := rnd.IntN(edges)
					now := limit.Instant{Boot: boot, Wall: rnd.Int64N(1 << 60)}
					switch rnd.IntN(6) {
					case 0: // gives some back
						if free := held[e] - min(held[e], spent[e].Bound(rate, held[e], now)); free > 0 {
							n := 1 + rnd.Uint64N(free)
							held[e], way = held[e]-n, way+n
						}
					case 1:
						held[e], way = held[e]+way, 0
					default:
						cost := 1 + rnd.Uint64N(min(3, rate.Ceiling))
						if spent[e].Used(rate, held[e], now)+cost > held[e] {
							continue
						}
						spent[e].Spend(rate, cost, held[e], now)
						next := spend{now, cost}
						if c.over(rate, log, next) {
							t.Fatalf("seed %d: after %v edges together spent more than %d", seed, boot-time.Hour, rate.Ceiling)
						}
						log, admitted = append(log, next), admitted+1
					}
				}
				if admitted < 100 && name != "min_gap" || admitted == 0 {
					t.Fatalf("seed %d: only %d were admitted", seed, admitted)
				}
			}
		})
	}
}

// inWindow says that next is more than a sliding window may have.
func inWindow(rate *limit.Rate, log []spend, next spend) bool {
	sum := next.cost
	for i := len(log) - 1; i >= 0 && next.at.Boot-log[i].at.Boot < rate.Window; i-- {
		sum += log[i].cost
	}
	return sum > rate.Ceiling
}

// inBucket says that next is more than a bucket may have: from any moment on no more
// than it holds, and what ran out since.
func inBucket(rate *limit.Rate, log []spend, next spend) bool {
	sum := float64(next.cost)
	const rounded = 1e-6
	for i := len(log); ; i-- {
		from := next.at.Boot
		if i < len(log) {
			from, sum = log[i].at.Boot, sum+float64(log[i].cost)
		}
		drained := float64(rate.Drain.Refill) * float64(next.at.Boot-from) / float64(rate.Drain.Per)
		if sum > float64(rate.Ceiling)+drained+rounded {
			return true
		}
		if i == 0 {
			return false
		}
	}
}

// Of windows that begin by the clock no edge spends what another spent in the same one,
// though their clocks are a second apart, and no clock that is set changes that.
func TestSpentByLabel(t *testing.T) {
	for name, spec := range map[string]limit.RateSpec{
		"seconds": {Algorithm: "fixed_window", Limit: 20, Per: 10 * time.Second},
		"days":    {Limit: 20, Period: "day", Align: "Europe/Paris"},
	} {
		t.Run(name, func(t *testing.T) {
			rate := spentRate(t, spec)
			pace := rate.Window / 100
			for seed := range uint64(60) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				const edges = 4
				var spent [edges]limit.Spent
				var held [edges]uint64
				var off [edges]time.Duration
				held[0] = rate.Ceiling
				way, boot, wall := uint64(0), time.Hour, int64(1_790_000_000_000_000_000)
				log := map[string]uint64{}
				for range 3000 {
					step := time.Duration(rnd.ExpFloat64() * float64(pace))
					boot, wall = boot+step, wall+int64(step)
					e := rnd.IntN(edges)
					now := limit.Instant{Boot: boot, Wall: wall + int64(off[e])}
					switch rnd.IntN(6) {
					case 0:
						if free := held[e] - min(held[e], spent[e].Bound(rate, held[e], now)); free > 0 {
							held[e], way = held[e]-free, way+free
						}
					case 1:
						held[e], way = held[e]+way, 0
					case 2:
						off[e] = time.Duration(rnd.Int64N(int64(2*time.Second))) - time.Second
					default:
						if spent[e].Used(rate, held[e], now)+1 > held[e] {
							continue
						}
						spent[e].Spend(rate, 1, held[e], now)
						window := fmt.Sprint(spent[e].Label())
						if log[window]++; log[window] > rate.Ceiling {
							t.Fatalf("seed %d: %d were spent in window %s, want at most %d", seed, log[window], window, rate.Ceiling)
						}
					}
				}
				if len(log) < 10 {
					t.Fatalf("seed %d: spends in %d windows", seed, len(log))
				}
			}
		})
	}
}

// What is given back is free at once, and nothing is free sooner than without it.
func TestSpentGiveBack(t *testing.T) {
	rate := spentRate(t, limit.RateSpec{Limit: 10, Per: time.Second})
	at := func(ms int) limit.Instant { return limit.Instant{Boot: time.Hour + time.Duration(ms)*time.Millisecond} }
	var s limit.Spent
	s.Spend(rate, 4, 10, at(0))
	s.Spend(rate, 3, 10, at(500))
	s.GiveBack(rate, 3, 0, 0) // of which nobody knows which it was: of the first
	if got := s.Used(rate, 10, at(600)); got != 4 {
		t.Errorf("used %d, want 4", got)
	}
	if got := s.Used(rate, 10, at(1100)); got != 3 {
		t.Errorf("used %d when the first has left the window, want the 3 of the second", got)
	}
	if got := s.Used(rate, 10, at(1600)); got != 0 {
		t.Errorf("used %d when all has left, want 0", got)
	}
	s.GiveBack(rate, 100, 0, 0)
	bucket := spentRate(t, limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 10, Per: time.Second}})
	var b limit.Spent
	b.Spend(bucket, 5, 10, at(0))
	b.GiveBack(bucket, 5, 0, 0)
	if got := b.Used(bucket, 10, at(0)); got != 5 {
		t.Errorf("used %d of a bucket that was given 5 back, want 5: nobody knows what drained", got)
	}
	if got := b.Used(bucket, 10, at(500)); got != 1 {
		t.Errorf("used %d of a bucket after it drained for half a second, want 1: it rounds up", got)
	}
}

// Who knows when it was spent gives that back, and nothing of what was spent later: once it
// has left the window, nothing.
func TestSpentGiveBackOfAnInstant(t *testing.T) {
	rate := spentRate(t, limit.RateSpec{Limit: 10, Per: time.Second})
	at := func(ms int) limit.Instant { return limit.Instant{Boot: time.Hour + time.Duration(ms)*time.Millisecond} }
	used := func(s *limit.Spent, ms int, want uint64, when string) {
		t.Helper()
		if got := s.Used(rate, 10, at(ms)); got != want {
			t.Errorf("used %d %s, want %d", got, when, want)
		}
	}
	var s limit.Spent
	s.Spend(rate, 4, 10, at(0))
	s.Spend(rate, 3, 10, at(500))
	s.Spend(rate, 2, 10, at(900))
	s.GiveBack(rate, 2, 0, at(500).Boot)
	used(&s, 950, 7, "with 2 of 3 given back")
	used(&s, 1100, 3, "when the first has left the window: of the second 1 is left")
	s.GiveBack(rate, 4, 0, at(0).Boot)
	used(&s, 1100, 3, "when what has left is given back")
	s.GiveBack(rate, 3, 0, at(500).Boot) // of which there is but 1
	used(&s, 1100, 2, "when the second is given back, and the third is not")
}

// Of windows that begin by the clock what is given back is free in the one in which it was
// spent, though an older one is remembered as others may still be in it.
func TestSpentGiveBackByLabel(t *testing.T) {
	rate := spentRate(t, limit.RateSpec{Algorithm: "fixed_window", Limit: 10, Per: 10 * time.Second})
	first := rate.SliceAt(1_790_000_000_000_000_000)
	end := rate.EndOf(first)
	var s limit.Spent
	at := func(after time.Duration) limit.Instant {
		return limit.Instant{Boot: time.Hour + after, Wall: end + int64(after)}
	}
	before, now := at(-time.Second), at(time.Second)
	s.Spend(rate, 4, 10, before)
	s.Spend(rate, 6, 10, now)
	s.GiveBack(rate, 5, first+1, 0)
	if used, bound := s.Used(rate, 10, now), s.Bound(rate, 10, now); used != 1 || bound != 4 {
		t.Errorf("used %d, bound %d when 5 of 6 were given back in the window that goes on, want 1, and 4 of the one before", used, bound)
	}
	s.GiveBack(rate, 5, first, 0) // of which there are but 4
	if used, bound := s.Used(rate, 10, now), s.Bound(rate, 10, now); used != 1 || bound != 1 {
		t.Errorf("used %d, bound %d when the window before was given back, want 1 each", used, bound)
	}
}
