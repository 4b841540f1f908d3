package escrow_test

import (
	"fmt"
	"testing"

	"github.com/spillgate/spillgate/sync"
)

// What is spent is nobody's to share, be it by who left or by who is there: the parts of all come to what
// there is, so that who comes last has his, and whoever has more returns it.
func TestPartsComeToWhatThereIs(t *testing.T) {
	for name, first := range map[string]deltasync.Claim{
		"spent by who left":    {Bound: 60},
		"spent by who goes on": {Bound: 60, Want: 100},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			a := o.authority()
			var granted, returned [3]uint64
			for round := range 6 {
				for i := range granted {
					k := deltasync.Claim{Holder: uint64(i + 1), Limit: 100, Granted: granted[i], Returned: returned[i], Want: 100}
					keep := uint64(0)
					if i == 0 && round > 0 {
						k.Bound, k.Want, keep = first.Bound, first.Want, first.Bound
					}
					g := o.claimOfEdge(a, fmt.Sprint(i), k)
					granted[i] = g.Granted
					if keep = max(keep, g.Target); g.Flags&deltasync.GrantRecall != 0 && granted[i] > keep {
						returned[i] = max(returned[i], granted[i]-keep)
					}
				}
			}
			for i := range 2 {
				if has := granted[i+1] - returned[i+1]; has < 19 || has > 21 {
					t.Errorf("of the 40 that are left %d has %d, want half of them", i+1, has)
				}
			}
		})
	}
}
