package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A wait says how much of it no slot that is released makes shorter.
func TestWaitBesideSlots(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Algorithm: "concurrency", Limit: 1, Lease: time.Minute},
		limit.RateSpec{Name: "log", Algorithm: "sliding_log", Limit: 1, Per: 30 * time.Second}))
	if d := check(n, start, "u"); !d.Allowed {
		t.Fatal(d)
	}
	if d := check(n, start, "u"); d.Allowed || d.RetryAfter < time.Minute || d.Least < 30*time.Second || d.Least > 31*time.Second {
		t.Errorf("%+v, want a wait of a minute, and at least 30 s of it", d)
	}
	if d := check(n, start.Add(31*time.Second), "u"); d.Allowed || d.Least != 0 {
		t.Errorf("%+v, want a wait for the slot alone", d)
	}
}
