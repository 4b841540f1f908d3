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

// What lies at or below the floor never drains: it is remembered for a day.
func TestRestingBucketIsRememberedForADay(t *testing.T) {
	rested := bucket
	rested.Floor, rested.Limit = 40, 140
	for _, tt := range []struct {
		spent, want uint64 // units
	}{{140, 40}, {30, 30}} {
		r, _ := bucketRegion(t, "eu", 1)
		(&edge{name: "e1"}).pour(r, rested, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(rested, r.now), Charges: tt.spent})
		for range 60 {
			r.step(time.Minute)
		}
		for range 22 {
			r.step(time.Hour)
		}
		if got := levelOf(rested, ask(r, rested, 9), r.now); got != tt.want*micro {
			t.Errorf("23 hours after %d units: level %d millionths, want %d units", tt.spent, got, tt.want)
		}
		r.step(2 * time.Hour)
		r.step(time.Second)
		if st := r.Stats(r.now); st.Keys != 0 {
			t.Errorf("%d keys 25 hours after the last charge, want it forgotten", st.Keys)
		}
	}
}
