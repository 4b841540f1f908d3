package measure

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/sim/scenarios"
)

// A20, in small: edges tell bounds that cover what happens, without changing it.
func TestBoundsCover(t *testing.T) {
	t.Parallel()
	for _, consistency := range []string{"loose", "adaptive"} {
		for _, name := range []string{"flash-all", "steady-2x", "partition", "under-50"} {
			o := options(t, name)
			o.Limit, o.Consistency = 100, consistency
			plain, err := Run(o)
			if err != nil {
				t.Fatal(err)
			}
			f, b, err := RunBounds(o)
			if err != nil {
				t.Fatal(err)
			}
			if f != plain {
				t.Errorf("%s, %s: %+v with bounds, %+v without", name, consistency, f, plain)
			}
			w := &b.Windows
			if w.All < 100 || b.Checks.All != f.Requests || (w.Over > 0) != (f.Over > 0) {
				t.Errorf("%s, %s: %d windows of %d requests, %d over; over is %v", name, consistency, w.All, b.Checks.All, w.Over, f.Over)
			}
			if w.Uncovered > 0 || w.Surged > 0 {
				t.Errorf("%s, %s: of %d windows %d are above error_bound, %d above error_bound_surge", name, consistency, w.All, w.Uncovered, w.Surged)
			}
			if b.Checks.Uncovered > b.Checks.All/50 {
				t.Errorf("%s, %s: %d of %d requests above what their own edge told", name, consistency, b.Checks.Uncovered, b.Checks.All)
			}
			t.Logf("%s, %s: %d windows, %d over, median %.1f; %d of %d requests uncovered", name, consistency, w.All, w.Over, w.Median(), b.Checks.Uncovered, b.Checks.All)
		}
	}
}

// Those who are cut off and open admit a limit of their own, and others who share what
// they admitted hear of it when the cut is over.
func TestBoundsCoverWhoIsOpen(t *testing.T) {
	t.Parallel()
	for _, window := range []time.Duration{time.Second, 10 * time.Second} {
		o := options(t, "partition")
		o.Limit, o.Window, o.Consistency, o.Conditions.OnPartition = 1000, window, "adaptive", "open"
		_, b, err := RunBounds(o)
		if err != nil {
			t.Fatal(err)
		}
		if w := &b.Windows; w.Over < w.All/5 || w.Uncovered > 0 || w.Surged > 0 {
			t.Errorf("%v: of %d windows %d are over, %d above error_bound, %d above error_bound_surge", window, w.All, w.Over, w.Uncovered, w.Surged)
		}
	}
}

// A bucket keeps what both sides of a cut admit too much: bounds grow with it, and stay
// until it has drained.
func TestBoundsCoverBuckets(t *testing.T) {
	t.Parallel()
	for _, on := range []string{"share", "open"} {
		for _, consistency := range []string{"loose", "adaptive"} {
			o := options(t, "partition")
			o.Limit, o.Consistency, o.Algorithm = 100, consistency, "token_bucket"
			if on == "open" {
				o.Conditions.OnPartition = on
			}
			_, b, err := RunBounds(o)
			if err != nil {
				t.Fatal(err)
			}
			if w := &b.Windows; w.Over < w.All/2 || w.Uncovered > 0 || w.Surged > 0 || w.Median() > 20 {
				t.Errorf("%s, %s: of %d windows %d are over, %d above error_bound, %d above error_bound_surge; median %.1f", on, consistency, w.All, w.Over, w.Uncovered, w.Surged, w.Median())
			}
		}
	}
}

// What cuts leave in a bucket adds up where as much is asked for as drains, and bounds know.
func TestBoundsCoverBucketsCutAgain(t *testing.T) {
	for name, cuts := range map[string][]float64{"one of 40 s": {5, 40}, "two of 10 s": {5, 10, 25, 10}} {
		s := scenarios.Scenario{Name: name, Demand: []scenarios.Demand{{Rate: 2, Where: scenarios.All}}}
		for i := 0; i < len(cuts); i += 2 {
			s.Faults = append(s.Faults, scenarios.Fault{Cut: 2, From: scenarios.Span{Seconds: cuts[i]}, For: scenarios.Span{Seconds: cuts[i+1]}})
			s.Lasts = scenarios.Span{Seconds: cuts[i] + cuts[i+1] + 10}
		}
		_, b, err := RunBounds(Options{Scenario: s, Limit: 100, Window: time.Second, Regions: 5, Edges: 2, Consistency: "adaptive", Algorithm: "token_bucket"})
		if err != nil {
			t.Fatal(err)
		}
		if w := &b.Windows; w.Over < w.All/2 || w.Uncovered > 0 || w.Surged > 0 || w.Median() > 20 {
			t.Errorf("%s: of %d windows %d are over, %d above error_bound, %d above error_bound_surge; median %.1f", name, w.All, w.Over, w.Uncovered, w.Surged, w.Median())
		}
	}
}

// Budgets have news wait, some costs come in large pieces, and some crowds are larger than
// the rate says: bounds know.
func TestBoundsCoverUnderConditions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]scenarios.Conditions{
		"budget": {Budget: 5000}, "costs": {Costs: 5}, "surge": {Surge: 2},
	} {
		for _, consistency := range []string{"loose", "adaptive"} {
			var all Tally
			for seed := range uint64(3) {
				o := options(t, "flash-all")
				o.Limit, o.Consistency, o.Conditions, o.Seed = 100, consistency, c, seed
				_, b, err := RunBounds(o)
				if err != nil {
					t.Fatal(err)
				}
				all.Add(&b.Windows)
			}
			if all.Over < all.All/10 || all.Uncovered > 0 || all.Surged > 0 {
				t.Errorf("%s, %s: of %d windows %d are over, %d above error_bound, %d above error_bound_surge", name, consistency, all.All, all.Over, all.Uncovered, all.Surged)
			}
		}
	}
}

// What is counted, by hand.
func TestTally(t *testing.T) {
	var w Tally
	for _, c := range []struct{ over, now, surge uint64 }{{0, 3, 9}, {2, 8, 9}, {4, 3, 9}, {10, 12, 13}, {10, 3, 9}} {
		w.count(c.over, limit.Bound{Now: c.now, Surge: c.surge, Known: true})
	}
	if w.All != 5 || w.Over != 4 || w.Uncovered != 2 || w.Surged != 1 || w.Median() != 1.2 {
		t.Errorf("%+v, median %v; want 5 windows, 4 over, 2 uncovered, 1 of them under a surge too, 1.2", w, w.Median())
	}
	l := log{limit: 2, window: time.Second, of: []admission{{0, 5}, {500 * time.Millisecond, 2}, {900 * time.Millisecond, 1}}}
	for at, want := range map[time.Duration]uint64{900 * time.Millisecond: 6, time.Second: 1, 1600 * time.Millisecond: 0} {
		if got := l.above(at); got != want {
			t.Errorf("at %v: %d above, want %d", at, got, want)
		}
	}
}
