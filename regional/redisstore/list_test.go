package redisstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// hot is a key of tag 7 that counted something, to be listed.
func hot(n int, width time.Duration) regional.Item {
	return regional.Item{Key: deltasync.Key(n)<<8 | 7, Width: width, Slices: 4, Note: "note", Vectors: []regional.Vector{{
		Source: regional.FromEdge, Cells: []crdt.Cell{{Slice: crdt.Slice(time.Now().UnixNano() / int64(width)), Charges: 1}},
	}}}
}

func mergeAll(t *testing.T, s *Store, items ...regional.Item) {
	t.Helper()
	if _, err := s.Merge(t.Context(), items); err != nil {
		t.Fatal(err)
	}
}

// A list has a bound, lives as long as its last member, and what has expired
// leaves it.
func TestListIsBounded(t *testing.T) {
	s := testStore(t)
	ctx := t.Context()
	const most = 1024
	for n := range 2 * most { // the later half lasts longer
		mergeAll(t, s, hot(n, time.Minute+time.Duration(n/most)*time.Hour))
	}
	name := listName(s.prefix, 7)
	listed, err := s.client.ZRange(ctx, name, 0, -1).Result()
	if err != nil || len(listed) != most {
		t.Fatalf("%d are listed, %v; want %d", len(listed), err, most)
	}
	for _, m := range listed {
		if !strings.HasSuffix(m, "\x07note") || len(m) != 12 {
			t.Fatalf("%q is listed, want a key and its note", m)
		}
	}
	page, next, err := s.Hot(ctx, 0)
	if err != nil || next != listAtOnce || len(page) != most {
		t.Fatalf("Hot(0): %d keys, next %d, %v; want %d and %d", len(page), next, err, most, listAtOnce)
	}
	for _, n := range page {
		if n.Key>>8 < most {
			t.Errorf("key %x is listed, which expires before others", uint64(n.Key))
		}
	}
	if life, err := s.client.PTTL(ctx, name).Result(); err != nil || life < 5*time.Hour || life > 14*time.Hour {
		t.Errorf("the list lives for %v, %v; want as long as counts of windows of 4 h", life, err)
	}
	last, err := s.client.ZRevRangeWithScores(ctx, name, 0, 0).Result()
	if err != nil || len(last) != 1 {
		t.Fatal(last, err)
	}
	if at, err := s.client.PExpireTime(ctx, name).Result(); err == nil && at.Milliseconds() != int64(last[0].Score) {
		t.Errorf("the list expires at %d, its last member at %.0f", at.Milliseconds(), last[0].Score)
	}

	// Of one that expired nothing is left once another comes.
	if err := s.client.ZAdd(ctx, name, redis.Z{Score: float64(time.Now().UnixMilli() - 1), Member: "\x00\x00\x00\x00\x00\x00\x01\x07old"}).Err(); err != nil {
		t.Fatal(err)
	}
	if page, _, err = s.Hot(ctx, 0); err != nil || len(page) != most {
		t.Errorf("Hot: %d keys, %v; want %d and none that has expired", len(page), err, most)
	}
	mergeAll(t, s, hot(3*most, 2*time.Hour))
	if n, err := s.client.ZCount(ctx, name, "-inf", "1000000000000").Result(); err != nil || n > 0 {
		t.Errorf("%d that expired are listed, %v", n, err)
	}
	if _, err := s.client.ZScore(ctx, name, "\x00\x00\x00\x00\x00\x00\x01\x07old").Result(); err == nil {
		t.Error("what has expired is still listed when another has come")
	}
}

// What ails a list is no reason to refuse counts.
func TestListOfAnotherType(t *testing.T) {
	s := testStore(t)
	if err := s.client.Set(t.Context(), listName(s.prefix, 7), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	it := hot(1, time.Second)
	mergeAll(t, s, it)
	if got, err := s.Load(context.Background(), []regional.Item{it}); err != nil || len(got[0].Vectors) != 1 {
		t.Errorf("Load = %v, %v; want what was merged", got, err)
	}
	if _, next, err := s.Hot(t.Context(), 0); err == nil || next != 0 {
		t.Errorf("Hot: %v, next %d; want an error", err, next)
	}
}
