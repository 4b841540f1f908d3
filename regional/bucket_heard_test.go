package regional_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// told is a carry so many slices back.
func told(r *region, back int, units uint64) crdt.Carry {
	return crdt.Carry{Boundary: sliceOf(bucket, r.now) - crdt.Slice(back), Level: units * micro}
}

// say sends a carry and no counts.
func (e *edge) say(r *region, carry crdt.Carry) {
	r.t.Helper()
	e.pour(r, bucket, 9, carry)
}

// want checks the level that a reader works out, in units, within one.
func want(r *region, what string, units uint64) {
	r.t.Helper()
	total := ask(r, bucket, 9)
	if got := levelOf(bucket, total, r.now); got+micro < units*micro || got > (units+1)*micro {
		r.t.Errorf("%s: level %d millionths with carry %v, want about %d units", what, got, total.Carry, units)
	}
}

// A carry that somebody tells hides no counts of the slices before it that come
// later than it.
func TestHeardCarryHidesNoLateCounts(t *testing.T) {
	r, _ := bucketRegion(t, "eu", 1)
	(&edge{name: "e2"}).say(r, told(r, 2, 5))
	want(r, "5 two slices ago", 1)
	(&edge{name: "e1"}).pour(r, bucket, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(bucket, r.now) - 10, Charges: 80})
	want(r, "80 two seconds ago, told late", 60)
	r.step(0)
	want(r, "after a tick", 60)
}

// Of two carries the one counts that says more, whichever is later or comes
// first.
func TestHigherCarryCounts(t *testing.T) {
	high, low := 90, 10
	for _, tt := range []struct{ first, second, firstBack, secondBack int }{
		{high, low, 5, 1}, {low, high, 1, 5}, {high, low, 1, 5}, {low, high, 5, 1},
	} {
		r, _ := bucketRegion(t, "eu", 1)
		(&edge{name: "e1"}).say(r, told(r, tt.firstBack, uint64(tt.first)))
		(&edge{name: "e2"}).say(r, told(r, tt.secondBack, uint64(tt.second)))
		back := tt.firstBack
		if tt.second == high {
			back = tt.secondBack
		}
		want(r, "the higher", uint64(high-2*back))
	}
}

// A carry alone is news: it is pushed, told to peers, kept until it has drained,
// and told again where a peer refused it.
func TestCarryAloneIsNews(t *testing.T) {
	r, _ := bucketRegion(t, "eu", 1, "us")
	(&edge{name: "e1"}).say(r, told(r, 1, 82))
	if got := pushed(r); got != 1 {
		t.Errorf("%d pushes of a carry above 80 %%, want 1", got)
	}
	carry := func() crdt.Carry {
		t.Helper()
		o, up := only(t, r)
		if keys := keysOf(up); len(keys) != 1 || keys[0] != 9 {
			t.Fatalf("keys %v are exported, want 9", keys)
		}
		refuse(t, r, o, up, deltasync.StatusOverloaded, 0)
		return up.Sections[0].Deltas[0].Carry
	}
	if got := carry(); got != told(r, 1, 82) {
		t.Errorf("exported with the carry %v, want %v", got, told(r, 1, 82))
	}
	r.step(time.Second)
	if got := carry(); got.Level < 70*micro {
		t.Errorf("told again with the carry %v, want more than 70 units", got)
	}
	want(r, "after a tick", 70)
	for range 30 {
		r.step(time.Second)
	}
	if st := r.Stats(r.now); st.Keys != 0 {
		t.Errorf("%d keys when it has drained, want none", st.Keys)
	}
}

// A hostile edge's counts are clamped where they retire: else a bucket would
// take for ever to drain. What it says of far slices is not believed at all.
func TestHostileCountsDrain(t *testing.T) {
	r, _ := bucketRegion(t, "eu", 1)
	e := &edge{name: "mallory"}
	e.pour(r, bucket, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(bucket, r.now), Charges: 1 << 60})
	for range 30 + 11*10 { // what is kept, and eleven full buckets
		r.step(time.Second)
	}
	if st := r.Stats(r.now); st.Keys != 0 {
		t.Errorf("%d keys after the time in which eleven full buckets drain, want none", st.Keys)
	}
	e.say(r, told(r, -1000, 100))
	if got := ask(r, bucket, 9).Carry; !got.Zero() {
		t.Errorf("a carry of 1000 slices ahead is told on: %v", got)
	}
}

// A regional bucket takes nothing from other regions.
func TestRegionalBucketStaysAtHome(t *testing.T) {
	r, _ := bucketRegion(t, "eu", 1, "us")
	home := bucket
	home.Regional = true
	for _, s := range []deltasync.Shape{home, bucket} {
		up := deltasync.Up{
			Kind: deltasync.KindRegion, Region: "us", Name: "a1", Node: deltasync.NodeID("us", "", ""), Lanes: 1, Seq: 1, SentAt: r.now.UnixNano(),
			Sections: []deltasync.Section{{Shape: s, Deltas: []deltasync.Delta{{Key: deltasync.Key(s.Generation) + 9, Carry: told(r, 1, 50)}}}},
		}
		if s.Regional {
			up.Sections[0].Deltas[0].Key = 9
		}
		b, err := up.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		decode(t, r.Handle(context.Background(), r.now, deltasync.RegionSubject("eu", 0, "us"), b))
	}
	if got := ask(r, home, 9).Carry; !got.Zero() {
		t.Errorf("a bucket of scope region has taken the carry %v from another", got)
	}
	if got := ask(r, bucket, deltasync.Key(bucket.Generation)+9).Carry; got.Zero() {
		t.Error("a global bucket has taken no carry from another region")
	}
}

