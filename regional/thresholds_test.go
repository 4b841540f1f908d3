package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// pushed is the number of pushes that wait.
func pushed(r *region) int { return len(r.Pushes(r.now)) }

// Counts that come out of the store can cross a threshold as those of a frame.
func TestPushOfWhatTheStoreKnew(t *testing.T) {
	mem := newStore(&start)
	first, second := newRegion(t, "eu", mem), newRegion(t, "eu", mem)
	(&edge{name: "e1"}).tell(first, 9, charge(start, 60))
	if got := pushed(first); got != 1 {
		t.Fatalf("%d pushes at 60 of 100, want 1", got)
	}
	(&edge{name: "e2"}).tell(second, 9, charge(start, 1))
	if got := pushed(second); got != 1 {
		t.Fatalf("%d pushes of the aggregator that learnt of 60 from the store, want 1", got)
	}
}

// A threshold is armed again only 5 % below: a level that sways about it does
// not push with every sway.
func TestThresholdIsArmedAgainWellBelow(t *testing.T) {
	now := start
	r := newRegion(t, "eu", newStore(&now))
	at := func(d time.Duration) time.Time {
		now = start.Add(d)
		r.now = now
		r.Tick(now)
		return now
	}
	e := &edge{name: "e1"}
	e.tell(r, 9, charge(start, 3))
	e.tell(r, 9, charge(at(30*time.Second), 48))
	if got := pushed(r); got != 1 {
		t.Fatalf("%d pushes at 51 of 100, want 1", got)
	}
	e.tell(r, 9, charge(at(62*time.Second), 3)) // the first 3 have left: 48, then 51
	if got := pushed(r); got != 0 {
		t.Fatalf("%d pushes after 51, 48, 51 of 100, want none", got)
	}
	e.tell(r, 9, charge(at(93*time.Second), 50)) // the 48 have left: 3, then 53
	if got := pushed(r); got != 1 {
		t.Fatalf("%d pushes after 51, 3, 53 of 100, want 1", got)
	}
}

// What has emptied since anybody looked, and is filled at once, crosses a threshold
// anew: a short window and a bucket do, between two Ticks.
func TestThresholdIsCrossedAnewBetweenTicks(t *testing.T) {
	brief := minute
	brief.Width = 25 * time.Millisecond // a second
	quick := bucket
	quick.Refill, quick.RefillPer = 50, time.Second
	for name, shape := range map[string]deltasync.Shape{"window": brief, "bucket": quick} {
		for who, fill := range map[string]func(r, other *region, d deltasync.Delta){
			"an edge": func(r, _ *region, d deltasync.Delta) {
				(&edge{name: "e1"}).send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{d}})
			},
			"the store": func(r, other *region, d deltasync.Delta) {
				(&edge{name: "e1"}).send(other, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{d}})
				(&edge{name: "e2"}).send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{{Key: 9, Flags: deltasync.FlagTouch | deltasync.FlagRefresh}}})
			},
		} {
			now := start
			store := newStore(&now)
			r, other := newRegion(t, "eu", store), newRegion(t, "eu", store)
			at := func(n uint64) deltasync.Delta {
				s := crdt.Slice(now.UnixNano() / int64(shape.Width))
				return deltasync.Delta{Key: 9, Cells: []crdt.Cell{{Slice: s, Charges: n}}}
			}
			(&edge{name: "e1"}).send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{at(60)}})
			if got := pushed(r); got != 1 {
				t.Fatalf("%s: %d pushes at 60 of 100, want 1", name, got)
			}
			now = now.Add(1200 * time.Millisecond) // nobody looks
			r.now, other.now = now, now
			fill(r, other, at(65))
			if got := pushed(r); got != 1 {
				t.Errorf("%s, filled again by %s: %d pushes, want 1", name, who, got)
			}
		}
	}
}

// What is given back before it was pushed arms a threshold again: who is told of
// 40 of 100 has to hear of 52.
func TestThresholdIsArmedAgainBeforeThePush(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	e := &edge{name: "e1"}
	e.tell(r, 9, charge(start, 50))
	e.tell(r, 9, crdt.Cell{Slice: slice(start), Charges: 50, Refunds: 10})
	if got := pushed(r); got != 1 {
		t.Fatalf("%d pushes at 50, then 40 of 100, want 1", got)
	}
	e.tell(r, 9, crdt.Cell{Slice: slice(start), Charges: 62, Refunds: 10})
	if got := pushed(r); got != 1 {
		t.Errorf("%d pushes at 52 of 100, when edges were told of 40, want 1", got)
	}
}

// What was crossed of one limit says nothing of another.
func TestThresholdsOfANewLimit(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	e := &edge{name: "e1"}
	e.tell(r, 9, charge(start, 60))
	if got := pushed(r); got != 1 {
		t.Fatalf("%d pushes at 60 of 100, want 1", got)
	}
	larger := minute
	larger.Limit = 200
	e.send(r, deltasync.Section{Shape: larger, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, 105)}}}})
	if got := pushed(r); got != 1 {
		t.Errorf("%d pushes at 105 of 200, want 1", got)
	}
}

// What crossed a threshold while another aggregator served the lane, who may have
// died before he pushed it, is pushed when the lane is gained.
func TestGainedLanePushesWhatIsKnown(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	r.Join(start)
	(&edge{name: "e1"}).tell(r, 9, charge(start, 60))
	if got := pushed(r); got != 0 {
		t.Fatalf("%d pushes of a lane that others serve, want none", got)
	}
	r.Found(start)
	if got := pushed(r); got != 1 {
		t.Errorf("%d pushes at 60 of 100 when the lane is gained, want 1", got)
	}
}

// That takes no more than twice the room of the keys that there are.
func TestPushesOfOthersLanesAreBounded(t *testing.T) {
	now := start
	r := newRegion(t, "eu", newStore(&now))
	r.Join(now)
	before := r.Stats(now).Bytes
	e := &edge{name: "e1"}
	for key := range deltasync.Key(10_000) {
		if e.tell(r, key+1, charge(now, 60)); key%100 == 99 {
			now = now.Add(2 * time.Minute) // and all are retired
			r.now = now
			r.Tick(now)
			pushed(r)
		}
	}
	if got := r.Stats(now).Bytes - before; got > 48<<10 {
		t.Errorf("%d bytes are left of keys that have come and gone", got)
	}
}
