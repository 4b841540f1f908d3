package redisstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/storetest"
	"github.com/spillgate/spillgate/test/proc"
)

// skews is how far Redis's clock is ahead of the caller's: more than counts of a minute
// are kept, either way.
var skews = []time.Duration{3 * time.Minute, -3 * time.Minute}

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

// How long a hash lives is counted from the clock of who writes to it. Of two that
// differ the one that is behind needs it for longer, and has it for as long.
func TestLivesAreByTheCallersClock(t *testing.T) {
	const width, slices = 1500 * time.Millisecond, 40
	for _, skew := range append(skews, 0) {
		s := testStore(t)
		window := slices * width
		now := time.Now().Add(-skew).Truncate(window).Add(window / 2)
		it := regional.Item{Key: 1, Width: width, Slices: slices, Note: "n", Vectors: []regional.Vector{{
			Source: regional.FromEdge, Replica: crdt.Replica{Node: 1, Incarnation: 1},
			Cells: []crdt.Cell{{Slice: crdt.Slice(now.UnixNano()/int64(width)) - slices/4}},
		}}}
		lasts := window/2 + it.Kept() // from now on
		for _, tt := range []struct {
			when    string
			off     time.Duration
			charges uint64
			want    time.Duration
		}{
			{"by a clock that is 10 s ahead", 10 * time.Second, 5, lasts - 10*time.Second},
			{"by one that is right, and says nothing new", 0, 5, lasts},
			{"by the one that is ahead, again", 10 * time.Second, 6, lasts},
			{"by one that is 10 s behind", -10 * time.Second, 7, lasts + 10*time.Second},
			{"by the right one, again", 0, 8, lasts + 10*time.Second},
		} {
			it.Vectors[0].Cells[0].Charges = tt.charges
			s.now = func() time.Time { return now.Add(tt.off) }
			if _, err := s.Merge(t.Context(), []regional.Item{it}); err != nil {
				t.Fatal(err)
			}
			keys, err := s.client.Keys(t.Context(), "sg*").Result()
			if err != nil || len(keys) != 2 {
				t.Fatalf("Redis ahead by %v, written %s: keys %q, %v; want a group and a list", skew, tt.when, keys, err)
			}
			for _, key := range keys {
				want := tt.want
				if strings.HasSuffix(key, "hot") {
					want = lasts - 10*time.Second // the same is listed: its first writer decides, as a list is a help
				}
				// A machine under load takes its time from one write to the next.
				if got, err := s.client.PTTL(t.Context(), key).Result(); err != nil || got > want+time.Second || got < want-8*time.Second {
					t.Errorf("Redis ahead by %v, written %s: %q lives for %v, %v; want about %v", skew, tt.when, key, got, err, want)
				}
			}
		}
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
		c := newCall(s.prefix, 1, late)
		c.add(0, it)
		c.args[1] = s.now().Add(2 * time.Minute).UnixMilli()
		if s.run(t.Context(), []*call{c}); c.err != nil {
			t.Fatal(c.err)
		}
		if n, err := s.client.DBSize(t.Context()).Result(); err != nil || n != 0 {
			t.Errorf("Redis ahead by %v: DBSIZE = %d, %v; want nothing stored", skew, n, err)
		}
	}
}
