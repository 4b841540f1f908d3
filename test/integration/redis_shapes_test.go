package integration

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/test/proc"
)

// shaped is a cluster of which eu keeps its counts in a Redis of some shape, by
// the settings of its aggregator, and us in a single one.
func shaped(t *testing.T, settings ...string) *cluster {
	t.Helper()
	c := &cluster{nats: startNATS(t, proc.FreeAddr(t))}
	rules := filepath.Join("testdata", "rules.yaml")
	c.us = newRegion(t, "us", "eu", c.nats.URL, rules)
	c.eu = &region{name: "eu"}
	c.eu.aggregator = daemons.Aggregator(t, append([]string{
		"SPILLGATE_REGION=eu", "SPILLGATE_NAME=agg-1", "SPILLGATE_PEERS=us", "SPILLGATE_NATS_URLS=" + c.nats.URL,
	}, settings...))
	for i := range c.eu.edges {
		c.eu.edges[i] = startEdge(t, "eu", fmt.Sprintf("eu-%d", i+1), c.nats.URL, rules)
	}
	c.joined(t)
	awaitMetric(t, settles, c.eu.aggregator.Admin, `spillgate_degraded{reason="store_down"}`, 0)
	return c
}

// outlive has a master of eu's Redis die, with counts that nobody else may have,
// while a limit of 100 a minute is asked for over all edges, and another take its
// place. The limit holds, no decision waits, and all counts are there: at the
// edges, and, when all of those and both aggregators are gone, in Redis.
func (c *cluster) outlive(t *testing.T, dies func() counts, replace func()) {
	t.Helper()
	stop := sync.OnceFunc(watch(t, c.edges()...))
	defer stop()
	held := counts{"before": 18, "meanwhile": 8}
	c.eu.edges[0].charge(t, "before", 7)
	c.us.edges[0].charge(t, "before", 11)
	agree(t, heals, counts{"before": 18}, c.edges()...)
	awaitMetric(t, heals, c.eu.aggregator.Admin, "spillgate_aggregator_unstored_keys", 0)

	const rate, asked = 40, 240
	admitted := uint64(0)
	pace := time.NewTicker(time.Second / rate) // load at a given pace
	defer pace.Stop()
	for i := range asked {
		<-pace.C
		if i == asked/4 {
			maps.Copy(held, dies())
			c.eu.edges[0].charge(t, "meanwhile", 3)
			c.us.edges[1].charge(t, "meanwhile", 5)
		}
		r, err := c.edges()[i%4].check(call{Attributes: map[string]string{"user": "paced"}})
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if r.Allowed {
			admitted++
		}
	}
	if admitted < 100 || admitted > 120 {
		t.Errorf("admitted = %d of %d, want 100 to 120", admitted, asked)
	}
	replace()
	t.Logf("%d of %d admitted; all counts everywhere %v after there was a master", admitted, asked, agree(t, heals, held, c.edges()...))
	awaitMetric(t, heals, c.eu.aggregator.Admin, `spillgate_degraded{reason="store_down"}`, 0)
	awaitMetric(t, heals, c.eu.aggregator.Admin, "spillgate_aggregator_unstored_keys", 0)

	survivor := c.eu.edges[1]
	stop()
	for _, r := range []*region{c.eu, c.us} {
		for _, e := range r.edges {
			e.Kill()
		}
		r.aggregator.Kill()
	}
	c.eu.aggregator.Restart()
	survivor.restart()
	t.Logf("all counts found in Redis %v after every edge and aggregator had died", agree(t, heals, held, survivor))
}

// TestOverRedisCluster: a master of three dies and comes back empty.
func TestOverRedisCluster(t *testing.T) {
	t.Parallel()
	nodes, addrs := redisCluster(t)
	c := shaped(t, "SPILLGATE_REDIS_ADDRS="+strings.Join(addrs, ","))
	ctx := t.Context()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { client.Close() })
	victim := nodes[0]
	c.outlive(t, func() counts {
		c.eu.edges[1].charge(t, "tail", 9)
		victim.Kill()
		return counts{"tail": 9}
	}, victim.Restart)
	var counters atomic.Int64 // the masters are asked at once
	if err := client.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		n, err := expiring(ctx, one, 4*time.Hour)
		if err == nil && n == 0 {
			err = fmt.Errorf("no counter in %s", one)
		}
		counters.Add(int64(n))
		return err
	}); err != nil {
		t.Error(err)
	}
	t.Logf("%d counters over three masters, each with an end", counters.Load())
}

