package redisstore_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/test/proc"
)

// node is a server of a cluster.
type node struct {
	*proc.RedisServer
	client *redis.Client
	id     string
}

// nodes is a cluster: masters share the slots evenly, and replicas[i] copies
// masters[i].
type nodes struct{ masters, replicas []*node }

// cluster starts three masters and a replica of each, from the shipped
// configuration.
func cluster(t *testing.T) *nodes {
	t.Helper()
	c := &nodes{}
	var all []*node
	var first []string // address and bus of the first node
	for i := range 6 {
		// By default the bus listens 10000 above the port, where nobody looked
		// whether that is free. What nodes know of each other spreads the faster
		// the sooner they would be missed.
		bus := fmt.Sprint(proc.FreePort(t))
		server := proc.RedisFrom(t, "../../deploy/redis/cluster.conf", "--maxmemory", "100mb", "--cluster-port", bus, "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0")
		_, client := open(t, server.Addr)
		n := &node{RedisServer: server, client: client}
		n.id = n.must(t, "CLUSTER", "MYID").(string)
		if all = append(all, n); i < 3 {
			c.masters = append(c.masters, n)
			slots := []int{0, 5461, 10923, 16384}
			if err := client.ClusterAddSlotsRange(t.Context(), slots[i], slots[i+1]-1).Err(); err != nil {
				t.Fatalf("CLUSTER ADDSLOTSRANGE: %v", err)
			}
		} else {
			c.replicas = append(c.replicas, n)
		}
		n.must(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1) // else they may quarrel about one for a while
		host, port, _ := net.SplitHostPort(server.Addr)
		if first == nil {
			first = []string{host, port, bus}
		} else {
			n.must(t, "CLUSTER", "MEET", first[0], first[1], first[2])
		}
	}
	for _, n := range all {
		n.await(t, func() error {
			info, err := n.client.ClusterInfo(t.Context()).Result()
			if err == nil && !(strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:6") && strings.Contains(info, "cluster_slots_ok:16384")) {
				err = errors.New(info)
			}
			return err
		})
	}
	for i, n := range c.replicas {
		n.await(t, func() error { return n.client.Do(t.Context(), "CLUSTER", "REPLICATE", c.masters[i].id).Err() })
	}
	for i := range c.replicas {
		c.caughtUp(t, i)
	}
	c.wipe(t)               // nobody tells of a replica to which nothing was written yet
	for _, n := range all { // the client takes the first answer, whoever gives it
		n.await(t, func() error {
			shards, err := n.client.ClusterSlots(t.Context()).Result() //nolint:staticcheck // it is what the client itself asks, and names the master first
			for _, s := range shards {
				if len(s.Nodes) != 2 {
					err = fmt.Errorf("%s knows no replica of %d to %d", n.Addr, s.Start, s.End)
				}
			}
			return err
		})
	}
	for _, n := range all { // nobody shall be taken for dead but who is killed
		n.must(t, "CONFIG", "SET", "cluster-node-timeout", 60000)
	}
	return c
}

func (c *nodes) addrs() (out []string) {
	for _, n := range c.masters {
		out = append(out, n.Addr)
	}
	return out
}

// caughtUp waits until replica i has all that its master has.
func (c *nodes) caughtUp(t *testing.T, i int) {
	t.Helper()
	caughtUp(t, c.masters[i].client, c.replicas[i].client)
}

// caughtUp waits until a replica has all that its master has by now.
func caughtUp(t *testing.T, master, replica *redis.Client) {
	t.Helper()
	offset := func(client *redis.Client) (string, error) {
		info, err := client.Info(t.Context(), "replication").Result()
		if err != nil {
			return "", err
		}
		if strings.Contains(info, "role:slave") && !strings.Contains(info, "master_link_status:up") {
			return "", errors.New("it has no master")
		}
		for line := range strings.Lines(info) {
			if v, ok := strings.CutPrefix(line, "slave_repl_offset:"); ok {
				return v, nil
			}
		}
		for line := range strings.Lines(info) {
			if v, ok := strings.CutPrefix(line, "master_repl_offset:"); ok {
				return v, nil
			}
		}
		return "", errors.New(info)
	}
	proc.Until(t, 30*time.Second, func() error {
		want, err := offset(master)
		if err != nil {
			return err
		}
		got, err := offset(replica)
		if err == nil && got != want {
			err = fmt.Errorf("the replica is at %s, its master at %s", got, want)
		}
		return err
	})
}

// wipe empties all masters, and by them the replicas.
func (c *nodes) wipe(t *testing.T) {
	t.Helper()
	for _, n := range c.masters {
		flush(t, n.client)
	}
}

// owner is the master that a node believes to serve a slot.
func (n *node) owner(t *testing.T, slot int) (addr string, err error) {
	t.Helper()
	shards, err := n.client.ClusterSlots(t.Context()).Result() //nolint:staticcheck // it is what the client itself asks, and names the master first
	for _, s := range shards {
		if s.Start <= slot && slot <= s.End && len(s.Nodes) > 0 {
			return s.Nodes[0].Addr, err
		}
	}
	return "", err
}

func (n *node) must(t *testing.T, args ...any) any {
	t.Helper()
	v, err := n.client.Do(t.Context(), args...).Result()
	if err != nil {
		t.Fatalf("%s: %v: %v", n.Addr, args, err)
	}
	return v
}

func (n *node) await(t *testing.T, done func() error) {
	t.Helper()
	proc.Until(t, 30*time.Second, done)
}
