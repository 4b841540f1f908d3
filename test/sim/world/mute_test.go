package world

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// An edge whose frames do not arrive, be it that it hears what is pushed: nobody knows what it
// counts, and it cannot tell how much of what the region counts is its own. Where it goes on
// as if it heard all it says how far that may exceed the limit, though it is asked for little.
func TestMuteEdgeTellsWhatOthersDoNotKnow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		consistency, partition string
		deaf                   bool // too
		mute, other            int  // asked for so often a second
	}{{"loose", "open", false, 300, 1700}, {"loose", "open", false, 1000, 1000}, {"loose", "open", true, 300, 1700}, {"adaptive", "open", false, 1000, 1000}, {"adaptive", "open", true, 300, 1700}} {
		spec := limit.RateSpec{Name: "q", Limit: 1000, Per: time.Second, Consistency: c.consistency, OnPartition: c.partition}
		w := wideOf(t, 2, 1, func(cfg *Config) { cfg.Expects, cfg.Seed = true, 5 }, spec)
		w.Advance(start.Add(6 * time.Second))
		o, rnd := overshoot{spec: spec}, rand.New(rand.NewPCG(7, 9))
		asks := func(lasts time.Duration) {
			o.asks(w, rnd, lasts, func(edge string) int { return map[string]int{"r0-0": c.mute, "r1-0": c.other}[edge] })
		}
		asks(3 * time.Second)
		w.CutPath("r0-0", "r0", true)
		w.CutPath("r0", "r0-0", c.deaf)
		asks(600 * time.Millisecond) // until it knows
		o.most, o.uncovered, o.windows = 0, 0, 0
		asks(5 * time.Second)
		d := ask(w, "r0-0", 0)
		t.Logf("%+v: %d above the limit, untold in %d of %d windows; heard of %v ago", c, o.most, o.uncovered, o.windows, d.Basis.Age)
		if o.most < 200 || o.uncovered > 0 || d.Basis.Age < 4*time.Second {
			t.Errorf("%+v: %d above the limit, more than was told in %d of %d windows; heard of %v ago", c, o.most, o.uncovered, o.windows, d.Basis.Age)
		}
	}
}
