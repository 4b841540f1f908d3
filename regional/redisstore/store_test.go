package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/regional/storetest"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// open returns a store on addr with timeouts for a machine that runs other
// tests meanwhile, and a plain client.
func open(t testing.TB, addr string) (*redisstore.Store, *redis.Client) {
	t.Helper()
	return openWith(t, redisstore.Config{Addrs: []string{addr}, Timeout: 10 * time.Second})
}

func openWith(t testing.TB, cfg redisstore.Config) (*redisstore.Store, *redis.Client) {
	t.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = "sg"
	}
	s, err := redisstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: cfg.Addrs[0], Password: cfg.Password, DB: cfg.DB, MaxRetries: -1})
	t.Cleanup(func() {
		_ = s.Close() // a test may have closed it
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, client
}

func flush(t testing.TB, client *redis.Client) {
	t.Helper()
	if err := client.FlushAll(context.Background()).Err(); err != nil {
		t.Fatalf("FLUSHALL: %v", err)
	}
}

// serverNow is Redis's clock.
func serverNow(t testing.TB, client *redis.Client) time.Time {
	t.Helper()
	now, err := client.Time(context.Background()).Result()
	if err != nil {
		t.Fatalf("TIME: %v", err)
	}
	return now
}

// advance returns when Redis's clock is d further.
func advance(t testing.TB, client *redis.Client, d time.Duration) {
	t.Helper()
	end := serverNow(t, client).Add(d)
	proc.Until(t, d+30*time.Second, func() error {
		if now := serverNow(t, client); now.Before(end) {
			return fmt.Errorf("it is %v, not yet %v", now, end)
		}
		return nil
	})
}

func TestStore(t *testing.T) {
	server := proc.Redis(t)
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		s, client := open(t, server.Addr)
		flush(t, client)
		return storetest.Subject{
			Store:   s,
			Now:     func() time.Time { return serverNow(t, client) },
			Advance: func(d time.Duration) { advance(t, client, d) },
			Wipe:    func() { flush(t, client) },
		}
	})
}

const (
	width  = 1500 * time.Millisecond
	pieces = 40
)

// one is an item with a count in the present slice.
func one(key deltasync.Key, count uint64) regional.Item {
	now := crdt.Slice(time.Now().UnixNano() / int64(width))
	return regional.Item{Key: key, Width: width, Slices: pieces, Vectors: []regional.Vector{{
		Source: regional.FromEdge, Replica: crdt.Replica{Node: 1, Incarnation: 2},
		Cells: []crdt.Cell{{Slice: now, Charges: count}},
	}}}
}
