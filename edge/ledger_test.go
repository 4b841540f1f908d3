package edge

import (
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Shards begin cache lines, so that a lock shares none with what others look at. On
// processors of 32 bits they may not.
func TestShardsBeginCacheLines(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) < 8 {
		return // nothing is laid out for speed
	}
	if size := unsafe.Sizeof(shard{}); size%line != 0 {
		t.Errorf("a shard takes %d bytes: the next one begins within a cache line", size)
	}
	if at := unsafe.Offsetof(Node{}.shards); at%line != 0 { // what is as large as a node begins a page
		t.Errorf("shards begin at byte %d of a node, within a cache line", at)
	}
}

// keyOf is the key of a user under the node's first rate.
func keyOf(n *Node, user string) deltasync.Key { return keyFor(n, "user", user, 0) }

// keyFor is the i-th key of a request with one attribute.
func keyFor(n *Node, attribute, value string, i int) deltasync.Key {
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set(attribute, value)
	var room [maxCounters]counter
	return n.counters(start.UnixNano(), req, req.Rules(), room[:0])[i].key
}

// counted is what is counted of a live key, by whomever.
func counted(r *record) []crdt.Cell {
	if r.sparse() {
		return []crdt.Cell{r.cell()}
	}
	r.settle()
	return mergeCells(nil, &r.block.own, &r.block.others)
}

// neighbours finds users whose keys stand in one shard.
func neighbours(n *Node, count int) []string {
	byShard := map[*shard][]string{}
	for i := 0; ; i++ {
		user := fmt.Sprint("u", i)
		s := n.shard(keyOf(n, user))
		if byShard[s] = append(byShard[s], user); len(byShard[s]) == count {
			return byShard[s]
		}
	}
}

// Counts that nobody else has are forgotten last, however few they are, while
// the region answers: what it has of the others it tells again. Cut off, the
// share of the limit alone decides.
func TestUnsentCountsAreEvictedLast(t *testing.T) {
	for _, cut := range []bool{false, true} {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Hour}))
		users := neighbours(n, 3)
		n.shard(keyOf(n, users[0])).max = 2
		for range 9 {
			check(n, start, users[0])
		}
		out := n.Flush(start)
		answer(t, n, start, upOf(t, out), deltasync.Totals{})
		now := start
		if cut {
			now = start.Add(time.Minute)
		}
		check(n, now, users[1])
		check(n, now, users[2])
		rate := n.Rules().Rules()[0].Rates[0]
		if got := n.Believe(now, rate, keyOf(n, users[0])).Live; got != cut {
			t.Errorf("cut off %v: the key with 9 of 10 sent is live: %v", cut, got)
		}
		if got := n.Believe(now, rate, keyOf(n, users[1])).Live; got == cut {
			t.Errorf("cut off %v: the key with 1 of 10 unsent is live: %v", cut, got)
		}
		if st := n.Stats(now); st.Evicted+st.EvictedLost != 1 || st.EvictedLost == 1 != cut {
			t.Errorf("cut off %v: %d forgotten, %d with counts that nobody else has", cut, st.Evicted, st.EvictedLost)
		}
	}
}

// TestCrossedKeysDoNotDeadlock races two requests whose keys stand in the same
// two shards, one's first in that of the other's second.
func TestCrossedKeysDoNotDeadlock(t *testing.T) {
	rate := []limit.RateSpec{{Limit: 1 << 40, Per: time.Hour}}
	n := newNode(t, Config{},
		limit.RuleSpec{Name: "user", Group: "a", Key: []string{"user"}, Rates: rate},
		limit.RuleSpec{Name: "path", Group: "b", Key: []string{"path"}, Rates: rate})
	find := func(attribute string, want func(*shard) bool) string {
		for i := 0; ; i++ {
			if value := fmt.Sprint("/", i); want(n.shard(keyFor(n, attribute, value, 0))) {
				return value
			}
		}
	}
	user := find("user", func(*shard) bool { return true })
	a := n.shard(keyFor(n, "user", user, 0))
	path := find("path", func(s *shard) bool { return s != a })
	b := n.shard(keyFor(n, "path", path, 0))
	crossed := [2][2]string{
		{user, path},
		{find("user", func(s *shard) bool { return s == b }), find("path", func(s *shard) bool { return s == a })},
	}
	var wg sync.WaitGroup
	for _, names := range crossed {
		wg.Go(func() { // ends by itself; waited for below
			req := n.Rules().Only().NewRequest()
			req.Set("user", names[0])
			req.Set("path", names[1])
			for range 100_000 {
				n.Check(start, req)
			}
		})
	}
	done := make(chan struct{})
	go func() { // ends with the two above; waited for below
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("two requests with crossed keys wait for each other")
	}
}
