package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Surfaces recover from panics, so a bug of ours in the middle of a decision
// costs one request and not, for ever, all those whose key stands in the shard.
func TestPanicLeavesNoShardLocked(t *testing.T) {
	minute, hour := limit.RateSpec{Limit: 100, Per: time.Minute}, limit.RateSpec{Name: "hour", Limit: 1000, Per: time.Hour}
	for name, rates := range map[string][]limit.RateSpec{"one rate": {minute}, "two rates": {minute, hour}} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(rates...))
			n.stout = true
			check(n, start, "u")
			n.Flush(start) // the next charge marks the record dirty, by its block
			s := n.shard(keyOf(n, "u"))
			s.find(keyOf(n, "u")).block = nil
			func() {
				defer func() {
					if recover() == nil {
						t.Error("Check did not panic: this test tests nothing")
					}
				}()
				check(n, start, "u")
			}()
			for i := range n.shards {
				if !n.shards[i].mu.TryLock() {
					t.Errorf("shard %d is left locked", i)
				}
			}
		})
	}
}
