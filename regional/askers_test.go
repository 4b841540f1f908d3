package regional

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

const askersPatience = 200 * time.Millisecond

func demandOf(rate float32) *deltasync.Demand {
	return &deltasync.Demand{Fast: rate, Mid: rate, Slow: rate, Window: rate}
}

// What a hostile or broken edge told once weighs next to nothing soon after it fell
// silent: others are not short of their shares for long. While it speaks it is taken to be
// asked for a thousand times the limit, as every edge is that is asked for more.
func TestALieFades(t *testing.T) {
	for _, window := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
		s, pace, now := limit.SpansOf(window), 100/window.Seconds(), int64(1_800_000_000)*int64(time.Second)
		c := &contest{}
		c.asks(1, nil, demandOf(1<<64), now)
		if all, _ := c.sum(s, pace, askersPatience, now); all.Fast != mostPace*pace {
			t.Errorf("%v: while it speaks, %v: want %v", window, all.Fast, mostPace*pace)
		}
		now += int64(40 * time.Second)
		c.asks(2, nil, demandOf(float32(pace)), now)
		if all, steady := c.sum(s, pace, askersPatience, now); steady > 1.5*pace || all.Publish(s, 0) > 1.5*pace {
			t.Errorf("%v: 40 s later edges are weighed by %v and the region publishes %v, want about the %v of the other edge", window, steady, all.Publish(s, 0), pace)
		}
	}
}

// Edges that are gone for good take no room.
func TestGoneEdgesAreForgotten(t *testing.T) {
	s, now := limit.SpansOf(time.Second), int64(1_800_000_000)*int64(time.Second)
	c := &contest{}
	for n := range uint64(20) {
		c.asks(n+1, nil, demandOf(50), now)
	}
	now += int64(forgetContest) / 2
	if c.prune(s, 100, askersPatience, now); len(c.edges) != 20 {
		t.Errorf("%d edges after some seconds, want all 20", len(c.edges))
	}
	now += int64(3 * time.Minute)
	c.asks(1, nil, demandOf(50), now)
	if c.prune(s, 100, askersPatience, now); len(c.edges) != 1 || c.edges[0].node != 1 {
		t.Errorf("%d edges are left, want the one that still asks", len(c.edges))
	}
}

// Of thousands of edges each asks many times a second for what all ask for: that is not
// added up anew each time, and is never older than a few urgent frames. Of few it is
// exact.
func TestSumsOfManyEdges(t *testing.T) {
	s, now := limit.SpansOf(time.Second), int64(1_800_000_000)*int64(time.Second)
	for edges, late := range map[int]time.Duration{fewAskers: 0, 3000: 15 * time.Millisecond, mostAskers: 21 * time.Millisecond} {
		c := &contest{}
		sum := func(now int64) float64 {
			all, _ := c.sum(s, 100, askersPatience, now)
			return all.Fast
		}
		for n := range edges {
			c.asks(uint64(n+1), nil, demandOf(1), now)
		}
		before := sum(now)
		c.asks(1, nil, demandOf(101), now)
		if soon := sum(now + 1000); (soon == before) != (late > 0) {
			t.Errorf("%d edges: %v at once, after %v: added up anew is %v, want %v", edges, soon, before, soon != before, late == 0)
		}
		if later := sum(now + int64(late)); later != before+100 {
			t.Errorf("%d edges: %v after %v, want %v", edges, later, late, before+100)
		}
		if back := sum(now - int64(time.Hour)); back != before+100 {
			t.Errorf("%d edges: %v with the clock set back, want %v", edges, back, before+100)
		}
	}
}

// An edge that goes as the clock is set back an hour is not there for an hour more.
func TestAskersWithTheClockSetBack(t *testing.T) {
	s, now := limit.SpansOf(time.Second), int64(1_800_000_000)*int64(time.Second)
	c := &contest{}
	c.asks(1, nil, demandOf(50), now)
	now -= int64(time.Hour)
	c.prune(s, 100, askersPatience, now)
	now += int64(5 * time.Second)
	if all, _ := c.sum(s, 100, askersPatience, now); all.Fast > 1 || now-c.heard != int64(5*time.Second) {
		t.Errorf("%+v is asked for, last heard of %v ago; want next to nothing, 5 s ago", all, time.Duration(now-c.heard))
	}
}

// In a flood of keys whose counters make room for each other, and come again, the list
// of contests is as long as there are contests.
func TestContestsInAFlood(t *testing.T) {
	a, err := New(Config{Region: "eu", Name: "a", Lanes: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, now := a.lanes[0], int64(1_800_000_000)*int64(time.Second)
	shape := deltasync.Shape{Generation: 1, Width: 25 * time.Millisecond, Slices: 40, Limit: 100}
	const keys = 3 * republished
	for range 10 {
		now += int64(100 * time.Millisecond)
		for key := range deltasync.Key(keys) {
			c := &counter{}
			c.reshape(shape)
			l.enter(key, c)
			l.contested(key, c, 0, now).asks(1, nil, demandOf(1), now)
		}
		if a.republishAll(l, now); len(l.contests) != keys {
			t.Fatalf("%d places for %d contests", len(l.contests), keys)
		}
		for place, key := range l.contests {
			if at := l.counters[key].contest.place; at != place {
				t.Fatalf("key %d has place %d, and stands in %d", key, at, place)
			}
		}
		for len(l.order) > 0 {
			l.drop(len(l.order) / 2)
		}
		if len(l.contests) != 0 {
			t.Fatalf("%d places for none", len(l.contests))
		}
	}
}
