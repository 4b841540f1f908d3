package integration

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestTwoRegionsShareARedis: neither takes the other's edges for its own, or
// each count would come twice, as an edge's and in the region's subtotal.
func TestTwoRegionsShareARedis(t *testing.T) {
	t.Parallel()
	nats, redis := startNATS(t, proc.FreeAddr(t)), startRedis(t)
	eu := startAggregator(t, "eu", "us", nats.URL, redis.Addr)
	us := startAggregator(t, "us", "eu", nats.URL, redis.Addr)
	edges := []*edge{
		startEdge(t, "eu", "eu-1", nats.URL, "testdata/rules.yaml"),
		startEdge(t, "us", "us-1", nats.URL, "testdata/rules.yaml"),
	}
	edges[0].charge(t, "shared", 7)
	edges[1].charge(t, "shared", 5)
	agree(t, heals, counts{"shared": 12}, edges...)
	for _, a := range []*proc.AggregatorServer{eu, us} {
		a.Kill()
		a.Restart()
	}
	edges[0].charge(t, "shared", 3)
	agree(t, heals, counts{"shared": 15}, edges...)
	for range 20 { // and it stays so
		agree(t, heals, counts{"shared": 15}, edges...)
	}
}

// TestTwoAggregatorsServeARegion: each serves its lanes, and all of them when the
// other is dead or has gone. Redis is where they meet.
func TestTwoAggregatorsServeARegion(t *testing.T) {
	t.Parallel()
	nats, redis := startNATS(t, proc.FreeAddr(t)), startRedis(t)
	one := startAggregator(t, "eu", "us", nats.URL, redis.Addr)
	two := startAggregator(t, "eu", "us", nats.URL, redis.Addr, "--name", "agg-2")
	far := startAggregator(t, "us", "eu", nats.URL, startRedis(t).Addr)
	edges := []*edge{
		startEdge(t, "eu", "eu-1", nats.URL, "testdata/rules.yaml"),
		startEdge(t, "eu", "eu-2", nats.URL, "testdata/rules.yaml"),
		startEdge(t, "us", "us-1", nats.URL, "testdata/rules.yaml"),
	}
	stop := watch(t, edges...)
	defer stop()
	held := counts{}
	charge := func() {
		for i, e := range edges {
			for k := range 12 { // in most lanes
				account := fmt.Sprint("shared", k)
				e.charge(t, account, 1+i)
				held[account] += uint64(1 + i)
			}
		}
	}
	lanesOf(t, heals, one, two)
	for range 3 {
		charge()
		t.Logf("two serve: all counts everywhere after %v", agree(t, heals, held, edges...))
	}
	for _, a := range []*proc.AggregatorServer{one, two} {
		if n, err := metric(a.Admin, "spillgate_aggregator_merges_total"); err != nil || n == 0 {
			t.Errorf("counts received by one of two aggregators = %v, %v, want some: else this test has only one", n, err)
		}
	}
	charge()
	one.Kill()
	charge()
	t.Logf("one was killed: all counts everywhere after %v", agree(t, heals, held, edges...))
	for _, e := range edges {
		if got, err := metric(e.Admin, `spillgate_degraded{reason="sync"}`); err != nil || got != 0 {
			t.Errorf("%s: degraded by sync = %v, %v, want 0: another aggregator answers", e.name, got, err)
		}
	}
	one.Restart()
	charge()
	two.Terminate()
	charge()
	t.Logf("the other has gone: all counts everywhere after %v", agree(t, heals, held, edges...))

	// A region that loses its only aggregator and all of its Redis has them
	// again from its edges, and from the other region.
	charge()
	one.Kill()
	if err := redisClient(t, redis.Addr).FlushAll(t.Context()).Err(); err != nil {
		t.Fatalf("FLUSHALL: %v", err)
	}
	charge()
	one.Restart()
	t.Logf("aggregator and Redis lost: all counts everywhere %v after the restart", agree(t, heals, held, edges...))
	far.Kill()
	charge()
	far.Restart()
	t.Logf("the other region's was killed: all counts everywhere %v after its restart", agree(t, heals, held, edges...))
	newcomer := startEdge(t, "eu", "eu-3", nats.URL, "testdata/rules.yaml")
	agree(t, heals, held, newcomer)
}

// TestAggregatorDiesWhileRedisIsAway: what it took meanwhile was in its memory
// alone. The edges that counted it live, and the aggregator that is left looks
// to them like one that knows all.
func TestAggregatorDiesWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	nats, redis := startNATS(t, proc.FreeAddr(t)), startRedis(t)
	one := startAggregator(t, "eu", "us", nats.URL, redis.Addr)
	two := startAggregator(t, "eu", "us", nats.URL, redis.Addr, "--name", "agg-2")
	far := startAggregator(t, "us", "eu", nats.URL, startRedis(t).Addr)
	edges := []*edge{
		startEdge(t, "eu", "eu-1", nats.URL, "testdata/rules.yaml"),
		startEdge(t, "eu", "eu-2", nats.URL, "testdata/rules.yaml"),
		startEdge(t, "us", "us-1", nats.URL, "testdata/rules.yaml"),
	}
	held := counts{}
	sent := map[*edge]float64{}
	charge := func(when string) {
		for i := range 20 { // each in a frame of its own, whoever takes that
			e, account := edges[i%len(edges)], fmt.Sprint(when, i)
			e.charge(t, account, 1+i)
			held[account] = uint64(1 + i)
			awaitMetric(t, heals, e.Admin, "spillgate_sync_outbox_deltas", 0)
			proc.Until(t, heals, func() error {
				frames, err := metric(e.Admin, `spillgate_sync_frames_total{result="sent"}`)
				if err == nil && frames == sent[e] {
					err = fmt.Errorf("no frame left %s", e.name)
				}
				sent[e] = frames
				return err
			})
		}
	}
	charge("before")
	agree(t, heals, held, edges...)
	redis.Pause()
	for _, a := range []*proc.AggregatorServer{one, two} {
		awaitMetric(t, heals, a.Admin, `spillgate_degraded{reason="store_down"}`, 1)
	}
	charge("meanwhile")
	for _, a := range []*proc.AggregatorServer{one, two} {
		if n, err := metric(a.Admin, "spillgate_aggregator_unstored_keys"); err != nil || n == 0 {
			t.Errorf("counts in the memory of one of two aggregators = %v, %v, want some: else nothing can be lost", n, err)
		}
	}
	one.Kill()
	redis.Continue()
	t.Logf("all counts everywhere after %v", agree(t, heals, held, edges...))
	far.Kill()
	far.Restart()
	t.Logf("the other region's was killed: all counts everywhere %v after its restart", agree(t, heals, held, edges...))
}

// TestEdgeStopsWithoutNATS: it cannot tell what it counted, says so by its
// exit code, and does not hang.
func TestEdgeStopsWithoutNATS(t *testing.T) {
	t.Parallel()
	e := startEdge(t, "eu", "eu-1", "nats://"+proc.FreeAddr(t), "testdata/rules.yaml")
	e.charge(t, "untold", 3)
	start := time.Now()
	e.Signal(syscall.SIGTERM)
	if code := e.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1: counts are lost", code)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v to stop, want at most 5 s", took)
	}
}
