package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// TestNextRefresh: Tick sends resting counts again at the instant that
// NextRefresh names, and not before.
func TestNextRefresh(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if got := n.NextRefresh(); !got.IsZero() {
		t.Fatalf("NextRefresh of an empty node = %v, want none", got)
	}
	check(n, now, "u")
	if got := n.NextRefresh(); !got.IsZero() {
		t.Errorf("NextRefresh before the first flush = %v, want none: the flush brings it", got)
	}
	n.Flush(now)
	next := n.NextRefresh()
	if want := now.Add(10*time.Minute + 1); !next.Equal(want) {
		t.Fatalf("NextRefresh = %v, want %v", next, want)
	}
	sweep := func(at time.Time) (dirty int) {
		for range 10 {
			n.Tick(at)
		}
		for i := range n.shards {
			for _, list := range n.shards[i].dirty {
				dirty += len(list)
			}
		}
		return dirty
	}
	if got := sweep(next.Add(-1)); got != 0 {
		t.Errorf("%d records to be sent again before NextRefresh, want 0", got)
	}
	if got := sweep(next); got != 1 {
		t.Errorf("%d records to be sent again at NextRefresh, want 1", got)
	}
	n.Flush(next)
	n.Flush(now.Add(55 * time.Minute)) // as if it had been sent then
	if got := n.NextRefresh(); got.IsZero() {
		t.Error("no refresh though the counts matter until the hour is over")
	}
}

// Counts that will have left their window by then are not sent again.
func TestNoRefreshOfWhatRetires(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Second}))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	check(n, now, "u")
	n.Flush(now)
	if got := n.NextRefresh(); !got.IsZero() {
		t.Errorf("NextRefresh = %v, want none", got)
	}
}
