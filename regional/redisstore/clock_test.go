package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/storetest"
	"github.com/spillgate/spillgate/test/proc"
)

// skews is how far Redis's clock is ahead of the caller's: more than counts of a minute
// are kept, either way, and no whole number of seconds.
var skews = []time.Duration{3*time.Minute + 400*time.Millisecond, -3*time.Minute - 400*time.Millisecond}

// behind has a store's clock be so far behind that of its Redis.
func (s *Store) behind(skew time.Duration) {
	s.now = func() time.Time { return time.Now().Add(-skew) }
}

// Wherever Redis's clock stands, a store does all that a store does.
func TestStoreBesideAnyClock(t *testing.T) {
	for _, skew := range skews {
		t.Run(fmt.Sprintf("Redis ahead by %v", skew), func(t *testing.T) {
			server := proc.Redis(t)
			storetest.Run(t, func(t *testing.T) storetest.Subject {
				s, err := New(Config{Addrs: []string{server.Addr}, Prefix: "sg", Timeout: 10 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				s.behind(skew)
				wipe := func() {
					if err := s.client.FlushAll(context.Background()).Err(); err != nil {
						t.Fatalf("FLUSHALL: %v", err)
					}
				}
				wipe()
				return storetest.Subject{
					Store: s,
					Now:   s.now,
					Advance: func(d time.Duration) {
						end := s.now().Add(d)
						proc.Until(t, d+30*time.Second, func() error {
							if now := s.now(); now.Before(end) {
								return fmt.Errorf("it is %v, not yet %v", now, end)
							}
							return nil
						})
					},
					Wipe: wipe,
				}
			})
		})
	}
}

// A group lives until it is over for the last of who wrote to it: whose clock is behind
// Redis's needs it for as much longer, in whole seconds, so that all such groups expire
// in the same moment; one that is ahead takes nothing from the others.
func TestGroupsLiveForWhoIsBehind(t *testing.T) {
	s := testStore(t)
	now := time.Now()
	it := regional.Item{Width: time.Second, Slices: 60, Vectors: []regional.Vector{{
		Source: regional.FromEdge, Replica: crdt.Replica{Node: 1, Incarnation: 1},
		Cells: []crdt.Cell{{Slice: crdt.Slice(now.Add(-40 * time.Second).Unix())}},
	}}}
	var base time.Duration // when it expires, since 1970, where clocks agree
	for step, tt := range []struct {
		behind, later time.Duration // of the writer's clock, and of the end of the group
		fresh         bool          // the first to write
	}{
		{fresh: true},
		{},
		{behind: -10 * time.Second},
		{behind: 30*time.Second + 400*time.Millisecond, later: 30 * time.Second},
		{later: 30 * time.Second},
		{behind: 10 * time.Second, later: 30 * time.Second},
		{behind: 20 * time.Second, later: 20 * time.Second, fresh: true},
		{behind: -10 * time.Second, fresh: true},
		{behind: 900 * time.Millisecond, fresh: true},
	} {
		if tt.fresh {
			it.Key++
		}
		s.behind(tt.behind)
		it.Vectors[0].Cells[0].Charges++
		if _, err := s.Merge(t.Context(), []regional.Item{it}); err != nil {
			t.Fatal(err)
		}
		keys, err := s.client.Keys(t.Context(), fmt.Sprintf("sg{%02x}*", tagOf(it.Key))).Result()
		if err != nil || len(keys) != 1 {
			t.Fatalf("step %d: keys %q, %v; want one group", step, keys, err)
		}
		at, err := s.client.PExpireTime(t.Context(), keys[0]).Result()
		if err != nil {
			t.Fatal(err)
		}
		if step == 0 {
			base = at
		}
		// A call that takes its time finds its clock further behind, by whole seconds.
		if got := at - base; got < tt.later || got > tt.later+5*time.Second || got%time.Second != 0 {
			t.Errorf("step %d, by a clock that is %v behind: the group expires %v later than where clocks agree, want %v", step, tt.behind, got, tt.later)
		}
	}
}

// A list lives as long as its last member, by the clock that is furthest behind.
func TestListLivesForWhoIsBehind(t *testing.T) {
	s := testStore(t)
	s.behind(skews[0])
	now := s.now()
	it := regional.Item{Key: 1, Width: time.Second, Slices: 60, Note: "n", Vectors: []regional.Vector{{
		Source: regional.FromEdge, Cells: []crdt.Cell{{Slice: crdt.Slice(now.Unix()), Charges: 5}},
	}}}
	if _, err := s.Merge(t.Context(), []regional.Item{it}); err != nil {
		t.Fatal(err)
	}
	keys, err := s.client.Keys(t.Context(), "sg*").Result()
	if err != nil || len(keys) != 2 {
		t.Fatalf("keys %q, %v; want a group and a list", keys, err)
	}
	for _, key := range keys {
		left, err := s.client.PTTL(t.Context(), key).Result()
		if want := it.Kept(); err != nil || left < want-10*time.Second || left > want+time.Minute+2*time.Second {
			t.Errorf("%q lives for %v, %v; want %v after its last slice", key, left, err, want)
		}
	}
	page, _, err := s.Hot(t.Context(), tagOf(1))
	if err != nil || len(page) != 1 || page[0].Note != "n" {
		t.Errorf("Hot: %v, %v; want the key that is listed", page, err)
	}
}

// What is late by the clock of who sends it leaves nothing behind, be it early by
// Redis's, nor does what the script itself is told has ended.
func TestLateIsByTheCallersClock(t *testing.T) {
	for _, skew := range append(skews, 0) {
		s := testStore(t)
		s.behind(skew)
		late := s.now().Add(-2 * time.Minute)
		it := regional.Item{Key: 1, Width: time.Second, Slices: 60, Note: "n", Vectors: []regional.Vector{{
			Source: regional.FromEdge,
			Cells:  []crdt.Cell{{Slice: crdt.Slice(late.Unix()), Charges: 5}},
		}}}
		if _, err := s.Merge(t.Context(), []regional.Item{it}); err != nil {
			t.Fatal(err)
		}
		if skew >= 0 { // one that is behind cannot tell
			// A group lasts for what is kept after its end, which may be a window after this.
			ended := late.Add(-it.Kept() - 60*it.Width)
			it.Vectors[0].Cells[0].Slice = crdt.Slice(ended.Unix())
			c := newCall(s.prefix, 1)
			c.add(0, it, ended)
			c.stamp(s.now().Add(2 * time.Minute))
			if s.run(t.Context(), []*call{c}); c.err != nil {
				t.Fatal(c.err)
			}
		}
		if n, err := s.client.DBSize(t.Context()).Result(); err != nil || n != 0 {
			t.Errorf("Redis ahead by %v: DBSIZE = %d, %v; want nothing stored", skew, n, err)
		}
	}
}
