package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A refill was raised, or a capacity lowered, so that a bucket drains sooner in slices
// that stay as wide: an edge that starts, and sees the key for the first time, is told
// its level.
func TestLevelAfterAShorterBucket(t *testing.T) {
	bucket := func(capacity, perMinute uint64) []limit.Document {
		return rules(limit.RateSpec{Name: "b", Algorithm: "token_bucket", Capacity: capacity, Refill: limit.Flow{Units: perMinute, Per: time.Minute}})
	}
	for _, c := range []struct{ cap0, per0, cap1, per1 uint64 }{
		{120, 106, 120, 106}, {120, 60, 120, 106}, {120, 60, 70, 60}, {1900, 60, 1900, 108},
		{6400, 4000, 6400, 6000}, // drains in a whole number of slices
	} {
		w := wide(t, 2, 2, limit.RateSpec{Name: "b", Algorithm: "token_bucket", Capacity: c.cap0, Refill: limit.Flow{Units: c.per0, Per: time.Minute}})
		n := 2 * max(500, int(c.cap0))
		for i := range n { // full
			w.Advance(w.Now().Add(100 * time.Second / time.Duration(n)))
			check(w, w.Edges()[i%4], "u")
		}
		if err := w.SetRules("", bucket(c.cap1, c.per1)); err != nil {
			t.Fatal(err)
		}
		step := time.Minute / time.Duration(c.per1) * 105 / 100
		for i := range int(time.Minute / step * 11 / 10) { // it stays about full
			w.Advance(w.Now().Add(step))
			check(w, w.Edges()[i%4], "u")
		}
		if err := w.Crash("r0-0"); err != nil {
			t.Fatal(err)
		}
		check(w, "r0-0", "u")
		w.Advance(w.Now().Add(2 * time.Second))
		left, allowed := check(w, "r0-1", "u").Remaining, uint64(0)
		for range c.cap1 {
			if check(w, "r0-0", "u").Allowed {
				allowed++
			}
		}
		if allowed > left+6 {
			t.Errorf("%d, %d/min -> %d, %d/min: the other edges say %d are left; one that was restarted admits %d", c.cap0, c.per0, c.cap1, c.per1, left, allowed)
		}
	}
}
