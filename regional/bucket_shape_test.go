package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// Thresholds of a bucket are crossed by its level, not by what a window counts.
func TestPushByLevel(t *testing.T) {
	r, _ := bucketRegion(t, "eu", 1)
	tr := newTraffic("e1")
	for range 100 { // 20 s at the speed at which it drains: 100 units in each window
		r.now = r.now.Add(bucket.Width)
		tr.charge(r.now, 2)
		tr.flush(r)
	}
	if got := pushed(r); got != 0 {
		t.Errorf("%d pushes of a bucket that stays empty, want none", got)
	}
	tr.charge(r.now, 50)
	tr.flush(r)
	if got := pushed(r); got != 1 {
		t.Errorf("%d pushes of a bucket that is half full, want 1", got)
	}
	for range 6 { // it drains, and the threshold is armed again
		r.step(time.Second)
	}
	tr.charge(r.now, 80)
	tr.flush(r)
	pushes := r.Pushes(r.now)
	if len(pushes) != 1 {
		t.Fatalf("%d pushes of a bucket of 80, want 1", len(pushes))
	}
	var hot deltasync.Hot
	if err := hot.UnmarshalBinary(pushes[0].Payload); err != nil {
		t.Fatal(err)
	}
	tr.near(r, "pushed", hot.Sections[0].Keys[0].Totals)
	if hot.Sections[0].Shape != bucket {
		t.Errorf("the push has the shape %+v, want %+v", hot.Sections[0].Shape, bucket)
	}
}

// A push carries the level that no slice shows any more.
func TestPushHasTheCarry(t *testing.T) {
	r, _ := bucketRegion(t, "eu", 1)
	tr := newTraffic("e1")
	tr.hold(r, 100, time.Minute)
	r.Pushes(r.now)
	tr.charge(r.now, 1)
	tr.flush(r)
	pushes := r.Pushes(r.now)
	if len(pushes) != 1 {
		t.Fatalf("%d pushes, want 1: every change of a full bucket is pushed", len(pushes))
	}
	var hot deltasync.Hot
	if err := hot.UnmarshalBinary(pushes[0].Payload); err != nil {
		t.Fatal(err)
	}
	tr.near(r, "pushed", hot.Sections[0].Keys[0].Totals)
}

// Another capacity or refill applies to what is already counted, in memory and
// in the store, though the window is another.
func TestChangedBucketKeepsItsCounts(t *testing.T) {
	r, store := bucketRegion(t, "eu", 1)
	tr := newTraffic("e1")
	tr.hold(r, 100, time.Minute)
	larger := bucket
	larger.Limit, larger.Slices = 150, 75
	tr.near(r, "with a larger capacity", ask(r, larger, 9))
	next := newRegion(t, "eu", store)
	next.now = r.now
	tr.near(next, "with a larger capacity, from the store", ask(next, larger, 9))

	faster := bucket
	faster.Refill, faster.Slices = 20, 25
	r.step(time.Second) // 10 units more have drained than by the old refill
	if got := levelOf(faster, ask(r, faster, 9), r.now); got > 90*micro {
		t.Errorf("a second after the refill was doubled the level is %d millionths, want at most 80 units and a second of the old refill", got)
	}
	tr.pour(r, faster, 9, crdt.Carry{}, tr.own.Cells(nil)...)
	r.step(5 * time.Second)
	if got := levelOf(faster, ask(r, faster, 9), r.now); got > 0 {
		t.Errorf("five seconds later the level is %d millionths, want none", got)
	}
}

// rested is the bucket with a floor of 40.
var rested = deltasync.Shape{
	Generation: 8, Width: bucket.Width, Slices: bucket.Slices, Limit: 140, Refill: bucket.Refill, RefillPer: bucket.RefillPer, Floor: 40,
}

