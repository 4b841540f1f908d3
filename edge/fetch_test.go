package edge

import (
	"testing"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// What is fetched for a hash is where each of its counters is looked for first.
func TestFetchesTheHomeOfAllRates(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: 60e9}))
	for _, user := range neighbours(n, 100) { // a table of some size
		check(n, start, user)
	}
	for hash := deltasync.Hash(1); hash != 0; hash <<= 1 {
		s := n.shardOf(hash)
		for generation := range uint64(100) {
			key := hash.Key(generation)
			if key == 1 { // of all 2^64 hashes and generations one pair makes 0
				continue
			}
			if got := n.shard(key); got != s {
				t.Fatalf("hash %#x, generation %d: another shard", hash, generation)
			}
			if got, want := homeOf(deltasync.Key(hash), 1000), homeOf(key, 1000); got != want {
				t.Fatalf("hash %#x, generation %d: place %d is fetched, %d looked at", hash, generation, got, want)
			}
		}
	}
	for i := range n.shards {
		if s, w := &n.shards[i], &n.wheres[i]; len(s.table) > 0 && (w.first.Load() != &s.table[0] || int(w.size.Load()) != len(s.table)) {
			t.Errorf("shard %d: %p of %d is fetched from, the table is %p of %d", i, w.first.Load(), w.size.Load(), &s.table[0], len(s.table))
		}
	}
}
