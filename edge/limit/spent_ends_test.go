package limit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// What is told of when rights are free is never sooner than they are, at any moment from then on, and all of
// them are told of, in no more parts than there may be; of a bucket nothing is.
func TestSpentEndsWhenItIsFree(t *testing.T) {
	for name, spec := range map[string]limit.RateSpec{
		"sub_windows":    {Limit: 1000, Per: time.Minute},
		"sliding_window": {Algorithm: "sliding_window", Limit: 1000, Per: 10 * time.Second},
		"fixed_window":   {Algorithm: "fixed_window", Limit: 1000, Per: time.Minute},
		"day":            {Algorithm: "fixed_window", Limit: 1000, Period: "day", Align: "utc"},
		"token_bucket":   {Algorithm: "token_bucket", Capacity: 1000, Refill: limit.Flow{Units: 10, Per: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			rate := spentRate(t, spec)
			sooner := 0
			for seed := range uint64(50) {
				rnd := rand.New(rand.NewPCG(seed, 5))
				var spent limit.Spent
				now := limit.Instant{Boot: time.Hour, Wall: int64(1_790_000_000e9) + rnd.Int64N(int64(24*time.Hour))}
				later := func(d time.Duration) limit.Instant {
					return limit.Instant{Boot: now.Boot + d, Wall: now.Wall + int64(d)}
				}
				for range rnd.IntN(60) {
					now = later(time.Duration(rnd.Int64N(int64(rate.Lasts() / 30))))
					spent.Spend(rate, 1+rnd.Uint64N(9), 1000, now)
				}
				bound, parts := spent.Bound(rate, 1000, now), 1+rnd.IntN(8)
				if rnd.IntN(3) == 0 && bound > 0 { // some was spent by other rights
					bound -= rnd.Uint64N(bound)
				}
				ends := spent.Ends(rate, bound, now, parts)
				if rate.Bucket() || bound == 0 {
					if ends != nil {
						t.Fatalf("seed %d: %v, want nothing", seed, ends)
					}
					continue
				}
				sum := uint64(0)
				for _, e := range ends {
					sum += e.Cost
					if e.In < rate.Lasts()*9/10 {
						sooner++
					}
				}
				if sum != bound || len(ends) > parts {
					t.Fatalf("seed %d: %v, want %d in at most %d parts", seed, ends, bound, parts)
				}
				for at := time.Duration(0); at < rate.Lasts(); at += rate.Lasts() / 500 {
					told := uint64(0)
					for _, e := range ends {
						if e.In > at {
							told += e.Cost
						}
					}
					if is := min(bound, spent.Bound(rate, 1000, later(at))); told < is {
						t.Fatalf("seed %d: in %v %d are said to be held, and %d are: %v", seed, at, told, is, ends)
					}
				}
			}
			if !rate.Bucket() && sooner == 0 {
				t.Error("nothing is said to be free sooner than a window later")
			}
		})
	}
}
