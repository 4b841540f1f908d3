package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/test/proc"
)

// TestTwoRegionsOfPoPs runs the largest topology that is shipped: regions
// joined by gateways, each PoP behind a leaf of its own, and everybody with the
// permissions of deploy/nats/users.conf. All count together, and a PoP that is
// cut off and returns counts with them again.
func TestTwoRegionsOfPoPs(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	as := func(user string) []string { return []string{"--nats-nkey", users.SeedFile(t, user)} }
	sites := proc.NATSGateways(t, users, "eu", "us")
	aggregators := map[string]*proc.AggregatorServer{}
	for region, peer := range map[string]string{"eu": "us", "us": "eu"} {
		aggregators[peer] = startAggregator(t, region, peer, sites[region].URLs()[0], startRedis(t).Addr, as("AGG_"+strings.ToUpper(region))...)
	}
	var edges []*edge
	for _, at := range []struct{ region, pop string }{{"eu", "ams"}, {"eu", "fra"}, {"us", "iad"}} {
		user := "POP_" + strings.ToUpper(at.pop)
		leaf := proc.NATSLeaf(t, users, user, sites[at.region].Leafs[0])
		edges = append(edges, startEdge(t, at.region, at.pop+"-1", leaf.URL, filepath.Join("testdata", "rules.yaml"),
			append(as(user), "--pop", at.pop)...))
	}
	for _, e := range edges {
		awaitMetric(t, settles, e.Admin, `spillgate_degraded{reason="sync"}`, 0)
	}
	for i, e := range edges {
		e.charge(t, "all", i+1)
	}
	agree(t, settles, counts{"all": 1 + 2 + 3}, edges...)

	sites["eu"].Leafs[0].Cut()
	for _, e := range edges[:2] {
		awaitMetric(t, settles, e.Admin, `spillgate_degraded{reason="sync"}`, 1)
		e.charge(t, "all", 10)
	}
	edges[2].charge(t, "all", 10)
	sites["eu"].Leafs[0].Mend()
	agree(t, settles, counts{"all": 36}, edges...)

	for peer, a := range aggregators { // may ask each other what is true, and find that they agree
		proc.Until(t, settles, func() error { return audits(a, peer) })
	}
}

// audits says whether an aggregator has compared what it believes of a region with
// what that says, and found no drift.
func audits(a *proc.AggregatorServer, peer string) error {
	of := func(name string) string { return fmt.Sprintf("%s{region=%q}", name, peer) }
	got, err := proc.Metrics(a.Admin, of("spillgate_audited_keys_total"), of("spillgate_drift_ratio"), of("spillgate_drift_hits"), of("spillgate_drift_negative_hits_total"))
	if err == nil && (got[0] == 0 || got[1]+got[2]+got[3] != 0) {
		err = fmt.Errorf("of %s it compared %v keys, drift %v, %v hits, %v negative", peer, got[0], got[1], got[2], got[3])
	}
	return err
}
