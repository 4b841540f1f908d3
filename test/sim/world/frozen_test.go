package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// stormAt asks edges so often a second each, at random instants, and returns what was
// admitted at each of them.
func stormAt(w *World, lasts time.Duration, hz map[string]int) map[string]uint64 {
	all, names := 0, []string{}
	for _, name := range w.Edges() {
		for range hz[name] {
			names = append(names, name)
		}
		all += hz[name]
	}
	rnd := rand.New(rand.NewPCG(2, uint64(all)))
	from, admitted := w.Now(), map[string]uint64{}
	for i := range all * int(lasts/time.Millisecond) / 1000 {
		w.Advance(from.Add(time.Duration(i) * time.Second / time.Duration(all)))
		if name := names[rnd.IntN(len(names))]; ask(w, name, 1).Allowed {
			admitted[name]++
			admitted[name[:2]]++
			admitted[""]++
		}
	}
	w.Advance(from.Add(lasts))
	return admitted
}

// A key that is asked for in one region alone has nearly all of its limit there, though
// that region is cut off from all others, or one from it that never saw the key; and who
// comes to the others with it meanwhile finds no more than that leaves.
func TestFrozenShareOfTheOnlyRegion(t *testing.T) {
	for _, c := range []struct {
		limit   uint64
		regions int
		hz      int // at each of the two edges of r0
	}{{60, 5, 6}, {1000, 5, 100}, {1000, 2, 100}, {60, 3, 2}} {
		for _, cut := range []string{"r0", "r1"} {
			t.Run(fmt.Sprintf("%d at %d of %d regions without %s", c.limit, 2*c.hz, c.regions, cut), func(t *testing.T) {
				w := settled(t, c.regions, 2, limit.RateSpec{Limit: c.limit, Per: 10 * time.Second})
				most := min(c.limit, uint64(20*c.hz))
				home := map[string]int{"r0-0": c.hz, "r0-1": c.hz}
				stormAt(w, 20*time.Second, home)
				w.Cut(cut, true)
				stormAt(w, 5*time.Second, home)
				for nth := range 3 {
					if got := stormAt(w, 10*time.Second, home)[""]; got < most*9/10 || got > c.limit*21/20 {
						t.Errorf("window %d: %d admitted, want about %d", nth, got, most)
					}
				}
				if cut != "r0" || c.hz == 2 {
					return
				}
				home["r1-0"] = c.hz
				if got := stormAt(w, 10*time.Second, home); got[""] > c.limit*11/10 {
					t.Errorf("as r1 begins: %d admitted, %d of it at r0, want little more than %d", got[""], got["r0"], c.limit)
				}
				for nth := range 3 {
					got := stormAt(w, 10*time.Second, home)
					if got[""] > c.limit*23/20 || got["r0"] < c.limit*8/10 {
						t.Errorf("window %d with r1: %d admitted, %d of it at r0, want about %d", nth, got[""], got["r0"], c.limit)
					}
				}
			})
		}
	}
}

// A key that is first asked for while regions are cut off from each other is shared by
// their number: on all sides together it has its limit about once.
func TestFrozenShareOfANewKey(t *testing.T) {
	for _, c := range []struct {
		limit uint64
		hz    int // at each edge
	}{{60, 12}, {1000, 100}} {
		w := settled(t, 5, 2, limit.RateSpec{Limit: c.limit, Per: 10 * time.Second})
		w.Cut("r0", true)
		w.Advance(w.Now().Add(5 * time.Second))
		all := map[string]int{}
		for _, name := range w.Edges() {
			all[name] = c.hz
		}
		for nth := range 4 {
			got := stormAt(w, 10*time.Second, all)
			if got[""] < c.limit*9/10 || got[""] > c.limit*115/100 || got["r0"] < c.limit*18/100 || got["r0"] > c.limit*25/100 {
				t.Errorf("%d, window %d: %d admitted, %d of it at r0", c.limit, nth, got[""], got["r0"])
			}
		}
	}
}
