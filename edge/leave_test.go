package edge

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// A node that leaves says when what it spent is free, and spends nothing more by it, be rights granted
// or free again meanwhile; if it stays, it begins with none, as another holder.
func TestWhoLeavesSpendsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := waitingNode(t, func(r *limit.RuleSpec) { r.Rates[0].Per, r.Rates[0].StrictWait = 12*time.Second, 0 })
		check(n, time.Now(), "u")
		answerClaims(t, n, grants(6, 0))
		for range 2 {
			if d := check(n, time.Now(), "u"); !d.Allowed {
				t.Fatalf("%+v, want it to pass", d)
			}
			flushAll(t, n, time.Now())
			time.Sleep(5 * time.Second)
		}
		last := rightsOf(n).holder
		n.Leave(time.Now())
		// told is what is said, and answered so; the first is free in 2 s, the other five seconds later.
		told := func(granted, returned, answer uint64) {
			t.Helper()
			if said := answerClaims(t, n, func(c deltasync.Claim) (uint64, deltasync.GrantFlags) {
				if c.Granted != granted || c.Returned != returned || c.Want != 0 || c.Bound != 2 || len(c.Ends) != 2 || c.Ends[1].In > 2200*time.Millisecond || c.Ends[0].In > 7200*time.Millisecond {
					t.Errorf("said is %+v, want %d granted and %d returned, and when the other two are free", c, granted, returned)
				}
				return answer, 0
			}); said != 1 {
				t.Errorf("%d claims, want 1", said)
			}
		}
		told(6, 4, 9) // more was granted meanwhile
		time.Sleep(200 * time.Millisecond)
		told(9, 7, 9)
		if left := n.ungiven(); left != 0 {
			t.Errorf("%d counters are not heard of, want none", left)
		}
		for range 3 { // the lease goes on, and what it spent leaves the window
			time.Sleep(3 * time.Second)
			if d := check(n, time.Now(), "u"); d.Allowed {
				t.Errorf("%+v by rights that are somebody else's, want a denial", d)
			}
		}
		n.stay()
		check(n, time.Now(), "u")
		answerClaims(t, n, func(c deltasync.Claim) (uint64, deltasync.GrantFlags) {
			if c.Holder == last || c.Granted != 0 || len(c.Ends) != 0 {
				t.Errorf("said is %+v, want another holder that was granted nothing", c)
			}
			return 3, 0
		})
		if d := check(n, time.Now(), "u"); !d.Allowed {
			t.Errorf("%+v of what it was granted anew, want it to pass", d)
		}
	})
}

// Of rights that back requests under a lower limit of the same key none is free before all are.
func TestRightsBehindALowerLimitEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, rt, _ := holding(t)
		rate := n.Rules().Rules()[0].Rates[0]
		for range 4 {
			rt.spend(rate, 1)
			time.Sleep(2 * time.Second)
		}
		ends := func() []deltasync.End { return rt.ends(rate, 4, time.Now().UnixNano(), rt.escrow.boot()) }
		if got := ends(); len(got) != 4 {
			t.Errorf("%v, want four parts", got)
		}
		rt.bound, rt.unbound = 4, rt.escrow.boot()+rate.Lasts()
		if got := ends(); len(got) != 1 || got[0] != (deltasync.End{Cost: 4, In: rate.Lasts()}) {
			t.Errorf("%v, want all of them at the end of a window", got)
		}
	})
}
