package integration

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestOneLimitOverThreeRegionsWithHomes: each key is told to two of three regions,
// and one limit holds over all; accounts far from their limit are agreed on too,
// whichever two have them.
func TestOneLimitOverThreeRegionsWithHomes(t *testing.T) {
	t.Parallel()
	nats := startNATS(t, proc.FreeAddr(t))
	var edges []*edge
	for region, peers := range map[string]string{"eu": "us,ap", "us": "eu,ap", "ap": "eu,us"} {
		a := startAggregator(t, region, peers, nats.URL, startRedis(t).Addr, "--sync-targets", "homes")
		awaitMetric(t, settles, a.Admin, `spillgate_sync_targets{mode="homes"}`, 1)
		edges = append(edges, startEdge(t, region, region+"-1", nats.URL, "testdata/rules.yaml"))
	}
	for _, e := range edges {
		awaitMetric(t, settles, e.Admin, `spillgate_degraded{reason="sync"}`, 0)
	}
	want := counts{"a": 1 + 2 + 3, "b": 1 + 2 + 3, "c": 1 + 2 + 3, "d": 1 + 2 + 3}
	for account := range want {
		for i, e := range edges {
			e.charge(t, account, i+1)
		}
	}
	t.Logf("equal totals everywhere after %v", agree(t, settles, want, edges...))

	const rate, asked = 20, 300
	admitted := uint64(0)
	pace := time.NewTicker(time.Second / rate) // load at a given pace
	defer pace.Stop()
	for i := range asked {
		<-pace.C
		r, err := edges[i%3].check(call{Attributes: map[string]string{"user": "paced"}})
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if r.Allowed {
			admitted++
		}
	}
	if admitted < 100 || admitted > 115 {
		t.Errorf("admitted = %d of %d, want 100 to 115", admitted, asked)
	}
	t.Logf("%d admitted, equal totals everywhere after %v", admitted, allBelieve(t, settles, "paced", admitted, edges...))
}
