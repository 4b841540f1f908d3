package measure

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/sim/scenarios"
)

func options(t *testing.T, name string) Options {
	t.Helper()
	s, err := scenarios.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return Options{Scenario: s, Limit: 40, Window: time.Second, Regions: 5, Edges: 2, Seed: 1, Consistency: "loose"}
}

// The exact logs, by hand: two a second.
func TestLogsByHand(t *testing.T) {
	u := newUser("u", limits(Options{Limit: 2, Window: time.Second}))
	ms := time.Millisecond
	saw := func(at time.Duration, allowed bool) {
		u.asks(at, 1)
		u.saw(at, 1, allowed)
	}
	saw(0, true)
	saw(100*ms, false)  // free: wrong
	saw(200*ms, false)  // the place was refused already
	saw(300*ms, true)   // the ideal has two by now
	saw(400*ms, true)   // one above the limit
	saw(1050*ms, false) // the log that is filled has three still
	saw(1350*ms, true)
	if u.wrong != 1 || u.over != 0.5 || u.excess != 1 || u.admitted.total != 4 || u.ideal.total != 4 {
		t.Errorf("wrong %d, over %v, %d of it, admitted %d, ideal %d; want 1, a half, 1, 4, 4", u.wrong, u.over, u.excess, u.admitted.total, u.ideal.total)
	}
}

// A request that waits is asked when it comes, and admitted later.
func TestLogsOfWhoWaits(t *testing.T) {
	u := newUser("u", limits(Options{Limit: 1, Window: time.Second}))
	u.asks(0, 1)
	u.asks(time.Second, 1)
	u.saw(300*time.Millisecond, 1, true)
	u.saw(1200*time.Millisecond, 1, true) // too soon after that
	if u.ideal.total != 2 || u.over != 1 || u.wrong != 0 {
		t.Errorf("ideal %d, over %v, wrong %d; want 2, 1, 0", u.ideal.total, u.over, u.wrong)
	}
}

// Of several limits a request must fit all, with what it costs.
func TestLogsOfThreeRates(t *testing.T) {
	o := Options{Limit: 4, Window: time.Second}
	o.Conditions.Rates = 3 // 4 a second, 12 in four, 24 in ten
	u := newUser("u", limits(o))
	for i := range 4 {
		at := time.Duration(i) * 1001 * time.Millisecond
		u.asks(at, 4)
		u.saw(at, 4, true)
	}
	if math.Abs(u.over-1./3) > 1e-9 || u.excess != 4 || u.ideal.total != 12 {
		t.Errorf("over %v, %d of it, ideal %d; want a third, 4, 12", u.over, u.excess, u.ideal.total)
	}
	u.saw(4500*time.Millisecond, 5, false)
	if u.wrong != 0 {
		t.Errorf("a cost of 5 never fits 4, yet %d were wrongly denied", u.wrong)
	}
}

// Each scenario runs, asks about as much as it says, and runs again as it ran.
func TestEachScenarioRepeats(t *testing.T) {
	t.Parallel()
	list, err := scenarios.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Keys > 1000 {
			continue // it takes a minute
		}
		o := options(t, s.Name)
		first, err := Run(o)
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		again, err := Run(o)
		if err != nil {
			t.Fatal(err)
		}
		if first != again {
			t.Errorf("%s: %+v, then %+v", s.Name, first, again)
		}
		if first.Requests < 150 || first.Util < 0.5 || first.Util > 3 || first.Messages == 0 {
			t.Errorf("%s: %+v", s.Name, first)
		}
		t.Logf("%-13s over %5.1f %%, util %5.1f %%, wrongly denied %4.1f %%, %d requests, %d messages of %d bytes",
			s.Name, 100*first.Over, 100*first.Util, 100*first.Wrong, first.Requests, first.Messages, first.Bytes)
	}
}

// Below half of its limit nobody is denied, and nothing is above it.
func TestHalfTheLimitPasses(t *testing.T) {
	f, err := Run(options(t, "under-50"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Over > 0 || f.Util < 1 {
		t.Errorf("half the limit: %+v", f)
	}
}

// Shares keep limits where loose edges do not, and cost little of what there is. (The
// targets are those of A1, A3, A5 and A6, at 100 a second; see edge/limit/README.md.)
func TestAdaptiveKeepsItsTargets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		over, util float64
		loose      float64 // times as far over are loose edges, at the least; 0: they need not be
	}{
		{"flash-all", 0.10, 0.98, 5},
		{"steady-2x", 0.09, 0.93, 5},
		{"under-80", 0.02, 0.99, 0},
		{"flash-one", 0.14, 0.98, 0},
		{"restart", 0.13, 0.92, 0},
	} {
		o := options(t, c.name)
		o.Limit, o.Consistency = 100, "adaptive"
		var worst Figures
		for seed := range uint64(3) {
			o.Seed = seed
			f, err := Run(o)
			if err != nil {
				t.Fatal(err)
			}
			if f.Over > c.over || f.Util < c.util {
				t.Errorf("%s, seed %d: over %.1f %%, util %.1f %%, want at most %.0f and at least %.0f", c.name, o.Seed, 100*f.Over, 100*f.Util, 100*c.over, 100*c.util)
			}
			worst.Over = max(worst.Over, f.Over)
		}
		if o.Seed, o.Consistency = 0, "loose"; c.loose == 0 {
			continue
		}
		f, err := Run(o)
		if err != nil {
			t.Fatal(err)
		}
		if f.Over < c.loose*worst.Over {
			t.Errorf("%s: loose edges are over by %.1f %%, adaptive ones by %.1f %%: the lag is not stressed", c.name, 100*f.Over, 100*worst.Over)
		}
	}
}
