package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// The Redis for long windows has its counts after a crash. Its epoch changes even
// so: the last second may be missing.
func TestLongStoreKeepsCountsOverARestart(t *testing.T) {
	server := proc.RedisFrom(t, "../../deploy/redis/long.conf", "--maxmemory", "100mb")
	s, client := open(t, server.Addr)
	batch := make([]regional.Item, 1000)
	for i := range batch {
		batch[i] = one(deltasync.Key(i), 5)
	}
	before := epoch(t, s)
	for round := range 3 {
		merge(t, s, batch...)
		proc.Until(t, 10*time.Second, func() error { // it puts writes off while the disk is busy, 2 s at most
			info, err := client.Info(t.Context(), "persistence").Result()
			if err == nil && !strings.Contains(info, "aof_buffer_length:0\r") {
				err = errors.New(info)
			}
			return err
		})
		server.Kill()
		server.Restart()
		proc.Until(t, 10*time.Second, func() error {
			_, err := s.Epoch(t.Context())
			return err
		})
		for _, key := range []deltasync.Key{0, 1, 500, 999} {
			if got := counted(t, s, key); got < 5 { // more if a slice began between rounds
				t.Errorf("round %d: key %d counts %d after a restart, want 5", round, key, got)
			}
		}
		after := epoch(t, s)
		if after == before {
			t.Errorf("round %d: a restart, and the epoch is still %d", round, after)
		}
		before = after
	}
}