// A store that was wiped gets the carry at once, though nobody charges again.
func TestWipedStoreGetsTheCarryBack(t *testing.T) {
	r, store := bucketRegion(t, "eu", 1)
	tr := newTraffic("e1")
	tr.hold(r, 180, 30*time.Second) // with a soft margin
	store.Wipe()
	if err := r.Sync(context.Background(), r.now); err != nil {
		t.Fatal(err)
	}
	next := newRegion(t, "eu", store)
	next.now = r.now
	tr.near(next, "the next aggregator", ask(next, bucket, 9))
}

// A store that was away, or refused, gets what rests when it is back.
func TestFailedCarryIsMadeGood(t *testing.T) {
	for _, name := range []string{"away", "refuses"} {
		t.Run(name, func(t *testing.T) {
			r, mem := bucketRegion(t, "eu", 1)
			away := &broken{Store: mem}
			refuses := &refusing{Store: away}
			r.Aggregator = newRegion(t, "eu", refuses).Aggregator
			if err := r.Sync(context.Background(), r.now); err != nil { // a new epoch would have all written
				t.Fatal(err)
			}
			(&edge{name: "e1"}).pour(r, rested, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(rested, r.now), Charges: 100})
			for range 60 {
				r.now = r.now.Add(time.Second)
				away.down = name == "away"
				if name == "refuses" {
					refuses.merges = 1
				}
				r.Tick(r.now)
				_ = r.Sync(context.Background(), r.now) // an error if there is something to write
			}
			away.down, refuses.merges = false, 0
			if err := r.Sync(context.Background(), r.now); err != nil {
				t.Fatal(err)
			}
			next := newRegion(t, "eu", mem)
			next.now = r.now
			if got := levelOf(rested, ask(next, rested, 9), r.now); got != 40*micro {
				t.Errorf("the next aggregator finds %d millionths, want 40 units", got)
			}
		})
	}
}

// shapes keeps the windows that a store is told.
type shapes struct {
	regional.Store
	slices map[int]bool
}

func (s *shapes) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	for i := range batch {
		s.slices[batch[i].Slices] = true
	}
	return s.Store.Merge(ctx, batch)
}

// The store names counts by their window: of a bucket it must not change with
// its capacity or refill, and a smaller one must not shorten what is told.
func TestChangedBucketKeepsItsPlaceInTheStore(t *testing.T) {
	s := &shapes{Store: newStore(&start), slices: map[int]bool{}}
	r := newRegion(t, "eu", s)
	e := &edge{name: "e1"}
	for i, n := range []int{50, 75, 4, 50} {
		shape := bucket
		shape.Slices = n
		e.pour(r, shape, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(shape, start), Charges: uint64(60 + i)})
	}
	if len(s.slices) != 1 {
		t.Errorf("the store is told of %v slices for one bucket, want one number", s.slices)
	}
	var hot deltasync.Hot
	if err := hot.UnmarshalBinary(r.Pushes(start)[0].Payload); err != nil {
		t.Fatal(err)
	}
	if got := hot.Sections[0].Shape.Slices; got != 75 {
		t.Errorf("pushed with %d slices, want the most that anybody counts, 75", got)
	}
}

// An aggregator of an older build exports a bucket as a window: that must not
// make it drain at once.
func TestShapeOfAnOlderBuild(t *testing.T) {
	r, _ := bucketRegion(t, "eu", 1)
	tr := newTraffic("e1")
	tr.hold(r, 100, 30*time.Second)
	old := bucket
	old.Refill, old.RefillPer = 0, 0
	(&edge{name: "e2"}).pour(r, old, 9, crdt.Carry{})
	r.step(time.Second)
	tr.near(r, "after a frame of an older build", ask(r, bucket, 9))
}

// Between two ticks the level is remembered with the counts that are written.
func TestCarryIsWrittenWithTheCounts(t *testing.T) {
	r, store := bucketRegion(t, "eu", 1)
	tr := newTraffic("e1")
	tr.charge(r.now, 100)
	for range 150 { // half a minute without a tick
		r.now = r.now.Add(bucket.Width)
		tr.charge(r.now, 2)
		tr.flush(r)
	}
	next := newRegion(t, "eu", store)
	next.now = r.now
	tr.near(next, "the next aggregator", ask(next, bucket, 9))
}

// A clock that ran ahead and was set back makes the aggregator deaf to no level.
func TestClockSetBack(t *testing.T) {
	r := newRegion(t, "eu", &broken{Store: newStore(&start), down: true})
	e := &edge{name: "e1"}
	e.pour(r, rested, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(rested, r.now), Charges: 100})
	for range 3 {
		r.Tick(r.now.Add(time.Hour)) // what lies below the floor has a boundary of then
	}
	r.Tick(r.now)
	if got := ask(r, rested, 9).Carry; got.Boundary > sliceOf(rested, r.now) {
		t.Errorf("told on: %v, which is of the future", got)
	}
	carry := crdt.Carry{Boundary: sliceOf(rested, r.now) - 2, Level: 60 * micro}
	e.pour(r, rested, 9, carry)
	if got := levelOf(rested, ask(r, rested, 9), r.now); got < 50*micro {
		t.Errorf("60 units two slices ago, as told after the clock was set back: level %d millionths", got)
	}
}

// A carry of a slice too far ahead is refused like counts there.
func TestCarryAheadIsRefused(t *testing.T) {
	r, _ := bucketRegion(t, "eu", 1)
	down := (&edge{name: "e1"}).send(r, deltasync.Section{Shape: bucket, Deltas: []deltasync.Delta{
		{Key: 8, Carry: told(r, 3, 7)}, {Key: 9, Carry: told(r, -10, 7)},
	}})
	if down.Status != deltasync.StatusClock || !down.Took(0) || down.Took(1) {
		t.Errorf("%v, refused %v; want clock and the second", down.Status, down.Refused)
	}
}
