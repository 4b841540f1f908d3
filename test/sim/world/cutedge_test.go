package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// lone is a cluster in which much is asked for at one edge, and how.
type lone struct {
	*World
	passes
	limit uint64
	per   time.Duration
	hz    map[string]int
	had   uint64 // that the edge admits in a window
}

// settledLone is one where all has settled.
func settledLone(t *testing.T, limited uint64, per time.Duration) *lone {
	a := &lone{World: settled(t, 5, 2, limit.RateSpec{Limit: limited, Per: per}), limit: limited, per: per, hz: map[string]int{}}
	for _, name := range a.Edges() {
		a.hz[name] = 20
	}
	a.hz["r0-0"] = 140
	a.worst(25 * time.Second)
	a.had = a.window()["r0-0"]
	return a
}

// cut cuts the edge off from its region, and nobody else.
func (a *lone) cut(cut bool) {
	a.CutPath("r0-0", "r0", cut)
	a.CutPath("r0", "r0-0", cut)
}

func (a *lone) window() map[string]uint64 { return a.since(a.Now().Add(-a.per)) }

// worst is the most and the least that was admitted in a window that ended meanwhile.
func (a *lone) worst(lasts time.Duration) (most, least uint64) {
	least = a.limit
	for range int(lasts / (250 * time.Millisecond)) {
		a.storm(a.World, 250*time.Millisecond, a.hz)
		n := a.window()[""]
		most, least = max(most, n), min(least, n)
	}
	return most, least
}

// An edge that much is asked for is cut off from its region, which lives: the edge has the
// share that it had for ten seconds, and then one by how many edges there are, and as much
// is kept for it for a minute: all together admit the limit. The figures stand in
// configs/README.md.
func TestShareOfAnEdgeCutOffAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit uint64
		per   time.Duration
	}{{100, time.Second}, {1000, 10 * time.Second}} {
		t.Run(fmt.Sprintf("%d in %v", c.limit, c.per), func(t *testing.T) {
			a := settledLone(t, c.limit, c.per)
			check := func(when string, lasts time.Duration, below, least, most int) {
				t.Helper()
				got, atLeast := a.worst(lasts)
				edge := a.window()["r0-0"]
				t.Logf("%s: %d to %d in a window, %d at the edge", when, atLeast, got, edge)
				if limit := int(c.limit); int(got) > limit*below/100 || int(edge) < limit*least/100 || int(edge) > limit*most/100 {
					t.Errorf("%s: %d in a window, %d at the edge; want %d %% of %d at the most, and %d to %d %%", when, got, edge, below, limit, least, most)
				}
			}
			part := int(a.had * 100 / c.limit)
			a.cut(true)
			check("at first", max(time.Second, c.per/4), 122, part*7/10, part*11/10)
			check("with the share that it had", 8*time.Second, 106, part*7/10, part*11/10)
			check("while others know what it may have spent", 2*time.Second+c.per, 106, 0, part)
			check("later on", 30*time.Second, 106, 8, 12)
			a.cut(false)
			check("after the heal", 3*time.Second+c.per, 106, part*7/10, part*13/10)
			a.cut(true)
			a.worst(time.Minute + c.per)
			check("after a minute", 5*time.Second, 115, 8, 12)
			a.cut(false)
			check("as that heals", 3*time.Second+c.per, 115, 0, 100)
			check("when it has healed", 10*time.Second, 106, part*7/10, part*13/10)
		})
	}
}

// An edge that takes its leave has nothing kept for it: where its clients go others admit
// the limit, as soon as they know of what is asked for there. Of one that crashed they do so
// after what an edge may do that is cut off, and at once if it is started again.
func TestShareOfAnEdgeThatIsGone(t *testing.T) {
	for _, c := range []struct {
		how    string
		end    func(a *lone) error
		within time.Duration // all of the limit is admitted again
		before int           // percent of it, until then
	}{
		{"it leaves", func(a *lone) error { a.Depart("r0-0"); return nil }, 2 * time.Second, 0},
		{"it leaves while it is heard, and hears nothing", func(a *lone) error {
			a.CutPath("r0", "r0-0", true)
			a.worst(time.Second)
			a.Depart("r0-0")
			return nil
		}, 2 * time.Second, 0},
		{"it is started again", func(a *lone) error { return a.Crash("r0-0") }, 2 * time.Second, 0},
		{"it dies", func(a *lone) error { a.cut(true); return nil }, 12 * time.Second, 50},
	} {
		t.Run(c.how, func(t *testing.T) {
			a := settledLone(t, 100, time.Second)
			if err := c.end(a); err != nil {
				t.Fatal(err)
			}
			if a.hz["r0-1"] = a.hz["r0-0"]; c.how != "it is started again" {
				delete(a.hz, "r0-0")
			}
			_, least := a.worst(c.within)
			if int(least) < c.before {
				t.Errorf("%d admitted in a window at first, want %d", least, c.before)
			}
			if most, least := a.worst(10 * time.Second); least < 80 || most > 106 {
				t.Errorf("%d to %d admitted in a window later on, want about 100", least, most)
			}
		})
	}
}

// An edge that hears its region, and is not heard, is silent a moment before it knows that it
// is alone: what is pushed by then is of the others, and no share of its own.
func TestEdgeThatIsNotHeardKeepsToItsShare(t *testing.T) {
	for phase := range 8 {
		a := &lone{World: settled(t, 2, 2, limit.RateSpec{Limit: 1000, Per: 10 * time.Second}), limit: 1000, per: 10 * time.Second, hz: map[string]int{"r0-0": 150, "r0-1": 150, "r1-0": 20, "r1-1": 20}}
		a.worst(12 * time.Second)
		a.storm(a.World, time.Duration(phase)*13*time.Millisecond, a.hz)
		a.CutPath("r0-0", "r0", true)
		if most, _ := a.worst(6 * time.Second); most > 1060 {
			t.Errorf("phase %d: %d of 1000 in a window, %d of it at the edge", phase, most, a.window()["r0-0"])
		}
	}
}
