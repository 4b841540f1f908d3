package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// evicted is how many names a server has shed.
func evicted(t *testing.T, client *redis.Client) (n int) {
	t.Helper()
	info, err := client.Info(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "evicted_keys:")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("evicted_keys: %v", err)
	}
	return n
}

// short is an item of a window of two seconds.
func short(key deltasync.Key) regional.Item {
	it := one(key, 1)
	it.Width, it.Slices = 50*time.Millisecond, 40
	it.Vectors[0].Cells[0].Slice = crdt.Slice(time.Now().UnixNano() / int64(it.Width))
	return it
}

// A full Redis with the shipped policy sheds the counters that expire soonest,
// takes the new ones, and keeps its canaries: a flood of keys costs no resend.
func TestFloodOfKeysInAFullRedis(t *testing.T) {
	server := proc.RedisFrom(t, "../../deploy/redis/redis.conf", "--maxmemory", "6mb", "--maxmemory-samples", "10")
	s, client := open(t, server.Addr)
	before := epoch(t, s)
	var long []regional.Item
	for i := range deltasync.Key(100) {
		it := one(1<<40+i, 7)
		it.Width = time.Hour
		it.Vectors[0].Cells[0].Slice = crdt.Slice(time.Now().UnixNano() / int64(it.Width))
		long = append(long, it)
	}
	merge(t, s, long...)
	const most = 200_000
	n := 0
	for batch := []regional.Item(nil); evicted(t, client) < 5000 && n < most; batch = batch[:0] {
		for range 1000 {
			batch = append(batch, short(deltasync.Key(n)))
			n++
		}
		merge(t, s, batch...) // none is refused
	}
	if got := evicted(t, client); got < 5000 {
		t.Fatalf("%d names evicted after %d keys, want 5000: the Redis is too large for the test", got, n)
	}
	if got := epoch(t, s); got != before {
		t.Errorf("the epoch went from %d to %d: a canary was shed", before, got)
	}
	kept := 0
	out, err := s.Load(t.Context(), long)
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range out {
		if len(it.Vectors) == 1 && it.Vectors[0].Cells[0].Charges == 7 {
			kept++
		}
	}
	if kept < len(long)*9/10 {
		t.Errorf("%d of %d counters with windows of 40 hours are left after a flood of those of 2 seconds, want nearly all", kept, len(long))
	}
	t.Logf("%d keys in, %d names evicted, %d of %d long ones kept", n, evicted(t, client), kept, len(long))
}

// Where the policy is allkeys-*, canaries go with the rest, and their loss shows.
func TestShedCanaryIsNoticed(t *testing.T) {
	server := proc.Redis(t, "--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random")
	s, client := open(t, server.Addr)
	before := epoch(t, s)
	canaries := func() int64 {
		n, err := client.Exists(t.Context(), "sg{00}epoch", "sg{42}epoch", "sg{a7}epoch", "sg{ff}epoch").Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for n := 0; canaries() == 4; {
		if n > 200_000 {
			t.Fatal("no canary of four was shed")
		}
		var batch []regional.Item
		for range 1000 {
			batch = append(batch, short(deltasync.Key(n)))
			n++
		}
		merge(t, s, batch...)
	}
	if got := epoch(t, s); got == before {
		t.Errorf("a canary was shed, and the epoch is still %d", got)
	}
}

// A Redis that may shed nothing refuses: that shows, the counts wait in the
// aggregator, and they are stored once there is room.
func TestFullRedisThatShedsNothing(t *testing.T) {
	server := proc.Redis(t, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
	s, client := open(t, server.Addr)
	a, err := regional.New(regional.Config{Region: "eu", Name: "a1", Lanes: 1, StoreTimeout: 10 * time.Second}, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Sync(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	shape := deltasync.Shape{Generation: 7, Width: width, Slices: pieces, Limit: 100}
	seq, told := uint64(0), deltasync.Key(0)
	tell := func(keys int) deltasync.Status {
		t.Helper()
		now := time.Now()
		seq++
		sec := deltasync.Section{Shape: shape}
		for range keys {
			told++
			sec.Deltas = append(sec.Deltas, deltasync.Delta{Key: told, Cells: []crdt.Cell{{Slice: crdt.Slice(now.UnixNano() / int64(width)), Charges: 5}}})
		}
		up := deltasync.Up{
			Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: "e", Node: deltasync.NodeID("eu", "p", "e"),
			Incarnation: 1, Lanes: 1, Seq: seq, SentAt: now.UnixNano(), Sections: []deltasync.Section{sec},
		}
		b, err := up.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		var down deltasync.Down
		if err := down.UnmarshalBinary(a.Handle(t.Context(), now, deltasync.EdgeSubject("eu", 0, "p", "e"), b)); err != nil {
			t.Fatal(err)
		}
		return down.Status
	}
	for tell(500) == deltasync.StatusOK {
		if told > 200_000 {
			t.Fatal("it is never full")
		}
	}
	if err := a.Sync(t.Context(), time.Now()); !errors.Is(err, regional.ErrStore) {
		t.Errorf("Sync with a full Redis: %v, want ErrStore", err)
	}
	if status := tell(1); status != deltasync.StatusStoreDown {
		t.Errorf("a frame is answered %v, want %v", status, deltasync.StatusStoreDown)
	}
	if st := a.Stats(time.Now()); !st.StoreDown || st.Unstored == 0 {
		t.Errorf("the aggregator says store down: %v, %d keys unstored", st.StoreDown, st.Unstored)
	}

	if err := client.ConfigSet(t.Context(), "maxmemory", "200mb").Err(); err != nil {
		t.Fatal(err)
	}
	if err := a.Sync(t.Context(), time.Now()); err != nil {
		t.Fatalf("Sync with room: %v", err)
	}
	if st := a.Stats(time.Now()); st.StoreDown || st.Unstored != 0 {
		t.Errorf("with room the aggregator says store down: %v, %d keys unstored", st.StoreDown, st.Unstored)
	}
	for _, key := range []deltasync.Key{1, told / 2, told - 1, told} {
		if got := counted(t, s, key); got != 5 {
			t.Errorf("key %d of %d counts %d in the end, want 5", key, told, got)
		}
	}
}
