package regional

import (
	"fmt"
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
	if note, _, _ := a.noteOf(l, 1, c, now); note != "" {
		t.Errorf("a key that is far from its limit is noted: %x", note)
	}
	c.contest.changed = now
	c.contest.regions[0].frozen, c.contest.regions[2].frozen = 0.6, 0.05
	note, _, _ := a.noteOf(l, 1, c, now)
	parts, since := new("sa", "us", "ap").bequest(note, now)
	if since != now-now%int64(time.Millisecond) || len(parts) != 3 || math.Abs(parts[0]-0.05) > 1e-4 || math.Abs(parts[1]-0.6) > 1e-4 || parts[2] != 0 {
		t.Errorf("%x: parts %v, want 0.05, 0.6 and none", note, parts)
	}
	var shape deltasync.Shape
	if err := shape.UnmarshalBinary([]byte(note)); err != nil || shape != c.shape {
		t.Errorf("%x: shape %+v (%v), want %+v", note, shape, err, c.shape)
	}
	for _, peers := range [][]string{{"us", "ap"}, {"us", "ap", "jp"}} {
		if parts, _ := new(peers...).bequest(note, now); parts != nil {
			t.Errorf("%v: parts %v, want none", peers, parts)
		}
	}
	for n := range len(note) {
		a.bequest(note[:n], now) // must not panic
	}
	a.legacy.lacks.Store(^uint64(0))
	for j := range a.nodes {
		a.links.ways[j] = 80 * ms
		a.spoken.heard(j, now)
	}
	if got, _, _ := a.noteOf(l, 1, c, now); got != note {
		t.Error("all regions are heard, and nothing is noted")
	}
	a.links.sent(0, now-int64(time.Second))
	if got, _, _ := a.noteOf(l, 1, c, now); got != "" {
		t.Error("what was noted is overwritten before it was read, and a region is cut off")
	}
	a.legacy.lacks.Store(0)
	if got, _, _ := a.noteOf(l, 1, c, now); got != note {
		t.Error("all is read, and nothing is noted")
	}
	a.share.owned.Store(0)
	if got, _, _ := a.noteOf(l, 1, c, now); got != "" {
		t.Error("who does not own the lane, and reads nothing, writes over what was noted")
	}
	a.share.owned.Store(1)
	a.links.waiting[0].Store(0)
	a.spoken.peers[0] = voice{}
	a.spoken.recall(0, now-int64(time.Second))
	if note, _, _ := a.noteOf(l, 1, c, now); note != "" {
		t.Error("what was noted is overwritten before it may have been read")
	}
}

// noted is an aggregator with a key that was noted in a cut, as others have it in their store.
func noted(t *testing.T, peers ...string) (a *Aggregator, l *lane, c *counter, now int64, note string) {
	t.Helper()
	if peers == nil {
		peers = []string{"us", "ap"}
	}
	a, err := New(Config{Region: "eu", Name: "a", Peers: peers}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now = int64(1_800_000_000) * int64(time.Second)
	c = &counter{shape: deltasync.Shape{Generation: 1, Width: 25 * time.Millisecond, Slices: 40, Limit: 300}}
	l = a.lanes[deltasync.Key(1).Lane(len(a.lanes))]
	l.counters[1] = c
	l.contested(1, c, 0, now)
	a.takeGained()
	a.legacy.lacks.Store(0)
	c.contest.changed, c.contest.regions[0].frozen = now, 0.6
	if note, _, _ = a.noteOf(l, 1, c, now); note == "" {
		t.Fatal("what a region has that is cut off is not noted")
	}
	return a, l, c, now, note
}

// When a cut is over that is noted once, in the place of what was noted in it; again, where
// the store did not take that. It is the latest of the notes.
func TestBequestsEndWithTheCut(t *testing.T) {
	a, l, c, now, during := noted(t)
	now += int64(time.Second)
	a.freeze(c, 0, now)
	after, former, until := a.noteOf(l, 1, c, now)
	parts, since := a.bequest(after, now)
	if until != now+int64(keepFrozen) {
		t.Errorf("it is noted for %v, want an hour", time.Duration(until-now))
	}
	if former != during || since != now || len(parts) != 2 || parts[0] != 0 || parts[1] != 0 {
		t.Errorf("after the cut %x is noted for %x: parts %v since %d, want none since %d, for %x", after, former, parts, since, now, during)
	}
	if again, _, _ := a.noteOf(l, 1, c, now); again != "" {
		t.Errorf("%x is noted again", again)
	}
	c.unnoted(after)
	if again, _, _ := a.noteOf(l, 1, c, now); again != after {
		t.Errorf("the store did not take %x, and %x is noted then", after, again)
	}
}

// What does not fit a note is not tried again each time.
func TestBequestsOfManyRegions(t *testing.T) {
	var peers []string
	for n := range 40 {
		peers = append(peers, fmt.Sprint("r", n))
	}
	a, l, c, now, note := noted(t, peers...)
	if parts, _ := a.bequest(note, now); parts != nil || len(note) > MaxNote {
		t.Fatalf("%x is noted: %d parts", note, len(parts))
	}
	if a.renote(l, 1, c, now); c.retried {
		t.Error("it is written again")
	}
}

// A contest is forgotten an hour after anybody asked, in the cut: who comes back to the key
// has what one has of a new one, and that is noted before.
func TestBequestsEndWithTheContest(t *testing.T) {
	a, l, c, now, during := noted(t)
	now += int64(keepFrozen) + ms
	for range 2 {
		if a.renote(l, 1, c, now); c.contest.over(now, 1) || !c.retried {
			t.Fatal("the contest is forgotten, and what was noted of it is not")
		}
	}
	note, former, _ := a.noteOf(l, 1, c, now)
	if parts, since := a.bequest(note, now); former != during || len(parts) != 2 || math.Abs(parts[0]-1./3) > 1e-4 || since != now {
		t.Errorf("%x is noted for %x: parts %v, want a third", note, former, parts)
	}
	if !c.contest.over(now, 1) {
		t.Error("it is noted, and the contest is kept")
	}
}

// What is known here since is not replaced by what was noted before, nor by what a wrong
// clock notes of a time to come; what was guessed is.
func TestBequestsAreNoNewer(t *testing.T) {
	a, l, c, now, _ := noted(t)
	tell := func(since int64, part float64, want float64) {
		t.Helper()
		a.inheritParts(l, []heir{{key: 1, parts: []float64{part, 0}, since: since}}, now)
		if got := c.contest.regions[0].frozen; math.Abs(got-want) > 1e-4 {
			t.Errorf("of what was noted %v before: %v of the limit, want %v", time.Duration(now-since), got, want)
		}
	}
	tell(now-1, 0.3, 0.6)
	c.contest.regions[0].guessed = true
	tell(now-1, 0.3, 0.3)
	tell(now-1, 0.4, 0.3)
	tell(now, 0.4, 0.4)
	c.contest.changed, c.contest.willed = now+int64(10*time.Second), true
	ahead, _, _ := a.noteOf(l, 1, c, now)
	if parts, since := a.bequest(ahead, now); parts == nil || since != 0 {
		t.Errorf("%v since %d, want it older than all else", parts, since)
	}
}
