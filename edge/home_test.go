package edge

import (
	"fmt"
	"testing"
	"testing/synctest"

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
