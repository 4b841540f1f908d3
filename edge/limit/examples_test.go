package limit_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// step is a number of hits at an instant, and how many of them are admitted.
type step struct {
	at             time.Duration
	hits, admitted int
}

// The source documents' own examples, by algorithm, and what they imply.
func TestWorkedExamples(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		spec  limit.RateSpec
		steps []step
	}{
		"D1 fixed: five at the end of a minute and five at the start of the next": {
			limit.RateSpec{Limit: 5, Per: time.Minute, Algorithm: "fixed_window"},
			[]step{{59 * time.Second, 6, 5}, {60 * time.Second, 6, 5}, {119 * time.Second, 1, 0}, {120 * time.Second, 1, 1}},
		},
		"D1 sliding: not the second five": {
			limit.RateSpec{Limit: 5, Per: time.Minute},
			[]step{{59 * time.Second, 6, 5}, {60 * time.Second, 6, 0}, {118 * time.Second, 1, 0}, {120 * time.Second, 6, 5}},
		},
		"D1 from the first hit: a window of its own": {
			limit.RateSpec{Limit: 5, Per: time.Minute, Algorithm: "fixed_window", Align: "first_hit"},
			[]step{{59 * time.Second, 6, 5}, {60 * time.Second, 6, 0}, {119*time.Second - 1, 1, 0}, {119 * time.Second, 6, 5}, {178 * time.Second, 1, 0}},
		},
		"D2 log: two a minute at 1:00:01, 1:00:30, 1:00:50, 1:01:40": {
			limit.RateSpec{Limit: 2, Per: time.Minute, Algorithm: "sliding_log"},
			[]step{{3601 * time.Second, 1, 1}, {3630 * time.Second, 1, 1}, {3650 * time.Second, 1, 0}, {3700 * time.Second, 1, 1}, {3701 * time.Second, 2, 1}},
		},
		"D2 log, denied hits counted": {
			limit.RateSpec{Limit: 2, Per: time.Minute, Algorithm: "sliding_log", CountDenied: true},
			[]step{{3601 * time.Second, 1, 1}, {3630 * time.Second, 1, 1}, {3650 * time.Second, 1, 0}, {3700 * time.Second, 1, 1}, {3701 * time.Second, 1, 0}},
		},
		"D3 sliding: 5 before, 3 now, 30 % in: 6.5 is under 7, then it is not": {
			limit.RateSpec{Limit: 7, Per: time.Minute, Algorithm: "sliding_window"},
			[]step{{0, 5, 5}, {72 * time.Second, 3, 3}, {78 * time.Second, 2, 1}},
		},
		"D3 without rounding down 6.5 leaves no room": {
			limit.RateSpec{Limit: 7, Per: time.Minute, Algorithm: "sliding_window", Round: "none"},
			[]step{{0, 5, 5}, {72 * time.Second, 3, 3}, {78 * time.Second, 1, 0}},
		},
		"D4 sub-windows: an hour of 60, the last 60 minutes count": {
			limit.RateSpec{Limit: 10, Per: time.Hour, Slices: 60},
			[]step{{0, 4, 4}, {30 * time.Minute, 8, 6}, {59 * time.Minute, 1, 0},
				{60 * time.Minute, 1, 0},                // the first minute still overlaps in full
				{60*time.Minute + 30*time.Second, 3, 2}, // half of it: 2 of 4
				{61 * time.Minute, 3, 2}, {90 * time.Minute, 1, 0}, {91 * time.Minute, 7, 6}},
		},
		"D4 with the oldest in full": {
			limit.RateSpec{Limit: 10, Per: time.Hour, Slices: 60, Oldest: "full"},
			[]step{{0, 11, 10}, {61*time.Minute - 1, 1, 0}, {61 * time.Minute, 11, 10}},
		},
		"D5 tokens: ten at 5 a second, the burst, 2 after 200 ms (one passes), then 1200 ms": {
			limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(5)},
			[]step{{0, 12, 10}, {200 * ms, 2, 1}, {1200 * ms, 7, 5}, {1400*ms - 1, 1, 0}, {1400 * ms, 1, 1}, {time.Minute, 11, 10}},
		},
		"D6 leaky, as a meter": {
			limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 3, Outflow: limit.Flow{Units: 2, Per: time.Minute}},
			[]step{{0, 5, 3}, {30*time.Second - 1, 1, 0}, {30 * time.Second, 2, 1}, {time.Hour, 5, 3}},
		},
		"D6 leaky, as a queue that holds nobody for more than 2 s": {
			limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 100, Outflow: perSecond(1), Queue: true, MaxWait: 2 * time.Second},
			[]step{{0, 9, 3}, {500 * ms, 1, 0}, {time.Second, 2, 1}},
		},
		"concurrency: three at a time, and the slots of the dead come back": {
			limit.RateSpec{Algorithm: "concurrency", Limit: 3, Lease: 40 * time.Second},
			[]step{{0, 5, 3}, {40 * time.Second, 1, 0}, {41 * time.Second, 5, 3}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := &edge{rate: compileRate(t, tc.spec)}
			for _, s := range tc.steps {
				now, admitted := epoch+int64(s.at), 0
				for range s.hits {
					if e.hit(1, now) {
						admitted++
					} else if tc.spec.CountDenied {
						e.charge(1, now)
					}
				}
				if admitted != s.admitted {
					t.Errorf("at %v: %d of %d hits admitted, want %d", s.at, admitted, s.hits, s.admitted)
				}
				e.retire(now)
			}
		})
	}
}
