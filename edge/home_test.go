package edge

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// What another region says than the one that is the home of a key is none of the key's:
// whoever had it answer there would be granted more than the limit, or void what others hold.
func TestGrantsOfAnotherHome(t *testing.T) {
	for name, g := range map[string]deltasync.Grant{
		"more rights":  {Granted: 1000, Target: 1000},
		"void":         {Flags: deltasync.GrantVoid},
		"another home": {Home: "ap"},
		"recalled":     {Granted: 5, Flags: deltasync.GrantRecall},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, rt, began := holding(t)
				was := fmt.Sprintf("%+v", *rt)
				for _, echo := range []int64{0, int64(began)} { // pushed, or as an answer
					g := g
					g.Echo = int64(began) - echo
					f := grantOf(n, deltasync.Grants{Echo: echo, Log: 2}, g)
					f.Region = "us"
					hearGrants(t, n, f)
					if is := fmt.Sprintf("%+v", *rt); is != was {
						t.Errorf("%s, was %s", is, was)
					}
				}
			})
		})
	}
}

// A home that answers no more may be none any more, as its region was taken away: once all that it
// granted is over, the edge asks its own region again, which knows. While that still names it, it is
// asked on.
func TestAHomeThatIsGoneIsAskedForAnew(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Millisecond, 2 * claimTimeout} { // be the key asked for rarely
		synctest.Test(t, func(t *testing.T) { homeIsAskedForAnew(t, every) })
	}
}

func homeIsAskedForAnew(t *testing.T, every time.Duration) {
	n, rt, _ := holding(t)
	const wait = deltasync.DefaultLease
	moved := func() { // the region names another home
		hearGrants(t, n, grantOf(n, deltasync.Grants{Echo: int64(n.cluster.escrow.boot())}, deltasync.Grant{Home: "ap"}))
	}
	asked := func(requests int) (homes []string) {
		for range requests {
			time.Sleep(every) // virtual
			check(n, time.Now(), "u")
			for _, c := range n.Claims(time.Now()) {
				homes = append(homes, c.Home)
			}
		}
		return homes
	}
	moved()
	at := n.cluster.escrow.boot()
	for range 3 {
		own := false
		for !own && n.cluster.escrow.boot()-at < 10*wait {
			homes := asked(10)
			if len(homes) == 0 {
				t.Fatalf("%v after ap was named nobody is asked", n.cluster.escrow.boot()-at)
			}
			own = slices.Contains(homes, "eu")
		}
		if after := n.cluster.escrow.boot() - at; !own || after < wait || after > wait+15*every+time.Second {
			t.Fatalf("the own region was asked again (%v) after %v, want it after %v", own, after, wait)
		}
		moved()
		at = n.cluster.escrow.boot()
		if homes := asked(3); !slices.Contains(homes, "ap") || slices.Contains(homes, "eu") {
			t.Fatalf("%v are asked once the region named ap again", homes)
		}
	}
	if rt.held(n.cluster.escrow.boot()) != 0 {
		t.Error("rights are held that nobody renewed")
	}
}
