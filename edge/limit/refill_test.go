package limit_test

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func TestFullBefore(t *testing.T) {
	for _, c := range []struct {
		rate  limit.Rate
		empty time.Duration
		want  uint64
	}{
		{limit.Rate{Ceiling: 10, Drain: limit.Drain{Refill: 5, Per: time.Second}}, 0, 0},
		{limit.Rate{Ceiling: 10, Drain: limit.Drain{Refill: 5, Per: time.Second}}, time.Second, 5},
		{limit.Rate{Ceiling: 10, Drain: limit.Drain{Refill: 5, Per: time.Second}}, time.Second + 1, 6},
		{limit.Rate{Ceiling: 10, Drain: limit.Drain{Refill: 5, Per: time.Second}}, time.Hour, 10},
		{limit.Rate{Ceiling: 15, Drain: limit.Drain{Refill: 5, Per: time.Second, Floor: 5}}, -1, 5},
		{limit.Rate{Ceiling: 15, Drain: limit.Drain{Refill: 5, Per: time.Second, Floor: 5}}, time.Second, 10},
		{limit.Rate{Ceiling: math.MaxUint64, Drain: limit.Drain{Refill: math.MaxUint64, Per: 1, Floor: 5}}, math.MaxInt64, math.MaxUint64},
		{limit.Rate{Ceiling: 10}, time.Hour, 0},
		{limit.Rate{Ceiling: 10, MaxDelay: 2 * time.Second, Drain: limit.Drain{Refill: 5, Per: time.Second}}, 3 * time.Second, 15},
		{limit.Rate{Ceiling: 10, MaxDelay: 2 * time.Second, Drain: limit.Drain{Refill: 5, Per: time.Second}}, time.Hour, 20},
	} {
		if got := c.rate.FullBefore(c.empty); got != c.want {
			t.Errorf("%+v, empty after %v: %d, want %d", c.rate.Drain, c.empty, got, c.want)
		}
	}
}
