package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestEdgeStartsWithoutNATS: it is ready, decides, and says that it is on its
// own; what it counted joins when NATS appears.
func TestEdgeStartsWithoutNATS(t *testing.T) {
	t.Parallel()
	addr := proc.FreeAddr(t)
	url := "nats://" + addr
	redis := startRedis(t)
	e := startEdge(t, "eu", "eu-1", url, "testdata/rules.yaml")
	other := startEdge(t, "eu", "eu-2", url, "testdata/rules.yaml")
	aggregator := startAggregator(t, "eu", "us", url, redis.Addr)
	stop := watch(t, e)
	defer stop()

	e.charge(t, "alone", 5)
	awaitMetric(t, settles, e.Admin, `spillgate_degraded{reason="sync"}`, 1)
	if got, err := metric(e.Admin, "spillgate_view_age_seconds"); err != nil || got != -1 {
		t.Errorf("view age = %v, %v, want -1: nobody ever answered", got, err)
	}
	if _, err := get(e.url + "/readyz"); err != nil {
		t.Errorf("an edge without NATS is ready: %v", err)
	}
	if _, err := get(aggregator.Admin + "/readyz"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("readyz of an aggregator without NATS: %v, want 503", err)
	}

	start := time.Now()
	startNATS(t, addr)
	agree(t, heals, counts{"alone": 5}, other)
	t.Logf("counts of an edge that started alone reached another %v after NATS was started", time.Since(start))
	for _, e := range []*edge{e, other} {
		awaitMetric(t, heals, e.Admin, `spillgate_degraded{reason="sync"}`, 0)
	}
	if _, err := get(aggregator.Admin + "/readyz"); err != nil {
		t.Errorf("an aggregator with NATS is ready: %v", err)
	}
}

// TestAggregatorStartsWithoutRedis: it serves from memory, says so, and writes
// when Redis appears.
func TestAggregatorStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	nats := startNATS(t, proc.FreeAddr(t))
	redis := startRedis(t)
	redis.Kill()
	aggregator := startAggregator(t, "eu", "us", nats.URL, redis.Addr)
	one := startEdge(t, "eu", "eu-1", nats.URL, "testdata/rules.yaml")
	two := startEdge(t, "eu", "eu-2", nats.URL, "testdata/rules.yaml")

	one.charge(t, "early", 5)
	two.charge(t, "early", 2)
	agree(t, heals, counts{"early": 7}, one, two)
	awaitMetric(t, heals, aggregator.Admin, `spillgate_degraded{reason="store_down"}`, 1)
	awaitMetric(t, heals, one.Admin, `spillgate_degraded{reason="store_down"}`, 1)
	if text, err := get(aggregator.Admin + "/readyz?verbose"); err != nil || !strings.Contains(text, "serving from memory") {
		t.Errorf("readyz?verbose = %q, %v, want ready, and that it serves from memory", text, err)
	}

	redis.Restart()
	store := redisClient(t, redis.Addr)
	start := time.Now()
	proc.Until(t, heals, func() error {
		n, err := expiring(t.Context(), store, 4*time.Hour)
		if err == nil && n == 0 {
			err = fmt.Errorf("no counter in Redis")
		}
		return err
	})
	t.Logf("counts written %v after Redis appeared", time.Since(start))
	awaitMetric(t, heals, aggregator.Admin, `spillgate_degraded{reason="store_down"}`, 0)
	awaitMetric(t, heals, one.Admin, `spillgate_degraded{reason="store_down"}`, 0)

	// The check above would have seen a counter that stays for ever.
	if err := store.Set(t.Context(), "sg-eu{00}planted", "", 0).Err(); err != nil {
		t.Fatalf("plant a counter: %v", err)
	}
	if _, err := expiring(t.Context(), store, 4*time.Hour); err == nil {
		t.Error("a counter without an expiry was not seen")
	}
	if err := store.Del(t.Context(), "sg-eu{00}planted").Err(); err != nil {
		t.Fatalf("remove the planted counter: %v", err)
	}

	// They are the whole counts: read back by an aggregator that knows nothing.
	for _, p := range []interface{ Kill() }{one, two, aggregator} {
		p.Kill()
	}
	aggregator.Restart()
	two.restart()
	agree(t, heals, counts{"early": 7}, two)
}
