package integration

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestOneLimitHeldByFourEdges is the promise: 100 a minute, asked for 20 times
// a second in round robin over all edges.
func TestOneLimitHeldByFourEdges(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const rate, asked = 20, 400
	admitted := uint64(0)
	// Load at a given pace, not a wait for something to happen.
	pace := time.NewTicker(time.Second / rate)
	defer pace.Stop()
	for i := range asked {
		<-pace.C
		r, err := c.edges()[i%4].check(call{Attributes: map[string]string{"user": "paced"}})
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if r.Allowed {
			admitted++
		}
	}
	t.Logf("paced: %d of %d admitted", admitted, asked)
	if admitted < 100 || admitted > 110 {
		t.Errorf("admitted = %d of %d, want 100 to 110", admitted, asked)
	}
	took := c.allBelieve(t, 2*time.Second, "paced", admitted)
	t.Logf("paced: equal totals everywhere %v after the last call", took)
}

// TestABurstOverFourEdges prints how far 400 calls at once overshoot: no edge
// can know of the others' calls when it admits its own.
func TestABurstOverFourEdges(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var admitted atomic.Uint64
	var calls sync.WaitGroup
	start := time.Now()
	for i := range 400 {
		calls.Go(func() {
			r, err := c.edges()[i%4].check(call{Attributes: map[string]string{"user": "burst"}})
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
			if r.Allowed {
				admitted.Add(1)
			}
		})
	}
	calls.Wait()
	t.Logf("burst: %d of 400 admitted, within %v", admitted.Load(), time.Since(start))
	if got := admitted.Load(); got < 100 {
		t.Errorf("admitted = %d, want at least the limit, 100", got)
	}
	took := c.allBelieve(t, 2*time.Second, "burst", admitted.Load())
	t.Logf("burst: equal totals everywhere %v after the last reply", took)
}

// TestWithoutNATSEachEdgeHoldsTheLimitAlone is the twin of the tests above:
// that their figures stay near 100 is the exchange's doing.
func TestWithoutNATSEachEdgeHoldsTheLimitAlone(t *testing.T) {
	t.Parallel()
	nobody := "nats://" + proc.FreeAddr(t)
	for _, name := range []string{"eu-1", "eu-2"} {
		e := startEdge(t, "eu", name, nobody, "testdata/rules.yaml")
		admitted := 0
		for i := range 120 {
			r, err := e.check(call{Attributes: map[string]string{"user": "alone"}})
			if err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			if r.Allowed {
				admitted++
			}
		}
		if admitted != 100 {
			t.Errorf("%s admitted %d of 120, want the whole limit, 100", name, admitted)
		}
	}
}

// allBelieve waits until all edges believe that want of a user's calls are
// used, and says how long that took.
func (c *cluster) allBelieve(t *testing.T, within time.Duration, user string, want uint64) time.Duration {
	t.Helper()
	return allBelieve(t, within, user, want, c.edges()...)
}

func allBelieve(t *testing.T, within time.Duration, user string, want uint64, edges ...*edge) time.Duration {
	t.Helper()
	start := time.Now()
	proc.Until(t, within, func() error {
		for _, e := range edges {
			got, err := e.used("user", user)
			if err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			if got != want {
				return fmt.Errorf("%s believes that %d of user %s are used, want %d", e.name, got, user, want)
			}
		}
		return nil
	})
	return time.Since(start)
}
