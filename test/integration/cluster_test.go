package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

const (
	secret = "a secret that only this test knows"
	// settles is how long a healthy cluster may take to join, on a loaded
	// machine.
	settles = 20 * time.Second
)

// cluster is two regions, each with an aggregator, a Redis and two edges, over
// one NATS server.
type cluster struct {
	nats   *proc.NATSServer
	eu, us *region
}

type region struct {
	name       string
	redis      *proc.RedisServer
	aggregator *proc.AggregatorServer
	edges      [2]*edge
}

// edges are all edges, region by region.
func (c *cluster) edges() []*edge {
	return []*edge{c.eu.edges[0], c.eu.edges[1], c.us.edges[0], c.us.edges[1]}
}

// newCluster starts a cluster and waits until all its parts know each other.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{nats: startNATS(t, proc.FreeAddr(t))}
	rules := filepath.Join("testdata", "rules.yaml")
	c.eu = newRegion(t, "eu", "us", c.nats.URL, rules)
	c.us = newRegion(t, "us", "eu", c.nats.URL, rules)
	c.joined(t)
	return c
}

func newRegion(t *testing.T, name, peer, nats, rules string) *region {
	t.Helper()
	r := &region{name: name, redis: startRedis(t)}
	r.aggregator = startAggregator(t, name, peer, nats, r.redis.Addr)
	for i := range r.edges {
		r.edges[i] = startEdge(t, name, name+"-"+strconv.Itoa(i+1), nats, rules)
	}
	return r
}

// joined waits until every edge has its region's ear, and every region the
// other's.
func (c *cluster) joined(t *testing.T) {
	t.Helper()
	for _, e := range c.edges() {
		awaitMetric(t, settles, e.Admin, `spillgate_degraded{reason="sync"}`, 0)
	}
	for _, r := range []*region{c.eu, c.us} {
		awaitMetric(t, settles, r.aggregator.Admin, "spillgate_live_edges", 2)
	}
	agree(t, settles, counts{"joined": 0}, c.edges()...)
	c.eu.edges[0].charge(t, "joined", 1)
	agree(t, settles, counts{"joined": 1}, c.edges()...)
}

// startNATS starts a server as it is shipped, but for its ports.
func startNATS(t *testing.T, addr string) *proc.NATSServer {
	t.Helper()
	return proc.NATSAt(t, addr, "-c", shipped(t, "deploy/nats/single.conf"), "-m", strconv.Itoa(proc.FreePort(t)))
}

// startRedis starts a server as it is shipped, but for its address and folder.
func startRedis(t *testing.T) *proc.RedisServer {
	t.Helper()
	return proc.RedisFrom(t, shipped(t, "deploy/redis/redis.conf"))
}

func shipped(t *testing.T, file string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatalf("path of %s: %v", file, err)
	}
	return path
}

// startAggregator starts one that is told all by its environment, but for
// flags, which go before.
func startAggregator(t *testing.T, region, peer, nats, redis string, args ...string) *proc.AggregatorServer {
	t.Helper()
	return daemons.Aggregator(t, []string{
		"SPILLGATE_REGION=" + region, "SPILLGATE_NAME=agg-1", "SPILLGATE_PEERS=" + peer,
		"SPILLGATE_NATS_URLS=" + nats, "SPILLGATE_REDIS_URL=redis://" + redis + "/0",
	}, args...)
}

// edge is an edge with a client of its own.
type edge struct {
	*proc.EdgeServer
	client
	name string
}

// startEdge starts an edge that has its settings from all three places: a
// file, the environment, and flags, which go before what the others say.
func startEdge(t *testing.T, region, name, nats, rules string, args ...string) *edge {
	t.Helper()
	rules, err := filepath.Abs(rules)
	if err != nil {
		t.Fatalf("path of the rules: %v", err)
	}
	settings := filepath.Join(t.TempDir(), "edge.yaml")
	text := fmt.Sprintf("region: %s\nname: overruled\nrules: {path: %q}\nnats: {urls: [%q]}\n", region, rules, nats)
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatalf("settings of %s: %v", name, err)
	}
	env := []string{"SPILLGATE_SECRET=" + secret, "SPILLGATE_CONFIG=" + settings, "SPILLGATE_POP=pop-" + region}
	server := daemons.Edge(t, env, append([]string{"--name", name}, args...)...)
	return &edge{EdgeServer: server, client: newClient(t, server.URL), name: name}
}

// restart starts a dead edge again, under the same name.
func (e *edge) restart() {
	e.Restart()
	e.http.CloseIdleConnections() // to the one before
}
