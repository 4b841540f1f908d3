package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestMistakesOfAggregatorsAreTold: two that share a name, as the default has it, and
// a peer that does not exist.
func TestMistakesOfAggregatorsAreTold(t *testing.T) {
	t.Parallel()
	nats, redis := startNATS(t, proc.FreeAddr(t)), startRedis(t)
	one := startAggregator(t, "eu", "us-misspelt", nats.URL, redis.Addr)
	two := startAggregator(t, "eu", "us-misspelt", nats.URL, redis.Addr)
	for _, a := range []*proc.AggregatorServer{one, two} {
		awaitMetric(t, heals, a.Admin, `spillgate_degraded{reason="same_name"}`, 1)
		proc.Until(t, heals, func() error { return logs(a, "--name") })
	}
	// Whoever serves the lanes hears of no other region: the later one.
	awaitMetric(t, time.Minute, two.Admin, `spillgate_sync_peer_silent{region="us-misspelt"}`, 1)
	proc.Until(t, heals, func() error { return logs(two, "peer=us-misspelt") })
	for _, a := range []*proc.AggregatorServer{one, two} {
		if log := a.Log(); strings.Count(log, "--name") != 1 || strings.Count(log, "has never answered") > 1 {
			t.Errorf("it is told more than once:\n%s", log)
		}
	}
}

// logs says whether a daemon has logged something.
func logs(p interface{ Log() string }, text string) error {
	if log := p.Log(); !strings.Contains(log, text) {
		return fmt.Errorf("%q is not in the log:\n%s", text, log)
	}
	return nil
}
