package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A limit is raised by far; one edge spends the new one, and no other admits it
// again, though most who count know of the old one alone for as long as they rest.
func TestRaisedLimitIsOne(t *testing.T) {
	for _, raised := range []uint64{150, 1000, 100_000} {
		w := newWorld(t, rules(limit.RateSpec{Name: "r", Limit: 10, Per: 10 * time.Minute}))
		spent := uint64(0)
		ask := func(edge string, apart time.Duration) {
			w.Advance(w.Now().Add(apart))
			if check(w, edge, "u").Allowed {
				spent++
			}
		}
		for _, e := range []string{"eu-1", "eu-2", "us-1"} {
			ask(e, 0)
		}
		w.Advance(w.Now().Add(3 * time.Second))
		if err := w.SetRules("", rules(limit.RateSpec{Name: "r", Limit: raised, Per: 10 * time.Minute})); err != nil {
			t.Fatal(err)
		}
		for range min(900, raised*9/10) {
			ask("eu-1", 5*time.Millisecond)
		}
		want := spent
		w.Advance(w.Now().Add(3 * time.Second))
		d := check(w, "us-1", "u")
		if got := d.Basis.Local + d.Basis.Merged; got < want {
			t.Errorf("10 raised to %d: us-1 knows of %d, want the %d that were admitted", raised, got, want)
		}
		for range min(2000, raised) {
			ask("us-1", 20*time.Millisecond)
		}
		if most := raised + 1; spent > most { // and the one that was not counted
			t.Errorf("10 raised to %d: %d admitted", raised, spent)
		}
	}
}

// A strict limit that the rules raise can be used by whoever is asked, though most who
// hold rights rest, and hold on to those that they have spent.
func TestStrictLimitsAreRaised(t *testing.T) {
	const per = 10 * time.Minute
	spec := limit.RateSpec{Name: "r", Limit: 100, Per: per, Consistency: "strict"}
	w := wideOf(t, 2, 3, func(c *Config) { c.Seed = 3 }, spec)
	w.Advance(start.Add(20*time.Second + per)) // until when no log is trusted
	for range 10 {
		for _, e := range w.Edges() {
			check(w, e, "u")
		}
		w.Advance(w.Now().Add(500 * time.Millisecond))
	}
	spec.Limit = 10_000
	if err := w.SetRules("", rules(spec)); err != nil {
		t.Fatal(err)
	}
	began, admitted := w.Now(), 0
	for admitted < 200 {
		w.Advance(w.Now().Add(100 * time.Millisecond))
		if check(w, w.Edges()[0], "u").Allowed {
			admitted++
		}
		if passed := w.Now().Sub(began); passed > time.Minute {
			t.Fatalf("%d are admitted in %v since 100 were raised to 10,000, want 200", admitted, passed)
		}
	}
}
