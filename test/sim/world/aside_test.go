package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Both sides of a cut have their parts of a bucket's refill too, not the whole of it each;
// and when the cut is over they do not begin anew with a bucket that seems empty.
func TestSidesOfACutShareARefill(t *testing.T) {
	for _, capacity := range []uint64{100, 1000} {
		w := wide(t, 5, 2, limit.RateSpec{Algorithm: "token_bucket", Capacity: capacity, Refill: limit.Flow{Units: 100, Per: time.Second}})
		w.Advance(start.Add(5 * time.Second))
		storm(w, 300, time.Duration(capacity/100)*2*time.Second, 1)
		before := storm(w, 300, 5*time.Second, 1)
		w.Cut("r2", true)
		storm(w, 300, 2*time.Second, 1)
		during := storm(w, 300, 10*time.Second, 1)
		w.Cut("r2", false)
		after := storm(w, 300, 5*time.Second, 1)
		t.Logf("%d: %d in 5 s before the cut, %d in 10 s of it, %d in 5 s after it", capacity, before, during, after)
		if before < 450 || before > 550 || during < 850 || during > 1100 || after < 400 || after > 600 {
			t.Errorf("of a bucket of %d with 100/s %d are admitted in 5 s before a cut, %d in 10 s of it, %d in 5 s after it", capacity, before, during, after)
		}
	}
}
