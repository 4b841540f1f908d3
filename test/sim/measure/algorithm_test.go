package measure

import (
	"math"
	"testing"
	"time"
)

// What is over, and what is free, by hand: 4 a second, in each way to count them.
func TestLogsByAlgorithm(t *testing.T) {
	type want struct {
		over          float64
		excess, wrong uint64
	}
	slides := want{3. / 4, 3, 1} // 3 and 4 within a second; of the two that are denied the second had room
	drains := want{0.35, 2, 2}   // 3 are 1.4 after 400 ms, and 5.4 with 4 more; 2.6 are left when the first is denied
	for algorithm, want := range map[string]want{
		"": slides, "sub_windows": slides, "sliding_window": slides, "sliding_log": slides,
		"fixed_window": {0, 0, 1}, // each second has enough, until the next begins
		"token_bucket": drains, "leaky_bucket": drains,
	} {
		u := newUser("u", limits(Options{Limit: 4, Window: time.Second, Algorithm: algorithm}))
		for _, a := range []struct {
			at      time.Duration
			cost    uint64
			allowed bool
		}{{600, 3, true}, {1000, 4, true}, {1700, 1, false}, {2000, 1, false}} {
			at := a.at * time.Millisecond
			u.asks(at, a.cost)
			u.saw(at, a.cost, a.allowed)
			if a.allowed {
				if _, above := u.admitted.above(); u.admitted.logs[0].above(at) != above {
					t.Errorf("%q at %v: %d above, then %d", algorithm, at, above, u.admitted.logs[0].above(at))
				}
			}
		}
		if math.Abs(u.over-want.over) > 1e-9 || u.excess != want.excess || u.wrong != want.wrong {
			t.Errorf("%q: over %v, %d of it, wrong %d; want %+v", algorithm, u.over, u.excess, u.wrong, want)
		}
	}
}

// Every algorithm is measured: naive edges exceed it, strict ones never do, and edges tell
// bounds of it.
func TestEachAlgorithmIsMeasured(t *testing.T) {
	t.Parallel()
	for _, algorithm := range Algorithms {
		o := options(t, "flash-all")
		o.Limit, o.Algorithm, o.Consistency = 100, algorithm, "strict"
		o.Conditions.ClockOffset, o.Conditions.Uncorrected = 500*time.Millisecond, true
		if algorithm == "fixed_window" { // each edge begins one by its clock
			o.Conditions.ClockOffset, o.Conditions.Uncorrected = 0, false
		}
		strict, err := Run(o)
		if err != nil {
			t.Fatalf("%s: %v", algorithm, err)
		}
		if strict.Over != 0 || strict.Util < 0.8 {
			t.Errorf("%s, strict: over %v, util %v", algorithm, strict.Over, strict.Util)
		}
		o.Consistency = Naive
		naive, b, err := RunBounds(o)
		if err != nil {
			t.Fatal(err)
		}
		if naive.Over < 0.5 || b.Windows.Over == 0 || b.Checks.All != naive.Requests {
			t.Errorf("%s, naive: over %v, %d windows over, bounds of %d requests of %d", algorithm, naive.Over, b.Windows.Over, b.Checks.All, naive.Requests)
		}
	}
	if KnowsAlgorithm("concurrency") == nil {
		t.Error("concurrency is taken, and nobody gives slots back")
	}
}
