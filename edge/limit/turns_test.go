package limit_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// The last in a queue flows out by the pace that he was told his turn by, or by a faster one
// that comes next: whatever others went by since.
func TestHandedByTheFasterPace(t *testing.T) {
	pace := func(per time.Duration) *limit.Rate {
		return compileRate(t, limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: per}, Queue: true})
	}
	var x limit.Exact
	x.Charge(pace(840*time.Millisecond), 8, epoch)
	x.Queued(pace(840*time.Millisecond), 8, epoch, epoch)
	x.Charge(pace(time.Second), 1, epoch)
	for next, want := range map[time.Duration]time.Duration{
		500 * time.Millisecond: 4 * time.Second,
		840 * time.Millisecond: 6720 * time.Millisecond,
		2 * time.Second:        6720 * time.Millisecond,
	} {
		if lines, _ := x.Handed(pace(next)); lines[0] != epoch+int64(want) {
			t.Errorf("8 at one per 840 ms, handed to one per %v: out after %v, want %v", next, time.Duration(lines[0]-epoch), want)
		}
	}
}
