package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// An edge that much is asked for is cut off from its region, which lives: the edge has the
// share that it had for ten seconds, and then one by how many edges there are. The others
// take it for gone. So what all admit together is above the limit by no more than that.
// The figures stand in configs/README.md.
func TestShareOfAnEdgeCutOffAlone(t *testing.T) {
	for _, c := range []struct {
		limit uint64
		per   time.Duration
	}{{100, time.Second}, {1000, 10 * time.Second}} {
		w := settled(t, 5, 2, limit.RateSpec{Limit: c.limit, Per: c.per})
		hz := map[string]int{}
		for _, name := range w.Edges() {
			hz[name] = 20
		}
		hz["r0-0"] = 140
		cut := func(cut bool) {
			w.CutPath("r0-0", "r0", cut)
			w.CutPath("r0", "r0-0", cut)
		}
		var p passes
		window := func() map[string]uint64 { return p.since(w.Now().Add(-c.per)) }
		worst := func(lasts time.Duration) (most uint64) {
			for range int(lasts / (250 * time.Millisecond)) {
				p.storm(w, 250*time.Millisecond, hz)
				most = max(most, window()[""])
			}
			return most
		}
		worst(25 * time.Second)
		had := window()["r0-0"]
		cut(true)
		if most := worst(9 * time.Second); most > c.limit+had*11/10 {
			t.Errorf("%d in %v: %d in a window with the share that it had, want %d more at the most", c.limit, c.per, most, had)
		}
		if got := window()["r0-0"]; got < had*7/10 || got > had*11/10 {
			t.Errorf("%d in %v: %d at the edge, want about the %d that it had", c.limit, c.per, got, had)
		}
		worst(2*time.Second + c.per)
		if most := worst(20 * time.Second); most > c.limit*116/100 {
			t.Errorf("%d in %v: %d in a window later on, want a tenth more", c.limit, c.per, most)
		}
		if got := window()["r0-0"]; got < c.limit*8/100 || got > c.limit*12/100 {
			t.Errorf("%d in %v: %d at the edge later on, want a tenth", c.limit, c.per, got)
		}
		cut(false)
		worst(3*time.Second + c.per)
		if most := worst(10 * time.Second); most > c.limit*108/100 {
			t.Errorf("%d in %v: %d in a window after the heal", c.limit, c.per, most)
		}
		if got := window()["r0-0"]; got < had*8/10 {
			t.Errorf("%d in %v: %d at the edge after the heal, want about the %d that it had", c.limit, c.per, got, had)
		}
	}
}
