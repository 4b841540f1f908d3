package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// counted is what the store holds of a key of one replica, summed.
func counted(t testing.TB, s *redisstore.Store, key deltasync.Key) uint64 {
	t.Helper()
	got, err := s.Load(t.Context(), []regional.Item{one(key, 1)})
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	sum := uint64(0)
	for _, v := range got[0].Vectors {
		for _, c := range v.Cells {
			sum += c.Charges
		}
	}
	return sum
}

func epoch(t testing.TB, s *redisstore.Store) uint64 {
	t.Helper()
	e, err := s.Epoch(t.Context())
	if err != nil {
		t.Fatalf("Epoch: %v", err)
	}
	return e
}

func merge(t testing.TB, s *redisstore.Store, batch ...regional.Item) []regional.Item {
	t.Helper()
	out, err := s.Merge(t.Context(), batch)
	if err != nil {
		t.Fatalf("Merge: %v", err)
	}
	return out
}

func TestScriptIsSentAgainWhenForgotten(t *testing.T) {
	s, client := open(t, proc.Redis(t).Addr)
	batch := make([]regional.Item, 3000) // several pipelines of several calls
	for round := range 3 {
		for i := range batch {
			batch[i] = one(deltasync.Key(i+1), uint64(round)+1)
		}
		merge(t, s, batch...)
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []deltasync.Key{1, 64, 65, 1024, 1025, 3000} {
		// The count moves to the next slice when rounds fall into two.
		if got := counted(t, s, key); got < 3 {
			t.Errorf("key %d counts %d, want 3", key, got)
		}
	}
}

func TestDeadServer(t *testing.T) {
	server := proc.Redis(t)
	s, _ := openWith(t, redisstore.Config{Addrs: []string{server.Addr}})
	proc.Until(t, 10*time.Second, func() error {
		_, err := s.Merge(t.Context(), []regional.Item{one(1, 5)})
		return err
	})
	first := epoch(t, s)

	for _, fault := range []struct {
		name        string
		start, stop func()
	}{
		{"frozen", server.Pause, server.Continue},
		{"killed", server.Kill, server.Restart},
	} {
		fault.start()
		begin := time.Now()
		_, err := s.Merge(t.Context(), []regional.Item{one(1, 6)})
		if took := time.Since(begin); took > 10*redisstore.DefaultTimeout {
			t.Errorf("%s: Merge took %v, want a few times %v", fault.name, took, redisstore.DefaultTimeout)
		}
		if !errors.Is(err, regional.ErrStore) {
			t.Errorf("%s: Merge: %v, want ErrStore", fault.name, err)
		}
		if _, err := s.Epoch(t.Context()); !errors.Is(err, regional.ErrStore) {
			t.Errorf("%s: Epoch: %v, want ErrStore", fault.name, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := s.Merge(ctx, []regional.Item{one(1, 6)}); !errors.Is(err, regional.ErrStore) {
			t.Errorf("%s: Merge with a deadline: %v, want ErrStore", fault.name, err)
		}
		cancel()
		fault.stop()
		proc.Until(t, 10*time.Second, func() error {
			_, err := s.Merge(t.Context(), []regional.Item{one(1, 7)})
			return err
		})
	}
	proc.Until(t, 10*time.Second, func() error {
		switch e, err := s.Epoch(t.Context()); {
		case err != nil:
			return err
		case e == first:
			return errors.New("it came back empty and its epoch is the same")
		}
		return nil
	})
}

func TestAbsentServer(t *testing.T) {
	s, _ := openWith(t, redisstore.Config{Addrs: []string{proc.FreeAddr(t)}})
	if _, err := s.Merge(t.Context(), []regional.Item{one(1, 1)}); !errors.Is(err, regional.ErrStore) {
		t.Errorf("Merge: %v, want ErrStore", err)
	}
}

func TestWrongPassword(t *testing.T) {
	server := proc.Redis(t, "--requirepass", "right")
	s, _ := openWith(t, redisstore.Config{Addrs: []string{server.Addr}, Password: "wrong"})
	_, err := s.Merge(t.Context(), []regional.Item{one(1, 1)})
	if !errors.Is(err, regional.ErrStore) || strings.Contains(err.Error(), `"wrong"`) {
		t.Errorf("Merge with a wrong password: %v, want ErrStore without the password", err)
	}
	s, _ = openWith(t, redisstore.Config{Addrs: []string{server.Addr}, Password: "right", DB: 3, Prefix: "eu:"})
	merge(t, s, one(1, 1))
	if got := counted(t, s, 1); got != 1 {
		t.Errorf("with the right password it counts %d, want 1", got)
	}
}

// Each way of losing counts must show.
func TestEpochChanges(t *testing.T) {
	server := proc.Redis(t)
	s, client := open(t, server.Addr)
	last := epoch(t, s)
	changed := func(what string) {
		t.Helper()
		e := epoch(t, s)
		if e == last {
			t.Errorf("%s: the epoch is still %d", what, e)
		}
		last = e
	}
	if e := epoch(t, s); e != last {
		t.Errorf("nothing happened, and the epoch went from %d to %d", last, e)
	}
	flush(t, client)
	changed("FLUSHALL")
	if err := client.Del(t.Context(), "sg{a7}epoch").Err(); err != nil {
		t.Fatal(err)
	}
	changed("one tag lost")

	// A promotion: the canaries are copied, the replication id is not.
	replica := proc.Redis(t)
	_, follower := open(t, replica.Addr)
	host, port, _ := strings.Cut(server.Addr, ":")
	if err := follower.ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	proc.Until(t, 30*time.Second, func() error {
		info, err := follower.Info(t.Context(), "replication").Result()
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = errors.New("the replica has not caught up")
		}
		return err
	})
	if err := follower.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	s, _ = open(t, replica.Addr)
	changed("promotion")
}

func TestEveryCounterExpires(t *testing.T) {
	s, client := open(t, proc.Redis(t).Addr)
	epoch(t, s)
	var batch []regional.Item
	for n, shape := range []regional.Item{
		{Width: 25 * time.Millisecond, Slices: 40}, {Width: time.Second, Slices: 1},
		{Width: width, Slices: pieces}, {Width: time.Hour, Slices: 24},
	} {
		shape.Key = deltasync.Key(n + 1)
		first, last := shape.Live(time.Now().Add(500 * time.Millisecond))
		for s := first; s <= last; s++ {
			shape.Vectors = []regional.Vector{{Source: regional.FromEdge, Cells: []crdt.Cell{{Slice: s, Charges: 1}}}}
			batch = append(batch, shape)
		}
	}
	now := serverNow(t, client)
	merge(t, s, batch...)
	counters := 0
	for iter := client.Scan(t.Context(), 0, "*", 1000).Iterator(); iter.Next(t.Context()); {
		if strings.HasSuffix(iter.Val(), "epoch") {
			continue
		}
		counters++
		var millis, slices int64
		var group int64
		_, name, _ := strings.Cut(iter.Val(), ":")
		if _, err := fmt.Sscanf(name, "%dx%d:%d", &millis, &slices, &group); err != nil {
			t.Fatalf("key %q: %v", iter.Val(), err)
		}
		ttl, err := client.PTTL(t.Context(), iter.Val()).Result()
		if err != nil {
			t.Fatal(err)
		}
		kept := time.Duration(slices*millis)*time.Millisecond + max(time.Second, time.Duration(2*millis)*time.Millisecond)
		size := max(slices, 4, (2000+millis-1)/millis)
		want := time.UnixMilli((group + 1) * size * millis).Add(kept).Sub(now)
		if ttl <= 0 || ttl > want || ttl < want-10*time.Second {
			t.Errorf("key %q expires in %v, want %v after its group's end: in %v", iter.Val(), ttl, kept, want)
		}
	}
	if counters < 8 {
		t.Errorf("%d groups, want two or more of each of four shapes", counters)
	}

	// A later write does not put it off.
	before := ttls(t, client)
	merge(t, s, batch...)
	for key, ttl := range ttls(t, client) {
		if old, ok := before[key]; ok && ttl > old+time.Second {
			t.Errorf("key %q expired in %v, and after another merge in %v", key, old, ttl)
		}
	}
}

func ttls(t testing.TB, client *redis.Client) map[string]time.Duration {
	t.Helper()
	out := map[string]time.Duration{}
	for iter := client.Scan(t.Context(), 0, "*:*", 1000).Iterator(); iter.Next(t.Context()); {
		ttl, err := client.PTTL(t.Context(), iter.Val()).Result()
		if err != nil {
			t.Fatal(err)
		}
		out[iter.Val()] = ttl
	}
	return out
}

// firstGroup is the name of one of the groups stored.
func firstGroup(t testing.TB, client *redis.Client) string {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*:*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("KEYS = %v, %v, want a group", keys, err)
	}
	return slices.Min(keys)
}

func TestMemory(t *testing.T) {
	s, client := open(t, proc.Redis(t).Addr)
	merge(t, s, one(1, 100))
	if got, err := client.ObjectEncoding(t.Context(), firstGroup(t, client)).Result(); err != nil || got != "listpack" && got != "ziplist" {
		t.Errorf("OBJECT ENCODING of a key with one small vector = %q, %v, want listpack or ziplist", got, err)
	}
	flush(t, client)

	// A slice width for which the present slice ends its group, so that the
	// whole group is alive.
	it := regional.Item{Key: 1, Width: time.Minute, Slices: pieces}
	now := func() crdt.Slice { return crdt.Slice(time.Now().UnixNano() / int64(it.Width)) }
	for now()%pieces != pieces-1 {
		it.Width += time.Second
	}
	for n, source := range []regional.Source{regional.FromEdge, regional.FromEdge, regional.FromRegion} {
		v := regional.Vector{Source: source, Replica: crdt.Replica{Node: 1<<63 + uint64(n), Incarnation: 1 << 62}}
		for i := range crdt.Slice(pieces) {
			v.Cells = append(v.Cells, crdt.Cell{Slice: now() - pieces + 1 + i, Charges: 1000 + uint64(i)})
		}
		it.Vectors = append(it.Vectors, v)
	}
	merge(t, s, it)
	group := firstGroup(t, client)
	fields, err := client.HGetAll(t.Context(), group).Result()
	if err != nil || len(fields) != 4 {
		t.Fatalf("HGETALL = %d fields, %v, want a version and three vectors", len(fields), err)
	}
	for name, value := range fields {
		if name != "v" && len(value) != 2+3*pieces {
			t.Errorf("field %x takes %d bytes, want 2 and 3 a slice", name, len(value))
		}
	}
	got, err := client.MemoryUsage(t.Context(), group).Result()
	if err != nil || got > 1000 {
		t.Errorf("MEMORY USAGE with two edges and a region at 40 slices = %d, %v, want at most 1000", got, err)
	}
	t.Logf("MEMORY USAGE with two edges and a region at 40 slices: %d bytes", got)
}
