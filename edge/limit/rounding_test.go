package limit_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// TestRoundingOfTheLastUnit: five in the window before count 3.5 after 30 % of
// this one, with 3 in it. Of 7 that leaves room for one more only if the half
// is dropped, and the wait for it is until the five count 3 in full.
func TestRoundingOfTheLastUnit(t *testing.T) {
	const at, width = 78 * time.Second, time.Minute
	for round, want := range map[string]struct {
		used uint64
		wait time.Duration
	}{
		"":     {6, 0}, // down
		"down": {6, 0},
		"none": {7, 6 * time.Second}, // 5 × (60-24)/60 = 3
		"up":   {7, 6 * time.Second},
	} {
		r := compileRate(t, limit.RateSpec{Limit: 7, Per: width, Algorithm: "sliding_window", Round: round})
		now := epoch + int64(at)
		slice := r.SliceAt(now)
		sums := []crdt.Cell{{Slice: slice - 1, Charges: 5}, {Slice: slice, Charges: 3}}
		level := r.Used(sums, limit.Carry{}, now)
		if level != (limit.Level{Whole: 6, Part: true}) {
			t.Fatalf("round %q: Used = %+v, want 6 and a part", round, level)
		}
		if got := r.Rounded(level); got != want.used || r.Room(level) != 7-want.used {
			t.Errorf("round %q: Rounded = %d with room for %d, want %d", round, got, r.Room(level), want.used)
		}
		if want.wait == 0 {
			continue
		}
		if got := r.RetryAfter(sums, limit.Carry{}, 1, now); got != want.wait {
			t.Errorf("round %q: RetryAfter = %v, want %v", round, got, want.wait)
		}
	}
	down := compileRate(t, limit.RateSpec{Limit: 7, Per: width, Algorithm: "sliding_window", Round: "down"})
	none := compileRate(t, limit.RateSpec{Limit: 7, Per: width, Algorithm: "sliding_window", Round: "none"})
	if down.Round != limit.RoundDown || none.Round != limit.RoundNone {
		t.Errorf("compiled as %v and %v, want down and none", down.Round, none.Round)
	}
}
