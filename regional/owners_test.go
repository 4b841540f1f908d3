package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
)

// Two who both own a lane and never hear of each other lack what the other took for
// as long as they may, and no longer.
func TestTwoOwnersLackNoMoreThanTheBound(t *testing.T) {
	now := start
	store := newStore(&now)
	a, b := newRegion(t, "eu", store), newRegion(t, "eu", store)
	after := func(d time.Duration) {
		now = start.Add(d)
		a.now, b.now = now, now
	}
	asks := func(r *region) uint64 { return charges((&edge{name: "asks"}).tell(r, 9).Totals[0].Peers) }
	(&edge{name: "e1"}).tell(a, 9, charge(now, 5))
	if got := asks(b); got != 5 {
		t.Fatalf("who has never asked the store knows %d, want 5", got)
	}
	(&edge{name: "e1"}).tell(a, 9, charge(now, 8))
	after(regional.OwnersApart)
	if got := asks(b); got != 5 {
		t.Errorf("%v later it knows %d, want 5: it does not ask at every question", regional.OwnersApart, got)
	}
	after(regional.OwnersApart + time.Millisecond)
	if got := asks(b); got != 8 {
		t.Errorf("after more than that it knows %d, want 8", got)
	}
	(&edge{name: "e1"}).tell(a, 9, charge(now, 13))
	(&edge{name: "e2"}).tell(b, 9, charge(now, 1)) // what it writes it also reads
	if got := asks(b); got != 14 {
		t.Errorf("after news of its own it knows %d, want 14", got)
	}
}
