package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/regional/storetest"
	"github.com/spillgate/spillgate/test/proc"
)

// cluster starts two masters that share the slots, and returns their addresses.
func cluster(t *testing.T) []string {
	t.Helper()
	var addrs []string
	var clients []*redis.Client
	for range 2 {
		// By default the bus listens 10000 above the port, where nobody looked
		// whether that is free.
		bus := fmt.Sprint(proc.FreePort(t))
		server := proc.Redis(t, "--cluster-enabled", "yes", "--cluster-port", bus)
		_, client := open(t, server.Addr)
		addrs, clients = append(addrs, server.Addr), append(clients, client)
		host, port, _ := strings.Cut(server.Addr, ":")
		if err := clients[0].Do(t.Context(), "CLUSTER", "MEET", host, port, bus).Err(); err != nil {
			t.Fatalf("CLUSTER MEET: %v", err)
		}
	}
	for i, client := range clients {
		if err := client.ClusterAddSlotsRange(t.Context(), i*8192, i*8192+8191).Err(); err != nil {
			t.Fatalf("CLUSTER ADDSLOTS: %v", err)
		}
	}
	for _, client := range clients {
		proc.Until(t, 30*time.Second, func() error {
			info, err := client.ClusterInfo(t.Context()).Result()
			if err == nil && !(strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2")) {
				err = errors.New(info)
			}
			return err
		})
	}
	return addrs
}

func TestCluster(t *testing.T) {
	addrs := cluster(t)
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		s, first := openWith(t, redisstore.Config{Addrs: addrs, Timeout: 10 * time.Second})
		_, second := open(t, addrs[1])
		wipe := func() {
			flush(t, first)
			flush(t, second)
		}
		wipe()
		return storetest.Subject{
			Store:   s,
			Now:     func() time.Time { return serverNow(t, first) },
			Advance: func(d time.Duration) { advance(t, first, d) },
			Wipe:    wipe,
		}
	})

	t.Run("the epoch sees one master lose its memory", func(t *testing.T) {
		s, _ := openWith(t, redisstore.Config{Addrs: addrs, Timeout: 10 * time.Second})
		for _, addr := range addrs {
			before := epoch(t, s)
			_, client := open(t, addr)
			flush(t, client)
			if got := epoch(t, s); got == before {
				t.Errorf("%s was wiped, and the epoch is still %d", addr, got)
			}
		}
	})
}
