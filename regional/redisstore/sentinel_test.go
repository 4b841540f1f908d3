package redisstore_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/regional/storetest"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// watched is a master and its replica under three sentinels, which run a copy of
// the shipped configuration.
type watched struct {
	master, replica *node
	sentinels       []string
	hurry           func() // have the sentinels miss a silent master soon
}

func sentinels(t *testing.T) *watched {
	t.Helper()
	server := func(args ...string) *node {
		s := proc.Redis(t, append(args, "--repl-diskless-sync-delay", "0")...)
		_, client := open(t, s.Addr)
		return &node{RedisServer: s, client: client}
	}
	w := &watched{master: server()}
	host, port, _ := net.SplitHostPort(w.master.Addr)
	w.replica = server("--replicaof", host+" "+port)
	caughtUp(t, w.master.client, w.replica.client)

	shipped, err := os.ReadFile("../../deploy/redis/sentinel.conf")
	if err != nil {
		t.Fatal(err)
	}
	const monitor = "sentinel monitor spillgate 127.0.0.1 6379 2"
	if !strings.Contains(string(shipped), monitor) {
		t.Fatalf("sentinel.conf has no %q", monitor)
	}
	var all []*node
	for range 3 {
		file := filepath.Join(t.TempDir(), "sentinel.conf")
		if err := os.WriteFile(file, []byte(strings.Replace(string(shipped), "127.0.0.1 6379", host+" "+port, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		s := proc.RedisFrom(t, file, "--sentinel")
		client := redis.NewClient(&redis.Options{Addr: s.Addr, Protocol: 2, DisableIdentity: true})
		t.Cleanup(func() {
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
		n := &node{RedisServer: s, client: client}
		n.must(t, "SENTINEL", "SET", "spillgate", "down-after-milliseconds", 60000) // nobody shall be taken for dead but who is killed
		all, w.sentinels = append(all, n), append(w.sentinels, s.Addr)
	}
	for _, n := range all { // they find each other, and the replica, through the master
		n.await(t, func() error {
			out, err := redis.NewSentinelClient(n.client.Options()).Master(t.Context(), "spillgate").Result()
			if err == nil && (out["num-other-sentinels"] != "2" || out["num-slaves"] != "1") {
				err = fmt.Errorf("it knows %s other sentinels and %s replicas", out["num-other-sentinels"], out["num-slaves"])
			}
			return err
		})
	}
	w.hurry = func() {
		for _, n := range all {
			n.must(t, "SENTINEL", "SET", "spillgate", "down-after-milliseconds", 1000)
			n.must(t, "SENTINEL", "SET", "spillgate", "failover-timeout", 2000) // one that is given up is tried again after twice as long
		}
	}
	return w
}

func TestSentinel(t *testing.T) {
	w := sentinels(t)
	cfg := redisstore.Config{Addrs: w.sentinels, MasterName: "spillgate", Prefix: "sg", Timeout: 10 * time.Second}
	t.Run("suite", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Subject {
			s, err := redisstore.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			flush(t, w.master.client)
			return storetest.Subject{
				Store:   s,
				Now:     func() time.Time { return serverNow(t, w.master.client) },
				Advance: func(d time.Duration) { advance(t, w.master.client, d) },
				Wipe:    func() { flush(t, w.master.client) },
			}
		})
	})
	cfg.Timeout = 0 // the default
	t.Run("a master dies with counts that nobody copied", func(t *testing.T) { testLostTail(t, w, cfg) })
}

// testLostTail kills a master whose replica lacks the last counts: the new
// master does not have them, its epoch tells, and merged again they are there.
func testLostTail(t *testing.T, w *watched, cfg redisstore.Config) {
	s, err := redisstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	flush(t, w.master.client)
	before := epoch(t, s)
	merge(t, s, one(1, 5), one(2, 5))
	caughtUp(t, w.master.client, w.replica.client)

	// The replica is cut off, and may not come back.
	w.master.must(t, "ACL", "SETUSER", "default", "-psync", "-sync")
	w.master.must(t, "CLIENT", "KILL", "TYPE", "replica")
	w.replica.await(t, func() error {
		info, err := w.replica.client.Info(t.Context(), "replication").Result()
		if err == nil && !strings.Contains(info, "master_link_status:down") {
			err = errors.New("the replica still has its master")
		}
		return err
	})
	tail := []regional.Item{one(1, 9), one(3, 7)}
	merge(t, s, tail...)
	if got := epoch(t, s); got != before {
		t.Errorf("nothing is lost yet, and the epoch went from %d to %d", before, got)
	}
	w.hurry()
	w.master.Kill()
	if _, err := s.Merge(t.Context(), tail[:1]); !errors.Is(err, regional.ErrStore) {
		t.Errorf("Merge without a master: %v, want ErrStore", err)
	}
	w.replica.await(t, func() error {
		got, err := s.Epoch(t.Context())
		if err == nil && got == before {
			err = errors.New("the epoch is that of the master that died")
		}
		return err
	})
	for key, want := range map[deltasync.Key]uint64{1: 5, 2: 5, 3: 0} {
		if got := counted(t, s, key); got != want {
			t.Errorf("key %d counts %d on the new master, want %d: the tail is lost", key, got, want)
		}
	}
	merge(t, s, tail...)
	for key, want := range map[deltasync.Key]uint64{1: 9, 2: 5, 3: 7} {
		if got := counted(t, s, key); got < want { // more if a slice began in between
			t.Errorf("key %d counts %d when it is merged again, want %d", key, got, want)
		}
	}
}