// What lies at or below the floor never drains: the store remembers it for a
// day, without being written again, and the aggregator asks it.
func TestRestingBucketIsRememberedForADay(t *testing.T) {
	for _, tt := range []struct {
		spent, want uint64 // units
	}{{140, 40}, {30, 30}} {
		r, store := bucketRegion(t, "eu", 1)
		rec := &recording{Store: store}
		r2 := newRegion(t, "eu", rec)
		r.Aggregator = r2.Aggregator
		(&edge{name: "e1"}).pour(r, rested, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(rested, r.now), Charges: tt.spent})
		for range 60 {
			r.step(time.Second)
		}
		if st := r.Stats(r.now); st.Keys != 0 {
			t.Errorf("%d keys a minute after %d units, want what rests left to the store", st.Keys, tt.spent)
		}
		merges := len(rec.named)
		if merges > 8 {
			t.Errorf("%d merges of a key that was charged once, want at most 8", merges)
		}
		for range 22 {
			r.step(time.Hour)
		}
		if n := len(rec.named) - merges; n > 0 {
			t.Errorf("%d merges of a key that rests, want none", n)
		}
		for range 3 { // an answer does not make it younger
			if got := levelOf(rested, ask(r, rested, 9), r.now); got != tt.want*micro {
				t.Errorf("22 hours after %d units: level %d millionths, want %d units", tt.spent, got, tt.want)
			}
			r.step(time.Second)
		}
		r.step(3 * time.Hour)
		r.step(time.Second)
		if got := levelOf(rested, ask(r, rested, 9), r.now); got != 0 {
			t.Errorf("25 hours after %d units: level %d millionths, want it forgotten", tt.spent, got)
		}
	}
}

// Without a store what rests is remembered here, for as long.
func TestRestingBucketWithoutAStore(t *testing.T) {
	r, mem := bucketRegion(t, "eu", 1)
	b := &broken{Store: mem, down: true}
	r.Aggregator = newRegion(t, "eu", b).Aggregator
	(&edge{name: "e1"}).pour(r, rested, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(rested, r.now), Charges: 200})
	tick := func(n int, d time.Duration) {
		for range n {
			r.now = r.now.Add(d)
			r.Tick(r.now)
		}
	}
	tick(60, time.Second)
	tick(23, time.Hour)
	if got := levelOf(rested, ask(r, rested, 9), r.now); got != 40*micro {
		t.Errorf("23 hours later: level %d millionths, want 40 units", got)
	}
	b.down = false
	r.step(time.Second) // the store is back, and hears of it
	r.step(time.Second)
	if st := r.Stats(r.now); st.Keys != 0 {
		t.Errorf("%d keys when the store is back, want what rests left to it", st.Keys)
	}
	if got := levelOf(rested, ask(r, rested, 9), r.now); got != 40*micro {
		t.Errorf("when the store is back: level %d millionths, want 40 units", got)
	}
	tick(3, time.Hour)
	if got := levelOf(rested, ask(r, rested, 9), r.now); got != 0 {
		t.Errorf("26 hours after the last charge: level %d millionths, want it forgotten: the outage makes it no younger", got)
	}
}

// With the store away for good it is forgotten after a day.
func TestRestingBucketWithoutAStoreForGood(t *testing.T) {
	r := newRegion(t, "eu", &broken{Store: newStore(&start), down: true})
	(&edge{name: "e1"}).pour(r, rested, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(rested, r.now), Charges: 200})
	for range 60 {
		r.now = r.now.Add(time.Second)
		r.Tick(r.now)
	}
	for range 25 {
		r.now = r.now.Add(time.Hour)
		r.Tick(r.now)
	}
	if st := r.Stats(r.now); st.Keys != 0 {
		t.Errorf("%d keys 25 hours later, want it forgotten", st.Keys)
	}
}

// A bucket that is charged now and then is remembered from the last time on.
func TestRestingBucketChargedAgain(t *testing.T) {
	r, store := bucketRegion(t, "eu", 1)
	e := &edge{name: "e1"}
	for range 2 {
		e.pour(r, rested, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(rested, r.now), Charges: 50})
		for range 60 {
			r.step(time.Second)
		}
		r.step(20 * time.Hour)
	}
	next := newRegion(t, "eu", store)
	next.now = r.now
	if got := levelOf(rested, ask(next, rested, 9), next.now); got != 40*micro {
		t.Errorf("20 hours after the last charge: level %d millionths, want 40 units", got)
	}
}

// Who names a bucket first names its limit, too. What it charges and what is remembered
// of that are held to what such a bucket drains, so that it is forgotten some windows
// later.
func TestLimitOfABucketIsHeldToWhatItDrains(t *testing.T) {
	r, _ := bucketRegion(t, "eu", 1)
	large := bucket
	large.Limit = 1 << 50
	(&edge{name: "e1"}).pour(r, large, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(large, r.now), Charges: 1 << 49})
	for range 40 {
		r.step(large.Window() / 2)
		r.step(large.Window() / 2)
	}
	if got := levelOf(bucket, ask(r, bucket, 9), r.now); got != 0 {
		t.Errorf("%v later the level is %d millionths, want none", 40*large.Window(), got)
	}
	if st := r.Stats(r.now); st.Keys != 0 {
		t.Errorf("%d keys are remembered, want none", st.Keys)
	}
}
