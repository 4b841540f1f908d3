//go:build !race

// The race detector makes sync.Pool forget at random, so allocations are
// counted without it; ./test/run runs these tests both ways.

package edge

import (
	"net/http"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func TestCheckAllocatesNothing(t *testing.T) {
	n := newNode(t, Config{}, perUser(
		limit.RateSpec{Limit: 50, Per: time.Second},
		limit.RateSpec{Name: "minute", Limit: 1000, Per: time.Minute},
		limit.RateSpec{Name: "fixed", Limit: 1000, Per: time.Second, Algorithm: "fixed_window"},
	))
	ns := n.Rules().Only()
	header := http.Header{"X-Whatever": {"1"}}
	now := start
	for i := range 20000 { // through many windows, so that every slice was there once
		req := ns.NewRequest()
		req.SetHTTP("GET", "/x", "h", "192.0.2.1", header)
		req.Set("user", "u")
		n.Check(now, req)
		req.Release()
		now = now.Add(7 * time.Millisecond)
		if i%100 == 0 {
			settleFrames(n, now)
		}
	}
	settleFrames(n, now)
	if got := testing.AllocsPerRun(5000, func() {
		now = now.Add(3 * time.Millisecond)
		req := ns.NewRequest()
		req.SetHTTP("GET", "/x", "h", "192.0.2.1", header)
		req.Set("user", "u")
		n.Check(now, req)
		req.Release()
	}); got != 0 {
		t.Fatalf("Check allocates %v times a call, want 0", got)
	}
}
