package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// A flood of new keys fills the outbox again and again: one that reaches half of
// its limit meanwhile goes with the next frame all the same, and so does one that
// is refreshed or asks.
func TestFloodKeepsNobodyBackWhoIsNearItsLimit(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	n.outboxes[0] = deltasync.NewOutbox(deltasync.OutboxConfig{MaxDeltas: 800, ReserveOneIn: 8})
	now, users := start, 0
	flood := func() {
		for range 3000 {
			check(n, now, fmt.Sprint("flood", users))
			users++
		}
	}
	// told is what the next frame tells of a user, nil: nothing. It is lost.
	told := func(user string) *deltasync.Delta {
		t.Helper()
		now = now.Add(time.Second)
		up := upOf(t, n.Flush(now)[:1])
		n.Lost(now, 0, up.Seq)
		now = now.Add(2 * time.Second)
		for i := range up.Sections {
			for j := range up.Sections[i].Deltas {
				if d := &up.Sections[i].Deltas[j]; d.Key == keyOf(n, user) {
					return d
				}
			}
		}
		return nil
	}
	flood()
	for range 30 {
		check(n, now, "low")
	}
	if told("low") != nil {
		t.Fatal("a key at 30 % passes all those that came before it: the flood is too small")
	}
	flood()
	for range 51 {
		check(n, now, "high")
	}
	if d := told("high"); d == nil || d.Cells[0].Charges != 51 {
		t.Errorf("the next frame tells %+v of a key at 51 %%, want 51 charges", d)
	}
	flood()
	check(n, now, "high")
	if d := told("high"); d == nil || d.Cells[len(d.Cells)-1].Charges != 52 && len(d.Cells) == 1 {
		t.Errorf("once more: %+v, want 52 charges", d)
	}
}

// Receipts give back all of a window that goes on, whichever hits of it were given back before: what
// comes after that is not taken for the first hit of a slice that has others.
func TestReceiptsOfAWindowThatGoesOn(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Algorithm: "fixed_window", Align: "first_hit", Limit: 30, Per: 10 * time.Hour, Scope: "edge"}))
	var receipts [][]limit.Charge
	now := start.Add(12 * time.Hour)
	charge := func(after time.Duration) {
		now = now.Add(after)
		_, c := take(t, n, now, "u", 4)
		receipts = append(receipts, c)
	}
	back := func() {
		n.Refund(now, receipts[0], 0)
		receipts = receipts[1:]
	}
	charge(time.Minute)
	charge(20 * time.Minute)
	charge(20 * time.Minute)
	back() // the window begins with the next slice that has hits
	charge(time.Minute)
	back()
	charge(time.Second)
	for len(receipts) > 0 {
		back()
	}
	if got := through(n, now, "u", 40); got != 30 {
		t.Errorf("all is given back, and %d of 30 admitted", got)
	}
}
