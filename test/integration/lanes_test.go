package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// lanesOf waits until the aggregators own so many lanes together, each at least
// one, and know of each other. It returns how long that took.
func lanesOf(t *testing.T, within time.Duration, servers ...*proc.AggregatorServer) time.Duration {
	t.Helper()
	start := time.Now()
	proc.Until(t, within, func() error {
		sum := 0.0
		for _, a := range servers {
			own, err := metric(a.Admin, "spillgate_aggregator_lanes_owned")
			if err != nil {
				return err
			}
			if members, err := metric(a.Admin, "spillgate_aggregator_members"); err != nil || members != float64(len(servers)) || own == 0 {
				return fmt.Errorf("%s owns %v lanes and knows of %v members, %w", a.Admin, own, members, err)
			}
			sum += own
		}
		if sum != 8 {
			return fmt.Errorf("%v lanes are owned, want 8", sum)
		}
		return nil
	})
	return time.Since(start)
}

// TestLanesMoveUnderLoad: from one aggregator to three and back, one of them
// killed. All lanes have an owner again, within a second as the simulator judges it, and
// no count is lost.
func TestLanesMoveUnderLoad(t *testing.T) {
	t.Parallel()
	nats, redis := startNATS(t, proc.FreeAddr(t)), startRedis(t)
	start := func(n int) *proc.AggregatorServer {
		return startAggregator(t, "eu", "us", nats.URL, redis.Addr, "--name", fmt.Sprint("agg-", n))
	}
	one := start(1)
	startAggregator(t, "us", "eu", nats.URL, startRedis(t).Addr)
	edges := []*edge{
		startEdge(t, "eu", "eu-1", nats.URL, "testdata/rules.yaml"),
		startEdge(t, "eu", "eu-2", nats.URL, "testdata/rules.yaml"),
		startEdge(t, "us", "us-1", nats.URL, "testdata/rules.yaml"),
	}
	held, stop := loadAll(t, edges)
	lanesOf(t, heals, one)
	two := start(2)
	t.Logf("the second has its lanes after %v", lanesOf(t, heals, one, two))
	three := start(3)
	t.Logf("the third has its lanes after %v", lanesOf(t, heals, one, two, three))
	two.Kill()
	t.Logf("the second was killed, its lanes were taken over after %v", lanesOf(t, heals, one, three))
	if n, err := metric(one.Admin, "spillgate_aggregator_takeovers_total"); err != nil {
		t.Error(err)
	} else if m, err := metric(three.Admin, "spillgate_aggregator_takeovers_total"); err != nil || n+m == 0 {
		t.Errorf("%v takeovers, %v, want some", n+m, err)
	}
	one.Terminate()
	t.Logf("the first has left, its lanes were taken over after %v", lanesOf(t, heals, three))
	stop()
	t.Logf("all counts everywhere after %v", agree(t, heals, held, edges...))
}

// loadAll has each edge charge accounts of all lanes, without a pause, until stop
// is called; then the counts are what was charged.
func loadAll(t *testing.T, edges []*edge) (held counts, stop func()) {
	var load sync.WaitGroup
	done := make(chan struct{})
	var mu sync.Mutex // guards held
	held = counts{}
	for _, e := range edges {
		load.Go(func() { // stop ends it, and waits for it
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
				}
				account := fmt.Sprint("account", i%40)
				r, err := e.check(call{Attributes: map[string]string{"account": account}})
				if err != nil || !r.Allowed {
					t.Errorf("%s: %+v, %v, want it allowed", e.name, r, err)
					return
				}
				mu.Lock()
				held[account]++
				mu.Unlock()
			}
		})
	}
	return held, func() { close(done); load.Wait() }
}
