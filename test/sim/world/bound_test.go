package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A region that is cut off is missed within 0.7 s, in what decisions rest on and
// in how far the limit may be exceeded, and is there again after the heal.
func TestBoundsKnowOfACut(t *testing.T) {
	w := wide(t, 3, 2, limit.RateSpec{Limit: 1000, Per: 10 * time.Second, Consistency: "loose"})
	w.Advance(start.Add(2 * time.Second))
	bound := func() (regions int, b limit.Bound) {
		n := w.Node("r0-0")
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		req.Set("user", "u")
		req.Bounds = true
		w.Touch()
		d := n.Check(w.Now(), req)
		return d.Basis.Regions, req.Bound
	}
	storm(w, 200, 6*time.Second, 1) // at the limit, and no further
	if regions, b := bound(); regions != 3 || b.Now == 0 || b.Now > 300 {
		t.Fatalf("at the limit: %d regions, %+v; want 3, and some of 1000", regions, b)
	}
	w.Cut("r2", true)
	storm(w, 200, 700*time.Millisecond, 1)
	if regions, b := bound(); regions != 2 || b.Now < 1000 {
		t.Errorf("0.7 s after the cut: %d regions, %+v; want 2, and a limit more", regions, b)
	}
	w.Cut("r2", false)
	storm(w, 200, 2*time.Second, 1)
	if regions, b := bound(); regions != 3 || b.Now > 500 {
		t.Errorf("two seconds after the heal: %d regions, %+v; want 3, and some of 1000", regions, b)
	}
}
