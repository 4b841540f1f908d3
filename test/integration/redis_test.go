package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisClient is a client of its own, to see what an aggregator wrote.
func redisClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { client.Close() })
	return client
}

// expiring counts the counters in Redis, and fails on one that would stay for
// ever or longer than longest.
func expiring(ctx context.Context, client *redis.Client, longest time.Duration) (counters int, err error) {
	keys := client.Scan(ctx, 0, "sg-*", 1000).Iterator()
	for keys.Next(ctx) {
		if strings.HasSuffix(keys.Val(), "}epoch") {
			continue // a canary: it lives as long as the store does
		}
		if strings.HasSuffix(keys.Val(), "}rights") {
			continue // a lane's log of rights, whose entries end with their leases
		}
		ttl, err := client.PTTL(ctx, keys.Val()).Result()
		if err != nil {
			return 0, fmt.Errorf("PTTL %s: %w", keys.Val(), err)
		}
		most, counts := longest, 1
		if strings.Contains(keys.Val(), ":3600000x24:") { // who the other regions are, for a day (regional/ties.go)
			most, counts = (24+24+2)*time.Hour, 0 // a group is of a day, and expires a window and two slices after it
		}
		if ttl <= 0 || ttl > most {
			return 0, fmt.Errorf("%s lives for %v, want more than 0 and at most %v", keys.Val(), ttl, most)
		}
		counters += counts
	}
	return counters, keys.Err()
}
