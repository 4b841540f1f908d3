package edge

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
)

// Counts that the region refuses at first are told again as a node stops, whoever does not answer
// what it returns of strict limits: neither waits for the other, and all ends in time.
func TestCountsDoNotWaitForRights(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprint("the authority hangs: ", hangs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, Config{},
					limit.RuleSpec{Name: "s", Key: []string{"user"}, Rates: []limit.RateSpec{{Name: "d", Limit: 100, Per: 24 * time.Hour, Consistency: "strict"}}})
				bus := membus.New()
				defer bus.Close()
				stopping, refusals := false, 2 // the bubble's goroutines take turns
				r := serveRegion(t, bus, func(int) deltasync.Status {
					if stopping && refusals > 0 {
						refusals--
						return deltasync.StatusOverloaded
					}
					return deltasync.StatusOK
				})
				heard := uint64(0) // that was returned
				for lane := range n.cfg.Lanes {
					answer := func(_ context.Context, _ string, payload []byte) []byte {
						var c deltasync.Claims
						if err := c.UnmarshalBinary(payload); err != nil || hangs && stopping {
							return nil
						}
						g := deltasync.Grants{Region: "eu", Lane: c.Lane, Status: deltasync.StatusOK, Echo: c.SentAt, Lease: 15 * time.Second, Log: 7}
						for _, k := range c.Claims {
							heard += k.Returned
							g.Grants = append(g.Grants, deltasync.Grant{Key: k.Key, Holder: k.Holder, Granted: max(k.Granted, 50), Target: 50})
						}
						b, err := g.AppendBinary(nil)
						if err != nil {
							return nil
						}
						return b
					}
					if _, err := bus.Serve(deltasync.ClaimSubject("eu", lane, "eu", n.cfg.Pop, n.cfg.Name), "q", answer); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- n.Run(ctx, bus) }() // it is ended and waited for below
				for range 2 {                           // the first asks for rights
					for user := range 3 {
						check(n, time.Now(), fmt.Sprint("u", user))
					}
					time.Sleep(time.Second) // virtual
				}
				for user := range 3 {
					check(n, time.Now(), fmt.Sprint("u", user))
				}
				synctest.Wait()
				stopping = true
				began := time.Now()
				cancel()
				err := <-done
				took := time.Since(began)
				switch {
				case err != nil || len(r.taken) != 3:
					t.Errorf("Run: %v; the region has counts of %d keys, want 3", err, len(r.taken))
				case hangs && took > finalFlush || !hangs && took > finalFlush/2:
					t.Errorf("it took %v", took)
				case !hangs && heard < 3*(50-3):
					t.Errorf("%d rights came back, want all but what was spent", heard)
				}
			})
		})
	}
}
