package redisstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/test/proc"
)

func testStore(t *testing.T) *Store {
	t.Helper()
	s, err := New(Config{Addrs: []string{proc.Redis(t).Addr}, Prefix: "sg", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// What outlasts slices is one hash: it lives as long as the part of it that lives
// longest, whichever of them changed.
func TestLastingExpires(t *testing.T) {
	s := testStore(t)
	now := time.Now()
	it := regional.Item{Key: 1, Width: time.Second, Slices: 60, Floor: true}
	it.Until = now.Add(time.Hour).UnixNano()
	lives := func(what string, least, most time.Duration) {
		t.Helper()
		if _, err := s.Merge(t.Context(), []regional.Item{it}); err != nil {
			t.Fatal(err)
		}
		names, err := s.client.Keys(t.Context(), "*rest").Result()
		if err != nil || len(names) != 1 {
			t.Fatalf("%s: hashes %v, %v; want one", what, names, err)
		}
		if got, err := s.client.PTTL(t.Context(), names[0]).Result(); err != nil || got < least || got > most {
			t.Errorf("%s: it lives for %v, %v; want %v to %v", what, got, err, least, most)
		}
	}
	lives("a penalty of an hour", 59*time.Minute, time.Hour+time.Second)
	it.Rest = crdt.Carry{Boundary: crdt.Slice(now.Unix()), Level: 5}
	lives("beside the same one, what rests", regional.RestKept-time.Minute, regional.RestKept+2*time.Second)
	it.Rest, it.Until = crdt.Carry{}, now.Add(2*time.Hour).UnixNano()
	lives("a penalty that ends before what rests", regional.RestKept-time.Minute, regional.RestKept+2*time.Second)
	it.Until = now.Add(48 * time.Hour).UnixNano()
	lives("one that ends after it", 47*time.Hour, 48*time.Hour+time.Second)
}

// Vectors that are narrow in one place and wide in another must meet: offsets,
// charges and refunds of every width, in one group.
func TestJoinOfAllWidths(t *testing.T) {
	s := testStore(t)
	it := regional.Item{Key: 9, Width: time.Millisecond, Slices: 1_000_000}
	now := time.Now().UnixMilli()
	for now%int64(it.Slices) < int64(it.Slices)/2 {
		it.Slices += 1000 // so that the group that now is in has long begun
	}
	start := crdt.Slice(now - now%int64(it.Slices))
	offsets := []crdt.Slice{0, 1, 200, 255, 256, 300, 65535, 65536, 65537, 400_000}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		it.Key++
		var want crdt.Vector
		for step := range 40 {
			var v crdt.Vector
			for range 1 + r.IntN(3) {
				c := crdt.Cell{Slice: start + offsets[r.IntN(min(len(offsets), 3+step/3))], Charges: r.Uint64() >> r.UintN(64)}
				if r.IntN(3) == 0 {
					c.Refunds = r.Uint64() >> r.UintN(64)
				}
				v.Join(c)
			}
			mergeBeside(t, s, it, &v, &want, fmt.Sprintf("seed %d, step %d", seed, step))
		}
	}
}

// mergeBeside merges v into an item and into what is wanted of it, and compares.
func mergeBeside(t *testing.T, s *Store, it regional.Item, v, want *crdt.Vector, when string) {
	t.Helper()
	want.Merge(v)
	it.Vectors = []regional.Vector{{Source: regional.FromEdge, Cells: v.Cells(nil)}}
	if _, err := s.Merge(t.Context(), []regional.Item{it}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Load(t.Context(), []regional.Item{it})
	if err != nil {
		t.Fatal(err)
	}
	if len(got[0].Vectors) != 1 || !slices.Equal(got[0].Vectors[0].Cells, want.Cells(nil)) {
		t.Fatalf("%s: merging %v gave %v, want %v", when, it.Vectors, got[0].Vectors, want.Cells(nil))
	}
}

// Most writes are of the latest slices, and raise them or leave them: there is a
// short way for those, which must lead to the same place. Some are not, or not wholly.
func TestJoinOfLatestSlices(t *testing.T) {
	s := testStore(t)
	it := regional.Item{Key: 9, Width: time.Second, Slices: 120}
	now := crdt.Slice(time.Now().Unix())
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		most, refunds := uint64(1)<<(1+r.UintN(20)), r.IntN(2) == 0
		it.Key++
		var want crdt.Vector
		for step := range 60 {
			var v crdt.Vector
			for n, last := r.IntN(8), now-70+crdt.Slice(step-r.IntN(2)*r.IntN(5)); n >= 0; n-- {
				c := want.Get(last - crdt.Slice(n))
				if r.IntN(12) == 0 {
					continue // a slice is left out
				}
				c.Charges += r.Uint64N(most) / 2
				if refunds && r.IntN(4) == 0 {
					c.Refunds += r.Uint64N(most) / 4
				}
				if r.IntN(20) == 0 {
					c.Charges /= 2 // somebody knew more
				}
				v.Join(c)
			}
			if v.Len() == 0 {
				continue
			}
			mergeBeside(t, s, it, &v, &want, fmt.Sprintf("seed %d, step %d", seed, step))
		}
	}
}

// The script must run on servers without the libraries that Redis adds to Lua.
func TestScriptIsPlainLua(t *testing.T) {
	for _, foreign := range []string{"cjson", "cmsgpack", "struct.", "bit.", " pcall", "xpcall", "loadstring", "redis.log", "redis.sha1hex", "goto "} {
		if strings.Contains(strings.SplitN(mergeSource, "\nlocal", 2)[1], foreign) {
			t.Errorf("merge.lua uses %q", foreign)
		}
	}
}

// What rests of a bucket is kept a day and an hour from its latest boundary on,
// in whatever order the boundaries come.
func TestRestExpiresAfterItsLatestBoundary(t *testing.T) {
	s := testStore(t)
	now := time.Now().Truncate(time.Second)
	at := func(hours int) crdt.Slice { return crdt.Slice(now.Add(time.Duration(-hours) * time.Hour).Unix()) }
	for _, tt := range []struct {
		rest crdt.Carry
		left int // hours
	}{
		{crdt.Carry{Boundary: at(20), Level: 5}, 5},
		{crdt.Carry{Boundary: at(2), Level: 4}, 23},
		{crdt.Carry{Boundary: at(10), Level: 9}, 23}, // a higher level, longer ago
		{crdt.Carry{Boundary: at(1), Level: 9}, 24},
	} {
		it := regional.Item{Key: 1, Width: time.Second, Slices: 60, Floor: true, Rest: tt.rest}
		if _, err := s.Merge(t.Context(), []regional.Item{it}); err != nil {
			t.Fatal(err)
		}
		names, err := s.client.Keys(t.Context(), "sg{01}*").Result()
		if err != nil || len(names) != 1 {
			t.Fatalf("hashes %v, %v; want one", names, err)
		}
		left, err := s.client.PTTL(t.Context(), names[0]).Result()
		if want := time.Duration(tt.left) * time.Hour; err != nil || left > want+time.Minute || left < want-time.Minute {
			t.Errorf("after %v it expires in %v, %v; want %v", tt.rest, left, err, want)
		}
	}
}
