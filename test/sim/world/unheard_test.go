package world

import (
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Who hears two regions that are cut off from each other says so of both, and of none before
// and after.
func TestRegionsTellWhoIsNotHeard(t *testing.T) {
	t.Parallel()
	for _, regions := range []int{3, 4, 9} {
		w := settled(t, regions, 1, limit.RateSpec{Limit: 100, Per: time.Second})
		is := func(when, at string, want map[string]string) {
			t.Helper()
			for _, r := range w.Servers(at)[0].aggregator.Regions(w.Now()) {
				if got := strings.Join(r.Unheard, " "); got != want[r.Region] {
					t.Errorf("%d regions, %s: %s says that %s, which is %s, does not hear %q, want %q", regions, when, at, r.Region, r.State, got, want[r.Region])
				}
			}
		}
		is("before", "r0", nil)
		w.cutWay("r1", "r2", false, false)
		w.Advance(w.Now().Add(6 * time.Second))
		is("in the cut", "r0", map[string]string{"r1": "r2", "r2": "r1"})
		is("in the cut", "r1", nil)
		w.cutWay("r1", "r2", true, true)
		w.Advance(w.Now().Add(5 * time.Second))
		is("after it", "r0", nil)
	}
}
