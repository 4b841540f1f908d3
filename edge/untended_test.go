package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// A flood frees no key that has used up its limit at a node that nobody calls Tick of, as
// that of Local: what has ended makes room for what comes.
func TestFloodOfUntendedNode(t *testing.T) {
	alone.Mark(t)
	n := newNode(t, Config{MaxKeys: shards * maxCounters}, perUser(limit.RateSpec{Limit: 2, Per: time.Minute, Scope: "edge"}))
	now, lost := start, uint64(0)
	for window := range 20 {
		full := func(i int) string { return fmt.Sprintf("full-%d-%d", window, i) }
		used := [200]bool{} // but for who looks like one that the flood before has blocked
		for i := range used {
			used[i] = through(n, now, full(i), 2) == 2
		}
		for i := range 12_000 {
			user := fmt.Sprintf("flood-%d-%d", window, i)
			check(n, now, user)
			check(n, now, user)
			now = now.Add(3 * time.Millisecond)
		}
		held := 0
		for i := range used {
			if !used[i] {
				continue
			}
			held++
			if d := check(n, now, full(i)); d.Allowed {
				t.Fatalf("window %d: %s used up its limit 40 s ago, and has another", window, full(i))
			}
		}
		if held < 195 {
			t.Errorf("window %d: %d of 200 new keys had their limit", window, held)
		}
		if window == 2 {
			lost = n.Stats(now).BlockedLost
		}
		now = now.Add(20 * time.Second)
	}
	if now := n.Stats(now).BlockedLost; now > lost {
		t.Errorf("%d keys lost after the third window, %d before: what had ended was in the way", now-lost, lost)
	}
}

// Logs that grow stay within MaxBytes though nobody calls Tick and no key comes: those with
// the smallest share make room.
func TestUntendedNodeKeepsToItsBytes(t *testing.T) {
	alone.Mark(t)
	n := newNode(t, Config{MaxBytes: minBytes}, perUser(limit.RateSpec{Limit: 400, Per: time.Minute, Algorithm: "sliding_log", Scope: "edge"}))
	const users, most = 600, 399
	for i := range most {
		for user := range users {
			check(n, start.Add(time.Duration(i*users+user)*100*time.Microsecond), fmt.Sprint("u", user))
		}
	}
	total := 0
	for i := range n.shards {
		s := &n.shards[i]
		takes := len(s.table)*recordBytes + 16*s.weight + s.dirtyBytes()
		if total += takes; takes > s.bytes+16*most { // the last one that grew
			t.Errorf("shard %d takes %d of %d bytes with %d keys", i, takes, s.bytes, s.used)
		}
	}
	if keys := n.Keys(); keys == users || total < n.shards[0].bytes*shards/2 {
		t.Errorf("%d of %d keys are live, in %d bytes of %d: nothing was tried", keys, users, total, n.shards[0].bytes*shards)
	}
	local, err := Local(perUser(limit.RateSpec{Limit: 1, Per: time.Minute}))
	if err != nil {
		t.Fatal(err)
	}
	if s := &local.shards[0]; s.bytes == 0 || s.max != localKeys/shards {
		t.Errorf("a local node's shard may hold %d keys and %d bytes", s.max, s.bytes)
	}
}
