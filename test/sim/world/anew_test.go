package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A region starts with nothing, aggregators and store, when another has had nothing to
// tell it for a while and the edges that counted there are gone: it is told all that it
// was told before, in every lane, within six seconds.
func TestARegionThatStartsAnewIsToldOfQuietLanes(t *testing.T) {
	w := wideOf(t, 2, 1, func(cfg *Config) { cfg.Lanes = 4 }, limit.RateSpec{Limit: 100, Per: time.Hour, Consistency: "loose"})
	w.Advance(start.Add(2 * time.Second))
	users := make([]string, 32)
	for i := range users {
		users[i] = fmt.Sprint("u", i)
		for range 60 {
			check(w, "r0-0", users[i])
		}
	}
	rest(w, 3*time.Second)
	w.Depart("r0-0")
	rest(w, 3*time.Second)
	w.Store("r1").Wipe()
	if err := w.Crash("r1-0"); err != nil {
		t.Fatal(err)
	}
	for _, v := range w.Servers("r1") {
		if err := w.Start(v); err != nil {
			t.Fatal(err)
		}
	}
	rest(w, 6*time.Second)
	for _, user := range users {
		peek(w, "r1-0", user) // who spends is told with what he tells
	}
	rest(w, time.Second)
	for _, user := range users {
		if got := believed(w, "r1-0", user); got != 60 {
			t.Errorf("r1 knows of %d requests of %s, want the 60 of r0", got, user)
		}
	}
}
