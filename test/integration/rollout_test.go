package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestRolloutEndsByItself: limits that are tried in one region, of two, are reverted by themselves where they
// deny too much that those before admit, and promoted where they do not. Edges tell what they decided with
// the rights of their PoPs, and an aggregator of the other region says so.
func TestRolloutEndsByItself(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	sites := proc.NATSGateways(t, users, "eu", "us")
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	ada := newToken(t, tokens, "ada", "admin")
	operators := map[string]*operator{}
	for region, peer := range map[string]string{"eu": "us", "us": "eu"} {
		urls := sites[region].URLs()[0]
		proc.NATSJetStream(t, users, region, sites[region].Leafs[0], t.TempDir())
		agg := daemons.Aggregator(t, nil, "--region", region, "--name", "a1", "--peers", peer, "--nats-urls", urls,
			"--nats-nkey", users.SeedFile(t, "AGG_"+strings.ToUpper(region)), "--rules-source", "kv", "--rules-kv-domain", region, "--admin-tokens", tokens)
		operators[region] = &operator{t, []string{"--rules-kv-domain", region, "--nats-urls", urls, "--nats-nkey", users.SeedFile(t, "OPERATOR")}, []string{"--server", agg.Admin, "--token-file", ada}}
	}
	eu := operators["eu"]
	proc.Until(t, time.Minute, func() error { // the domains are heard of
		if _, err := operators["eu"].try(0, "init"); err != nil {
			return err
		}
		_, err := operators["us"].try(0, "init", "--origin", "eu")
		return err
	})
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	apply := func(limit int, args ...string) string {
		t.Helper()
		if err := os.WriteFile(rules, []byte(strings.Replace(limited(limit), "per: 1h", "per: 2s", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		return eu.rules(0, append([]string{"apply", rules, "--yes"}, args...)...)
	}
	apply(10)
	var edges []*proc.EdgeServer
	for _, at := range [][2]string{{"eu", "ams"}, {"us", "iad"}} {
		edges = append(edges, daemons.Edge(t, []string{"SPILLGATE_SECRET=" + secret}, "--region", at[0], "--pop", at[1], "--name", at[1]+"-1", "--default-namespace", "test",
			"--nats-urls", sites[at[0]].URLs()[0], "--nats-nkey", users.SeedFile(t, "POP_"+strings.ToUpper(at[1])), "--rules-source", "kv", "--rules-kv-domain", at[0]))
	}
	limit := func(e *proc.EdgeServer, want uint64) {
		t.Helper()
		c := newClient(t, e.URL)
		proc.Until(t, 2*time.Minute, func() error {
			r, err := c.check(call{Attributes: map[string]string{"user": "u1"}, Peek: true})
			if err == nil && r.Limit != want {
				err = fmt.Errorf("the limit is %d, want %d", r.Limit, want)
			}
			return err
		})
	}
	for _, e := range edges {
		limit(e, 10)
	}

	// Each user of us comes six times, as long as the test goes on.
	ctx, stop := context.WithCancel(t.Context())
	var traffic sync.WaitGroup
	traffic.Go(func() {
		c := newClient(t, edges[1].URL)
		for user := 0; ctx.Err() == nil; user++ {
			for range 6 {
				if _, err := c.check(call{Attributes: map[string]string{"user": fmt.Sprint("u-", user)}}); err != nil {
					t.Error(err)
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	defer traffic.Wait()
	defer stop()

	if said := apply(3, "--regions", "us", "--promote-after", "1h", "--max-newly-denied", "20%", "--min-requests", "50"); !strings.Contains(said, "test: version 2, in us, promoted after 1h0m0s, reverted above 20 % newly denied, of at least 50 requests") {
		t.Errorf("it is rolled out as %q", said)
	}
	limit(edges[1], 3)
	limit(edges[1], 10) // three of six are denied
	if said := eu.rules(0, "history", "test"); !strings.Contains(said, "condition of ada") || !strings.Contains(said, "reverted in us: ") || !strings.Contains(said, "are newly denied, of at most 20 %") {
		t.Errorf("the history is %s", said)
	}

	apply(8, "--regions", "us", "--promote-after", "15s", "--max-newly-denied", "20%", "--max-denied", "30%", "--min-requests", "50")
	limit(edges[1], 8)
	limit(edges[0], 10)
	proc.Until(t, time.Minute, func() error {
		said, err := eu.try(0, "list")
		if err == nil && !strings.Contains(said, "it is promoted at") && !strings.Contains(said, "condition of ada") {
			err = fmt.Errorf("the list is %s", said)
		}
		return err
	})
	limit(edges[0], 8) // none of six is
	if said := eu.rules(0, "history", "test"); !strings.Contains(said, "promoted from us: 0") {
		t.Errorf("the history is %s", said)
	}
	proc.Until(t, time.Minute, func() error { // each that decided anything has told of it
		said, err := eu.try(0, "report", "per-user")
		if err == nil && !strings.Contains(said, "eu,us") {
			err = fmt.Errorf("the report is %s", said)
		}
		return err
	})
	stop()
	traffic.Wait()
	if said := eu.rules(0, "report", "-o", "yaml"); !strings.Contains(said, "per_second:") {
		t.Errorf("as YAML the report is %s", said)
	}
	if said := eu.rules(1, "report", "none"); !strings.Contains(said, "no edge has told of a rule") {
		t.Errorf("of a rule that there is not it says %s", said)
	}
	told := 0 // in the region whose aggregator has ended it
	for _, o := range operators {
		told += strings.Count(o.rules(0, "audit", "--who", "condition of ada"), "done")
	}
	if told != 2 {
		t.Errorf("%d ends are in the audit logs, want 2", told)
	}
}
