package limit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// However far a clock is set back, and how often, nobody is locked out of a window that
// begins by it for longer than one by a clock that nobody sets, and Frees tells of no later
// time; and in none that is as long are more than two limits spent, as in two that follow
// each other by right clocks.
func TestSpentByLabelWhenClocksAreSetBack(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		spec   limit.RateSpec
		window time.Duration // the longest
	}{
		"minutes": {limit.RateSpec{Algorithm: "fixed_window", Limit: 10, Per: time.Minute}, time.Minute},
		"days":    {limit.RateSpec{Limit: 10, Period: "day", Align: "Europe/Paris"}, day + time.Hour},
		"months":  {limit.RateSpec{Limit: 10, Period: "month", Align: "America/New_York"}, 31*day + time.Hour},
	} {
		rate := spentRate(t, test.spec)
		longest := test.window + 2*time.Second // by which clocks may be apart
		for seed := range uint64(200) {
			rnd := rand.New(rand.NewPCG(seed, 6))
			var s limit.Spent
			at := limit.Instant{Boot: time.Hour, Wall: 1_790_000_000_000_000_000 + rnd.Int64N(int64(rate.Window))}
			pace, sets := rate.Window/50, 1+rnd.IntN(3)
			var log []spend
			last := at.Boot
			for range 600 {
				step := time.Duration(rnd.Int64N(int64(pace)))
				at.Boot, at.Wall = at.Boot+step, at.Wall+int64(step)
				if sets > 0 && rnd.IntN(60) == 0 {
					sets--
					at.Wall -= rnd.Int64N(int64(5 * rate.Window))
				}
				if s.Used(rate, 10, at) == 10 {
					if locked := at.Boot - last; locked > longest {
						t.Fatalf("%s, seed %d: locked out for %v, want at most %v", name, seed, locked, longest)
					}
					if wait := at.Boot + s.Frees(rate, 10, at) - last; wait > longest {
						t.Fatalf("%s, seed %d: free %v after the last was spent, want at most %v", name, seed, wait, longest)
					}
					continue
				}
				if rnd.IntN(3) > 0 {
					s.Spend(rate, 1, 10, at)
					log, last = append(log, spend{at, 1}), at.Boot
				}
				spent := 0
				for _, l := range log {
					if at.Boot-l.at.Boot < 9*rate.Window/10 { // a month may be that short
						spent++
					}
				}
				if spent > 20 {
					t.Fatalf("%s, seed %d: %d spent within a window, want at most 20", name, seed, spent)
				}
			}
			if len(log) < 20 {
				t.Errorf("%s, seed %d: %d spent: this test sees too little", name, seed, len(log))
			}
		}
	}
}