// redisCluster starts three masters from the shipped settings.
func redisCluster(t *testing.T) (nodes []*proc.RedisServer, addrs []string) {
	t.Helper()
	var bus []string
	slots := []int{0, 5461, 10923, 16384}
	for i := range 3 {
		bus = append(bus, fmt.Sprint(proc.FreePort(t)))
		n := proc.RedisFrom(t, shipped(t, "deploy/redis/cluster.conf"), "--maxmemory", "100mb", "--cluster-port", bus[i])
		nodes, addrs = append(nodes, n), append(addrs, n.Addr)
		client := redisClient(t, n.Addr)
		host, port, _ := net.SplitHostPort(addrs[0])
		for _, do := range []func() error{
			func() error { return client.ClusterAddSlotsRange(t.Context(), slots[i], slots[i+1]-1).Err() },
			func() error { return client.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err() },
			func() error { return client.Do(t.Context(), "CLUSTER", "MEET", host, port, bus[0]).Err() },
		} {
			if err := do(); err != nil {
				t.Fatalf("cluster node %d: %v", i+1, err)
			}
		}
	}
	for _, n := range nodes {
		proc.Until(t, settles, func() error {
			info, err := redisClient(t, n.Addr).ClusterInfo(t.Context()).Result()
			if err == nil && !(strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")) {
				err = fmt.Errorf("%s: %s", n.Addr, info)
			}
			return err
		})
	}
	return nodes, addrs
}

// TestOverSentinel: a master dies whose replica lacks the last counts, and the
// sentinels put that in its place.
func TestOverSentinel(t *testing.T) {
	t.Parallel()
	server := func(args ...string) *proc.RedisServer { // sentinels have servers write into their settings, too
		return proc.RedisFrom(t, copied(t, "deploy/redis/redis.conf"), args...)
	}
	master := server()
	host, port, _ := net.SplitHostPort(master.Addr)
	replica := server("--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	copies := redisClient(t, replica.Addr)
	role := func(want string) error {
		info, err := copies.Info(t.Context(), "replication").Result()
		if err == nil && !strings.Contains(info, want) {
			err = fmt.Errorf("the replica says %s, want %s", info, want)
		}
		return err
	}
	proc.Until(t, settles, func() error { return role("master_link_status:up") })
	c := shaped(t, "SPILLGATE_REDIS_ADDRS="+strings.Join(sentinels(t, host, port), ","), "SPILLGATE_REDIS_MASTER_NAME=spillgate")
	first := redisClient(t, master.Addr)
	c.outlive(t, func() counts {
		// The replica is cut off, and may not come back: what is told from now on
		// goes with the master.
		if err := first.Do(t.Context(), "ACL", "SETUSER", "default", "-psync", "-sync").Err(); err != nil {
			t.Fatal(err)
		}
		if err := first.Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err(); err != nil {
			t.Fatal(err)
		}
		proc.Until(t, heals, func() error { return role("master_link_status:down") })
		c.eu.edges[1].charge(t, "tail", 9)
		agree(t, heals, counts{"tail": 9}, c.edges()...)
		master.Kill()
		return counts{"tail": 9}
	}, func() { proc.Until(t, heals, func() error { return role("role:master") }) })
	if n, err := expiring(t.Context(), copies, 4*time.Hour); err != nil || n == 0 {
		t.Errorf("%d counters in the new master, %v", n, err)
	}
}

// copied is a copy of shipped settings, with other words in some places, which
// must be there.
func copied(t *testing.T, file string, others ...string) string {
	t.Helper()
	text, err := os.ReadFile(shipped(t, file))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(others); i += 2 {
		if !strings.Contains(string(text), others[i]) {
			t.Fatalf("%s has no %q", file, others[i])
		}
	}
	name := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(name, []byte(strings.NewReplacer(others...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// sentinels starts three from the shipped settings, which miss a silent master
// after a second, and returns where they are when they know each other. Sentinels
// give up where they last heard of the replica too long ago (on a machine that is
// busy), and try again after twice the failover-timeout: within the test's patience.
func sentinels(t *testing.T, host, port string) (addrs []string) {
	t.Helper()
	for range 3 {
		file := copied(t, "deploy/redis/sentinel.conf", "127.0.0.1 6379", host+" "+port,
			"down-after-milliseconds spillgate 5000", "down-after-milliseconds spillgate 1000",
			"failover-timeout spillgate 10000", "failover-timeout spillgate 2000")
		addrs = append(addrs, proc.RedisFrom(t, file, "--sentinel").Addr)
	}
	for _, addr := range addrs {
		one := redis.NewSentinelClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
		t.Cleanup(func() { one.Close() })
		proc.Until(t, settles, func() error {
			out, err := one.Master(t.Context(), "spillgate").Result()
			if err == nil && (out["num-other-sentinels"] != "2" || out["num-slaves"] != "1") {
				err = fmt.Errorf("%s knows %s other sentinels and %s replicas", addr, out["num-other-sentinels"], out["num-slaves"])
			}
			return err
		})
	}
	return addrs
}
