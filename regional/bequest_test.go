package regional

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// What regions have that are cut off is told with a key's note, for aggregators that name
// them in another order too; who knows other regions, or no bequests, has the shape alone.
func TestBequests(t *testing.T) {
	new := func(peers ...string) *Aggregator {
		a, err := New(Config{Region: "eu", Name: "a", Peers: peers}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a, now := new("us", "ap", "sa"), int64(1_800_000_000)*int64(time.Second)
	c := &counter{shape: deltasync.Shape{Generation: 1, Width: 25 * time.Millisecond, Slices: 40, Limit: 300}}
	l := a.lanes[0]
	l.counters[1] = c
	l.contested(1, c, 0, now)
	a.takeGained()
	a.legacy.lacks.Store(0)
	if note := a.noteOf(l, 1, c, now); note != "" {
		t.Errorf("a key that is far from its limit is noted: %x", note)
	}
	c.contest.changed = now
	c.contest.regions[0].frozen, c.contest.regions[2].frozen = 0.6, 0.05
	note := a.noteOf(l, 1, c, now)
	parts, since := new("sa", "us", "ap").bequest(note)
	if since != now-now%int64(time.Millisecond) || len(parts) != 3 || math.Abs(parts[0]-0.05) > 1e-4 || math.Abs(parts[1]-0.6) > 1e-4 || parts[2] != 0 {
		t.Errorf("%x: parts %v, want 0.05, 0.6 and none", note, parts)
	}
	var shape deltasync.Shape
	if err := shape.UnmarshalBinary([]byte(note)); err != nil || shape != c.shape {
		t.Errorf("%x: shape %+v (%v), want %+v", note, shape, err, c.shape)
	}
	for _, peers := range [][]string{{"us", "ap"}, {"us", "ap", "jp"}} {
		if parts, _ := new(peers...).bequest(note); parts != nil {
			t.Errorf("%v: parts %v, want none", peers, parts)
		}
	}
	for n := range len(note) {
		a.bequest(note[:n]) // must not panic
	}
	a.legacy.lacks.Store(^uint64(0))
	for j := range a.nodes {
		a.links.ways[j] = 80 * ms
		a.spoken.heard(j, now)
	}
	if a.noteOf(l, 1, c, now) != note {
		t.Error("all regions are heard, and nothing is noted")
	}
	a.links.sent(0, now-int64(time.Second))
	if a.noteOf(l, 1, c, now) != "" {
		t.Error("what was noted is overwritten before it was read, and a region is cut off")
	}
	a.legacy.lacks.Store(0)
	if a.noteOf(l, 1, c, now) != note {
		t.Error("all is read, and nothing is noted")
	}
	if a.share.owned.Store(0); a.noteOf(l, 1, c, now) != "" {
		t.Error("who does not own the lane, and reads nothing, writes over what was noted")
	}
	a.share.owned.Store(1)
	a.links.waiting[0].Store(0)
	a.spoken.peers[0] = voice{}
	a.spoken.recall(0, now-int64(time.Second))
	if note := a.noteOf(l, 1, c, now); note != "" {
		t.Error("what was noted is overwritten before it may have been read")
	}
}
