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
