package regional_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// bucket is the shape of a token bucket of 100 at 10/s: 50 slices of 200 ms.
var bucket = deltasync.Shape{
	Generation: 8, Width: 200 * time.Millisecond, Slices: 50, Limit: 100, Refill: 10, RefillPer: time.Second,
}

const micro = 1_000_000

func drainOf(s deltasync.Shape) limit.Drain {
	return limit.Drain{Refill: s.Refill, Per: s.RefillPer, Floor: s.Floor, Width: s.Width}
}

func sliceOf(s deltasync.Shape, at time.Time) crdt.Slice {
	return crdt.Slice(at.UnixNano() / int64(s.Width))
}

// pour sends absolute counts and a carry of one bucket.
func (e *edge) pour(r *region, s deltasync.Shape, key deltasync.Key, carry crdt.Carry, cells ...crdt.Cell) deltasync.Totals {
	r.t.Helper()
	down := e.send(r, deltasync.Section{Shape: s, Deltas: []deltasync.Delta{{Key: key, Cells: cells, Carry: carry}}})
	if len(down.Totals) != 1 {
		r.t.Fatalf("%d totals for one key", len(down.Totals))
	}
	return down.Totals[0]
}

// levelOf is the level that a reader works out of totals that hold everybody's
// counts, in millionths.
func levelOf(s deltasync.Shape, t deltasync.Totals, at time.Time) uint64 {
	var sums crdt.Vector
	for _, c := range slices.Concat(t.Others, t.Peers) {
		sums.Add(c)
	}
	now := sliceOf(s, at)
	return drainOf(s).Level(t.Carry, sums.Cells(nil), at.UnixNano(), now+10)
}

// ask is what an edge that has spent nothing hears of a bucket.
func ask(r *region, s deltasync.Shape, key deltasync.Key) deltasync.Totals {
	r.t.Helper()
	return (&edge{name: "asker"}).pour(r, s, key, crdt.Carry{})
}

// bucketRegion has a store whose clock is the region's.
func bucketRegion(t *testing.T, name string, seed uint64, peers ...string) (*region, *memstore.Store) {
	t.Helper()
	now := start
	r := &region{}
	store := memstore.New(memstore.Config{Seed: seed, Now: func() time.Time {
		if r.t == nil {
			return now
		}
		return r.now
	}})
	*r = *newRegion(t, name, store, peers...)
	return r, store
}

// step is a tick of a virtual second and what Run does in it.
func (r *region) step(d time.Duration) {
	r.t.Helper()
	r.now = r.now.Add(d)
	r.Tick(r.now)
	if err := r.Sync(context.Background(), r.now); err != nil {
		r.t.Fatal(err)
	}
}

// traffic is an edge's charges of one bucket, and what they come to exactly.
type traffic struct {
	edge
	own   crdt.Vector
	exact int64 // level in 1/10^8 units, of which one drains in a nanosecond
	at    int64
}

func newTraffic(name string) *traffic { return &traffic{edge: edge{name: name}} }

// drained is the exact level at an instant, in millionths, rounded up.
func (tr *traffic) drained(at time.Time) uint64 {
	t := at.UnixNano()
	tr.exact, tr.at = max(0, tr.exact-(t-tr.at)), t
	return uint64(tr.exact+99) / 100
}

func (tr *traffic) charge(at time.Time, cost uint64) {
	tr.drained(at)
	tr.exact += int64(cost) * 1e8
	tr.own.Add(crdt.Cell{Slice: sliceOf(bucket, at), Charges: cost})
	tr.own.Retire(sliceOf(bucket, at) - 60)
}

func (tr *traffic) flush(r *region) {
	r.t.Helper()
	tr.pour(r, bucket, 9, crdt.Carry{}, tr.own.Cells(nil)...)
}

// hold fills the bucket and keeps it full for a time, a tick each second.
func (tr *traffic) hold(r *region, full uint64, d time.Duration) {
	r.t.Helper()
	tr.charge(r.now, full)
	for i := range int(d / bucket.Width) {
		r.now = r.now.Add(bucket.Width)
		tr.charge(r.now, 2)
		tr.flush(r)
		if i%5 == 4 {
			r.step(0)
		}
	}
}

// near checks a level that a reader works out of totals against the exact one.
func (tr *traffic) near(r *region, what string, got deltasync.Totals) {
	r.t.Helper()
	level, exact := levelOf(bucket, got, r.now), tr.drained(r.now)
	if const2 := uint64(2 * 2 * micro); level > exact || exact-level > const2 {
		r.t.Errorf("%s: level %d millionths with carry %v, want at most %d and within two slices", what, level, got.Carry, exact)
	}
}

// A bucket that was filled and has been charged ever since as fast as it drains
// is full, though no window shows it: the carry does. It does so above the
// limit, too, where a soft margin admits that.
func TestCarryOutlivesItsSlices(t *testing.T) {
	for _, full := range []uint64{100, 150} {
		r, _ := bucketRegion(t, "eu", 1)
		tr := newTraffic("e1")
		tr.hold(r, full, 2*time.Minute)
		total := ask(r, bucket, 9)
		tr.near(r, "after two minutes", total)
		total.Carry = crdt.Carry{}
		if got := levelOf(bucket, total, r.now); got > 5*micro {
			t.Errorf("without the carry the level is %d millionths: this test shows nothing", got)
		}
		for range 60 {
			r.step(time.Second)
		}
		if st := r.Stats(r.now); st.Keys != 0 {
			t.Errorf("%d keys a minute later, want the drained bucket forgotten", st.Keys)
		}
	}
}

// An aggregator that starts anew finds the carry in the store, whenever that is.
func TestCarrySurvivesARestart(t *testing.T) {
	for _, after := range []time.Duration{20 * time.Second, 33 * time.Second, 41 * time.Second, 58600 * time.Millisecond, 2 * time.Minute} {
		r, store := bucketRegion(t, "eu", 1)
		tr := newTraffic("e1")
		tr.hold(r, 100, after)
		next := newRegion(t, "eu", store)
		next.now = r.now
		tr.near(next, after.String(), ask(next, bucket, 9))
	}
}

// Two aggregators of a region learn the carry from each other, by the store.
func TestCarryIsSharedByAggregators(t *testing.T) {
	r, store := bucketRegion(t, "eu", 1)
	second := newRegion(t, "eu", store)
	tr := newTraffic("e1")
	tr.charge(r.now, 100)
	for i := range 300 {
		r.now = r.now.Add(bucket.Width)
		second.now = r.now
		tr.charge(r.now, 2)
		tr.flush([]*region{r, second}[i/100%2]) // 20 s with one, 20 with the other
		if i%5 == 4 {
			r.step(0)
			second.step(0)
		}
	}
	tr.near(r, "the first", ask(r, bucket, 9))
	tr.flush(second) // and with it what the store has
	tr.near(second, "the second", ask(second, bucket, 9))
}

// A region that lost store and aggregator gets the level back from an edge that
// refreshes, and from a peer.
func TestCarryComesBackToAWipedRegion(t *testing.T) {
	t.Run("edge", func(t *testing.T) {
		r, _ := bucketRegion(t, "eu", 1)
		tr := newTraffic("e1")
		tr.hold(r, 100, time.Minute)
		heard := ask(r, bucket, 9)
		wiped, store := bucketRegion(t, "eu", 2)
		wiped.now = r.now
		tr.pour(wiped, bucket, 9, heard.Carry, tr.own.From(heard.Carry.Boundary, nil)...)
		tr.near(wiped, "after a refresh", ask(wiped, bucket, 9))
		// From then on it is the region's own, and in its store.
		for range 20 {
			wiped.now = wiped.now.Add(bucket.Width)
			tr.charge(wiped.now, 2)
			tr.flush(wiped)
		}
		wiped.step(time.Second)
		next := newRegion(t, "eu", store)
		next.now = wiped.now
		tr.near(next, "the next aggregator", ask(next, bucket, 9))
	})
	t.Run("peer", func(t *testing.T) {
		eu, _ := bucketRegion(t, "eu", 1, "us")
		us, _ := bucketRegion(t, "us", 2, "eu")
		tr := newTraffic("e1")
		tr.charge(eu.now, 100)
		for i := range 300 {
			eu.now = eu.now.Add(bucket.Width)
			us.now = eu.now
			tr.charge(eu.now, 2)
			tr.flush(eu)
			exchange(t, eu, us)
			if i%5 == 4 {
				eu.step(0)
				us.step(0)
			}
		}
		tr.near(us, "the peer", ask(us, bucket, 9))
		wiped, _ := bucketRegion(t, "eu", 3, "us")
		wiped.now = eu.now
		tr.flush(wiped) // no carry: the edge is an old build
		exchange(t, wiped, us)
		tr.near(wiped, "with the peer's reply", ask(wiped, bucket, 9))
		other, _ := bucketRegion(t, "jp", 4, "us")
		other.now = eu.now
		(&edge{name: "j1"}).pour(other, bucket, 9, crdt.Carry{}, crdt.Cell{Slice: sliceOf(bucket, other.now), Charges: 1})
		exchange(t, other, us)
		if got := ask(other, bucket, 9).Carry; got.Level < 90*micro {
			t.Errorf("a region that asks for the first time hears the carry %v, want about 98 units", got)
		}
	})
}

// Whatever comes, in whatever order and however often, the level is never above
// the exact one, and whoever has all in order is near it.
func TestCarryIsALowerBoundInAnyOrder(t *testing.T) {
	alone.Mark(t)
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			a, store := bucketRegion(t, "eu", 1)
			b, second := newRegion(t, "eu", store), newRegion(t, "eu", newStore(&start))
			second.now = start
			edges := []*traffic{newTraffic("e1"), newTraffic("e2"), newTraffic("e3")}
			truth := newTraffic("all")
			var carries []crdt.Carry
			for range 400 {
				a.now = a.now.Add(time.Duration(rng.IntN(300)) * time.Millisecond)
				b.now = a.now
				tr := edges[rng.IntN(len(edges))]
				if cost := rng.Uint64N(12); cost > 0 && rng.IntN(4) > 0 {
					tr.charge(a.now, cost)
					truth.charge(a.now, cost)
				}
				at := []*region{a, b}[rng.IntN(2)]
				cells := tr.own.Cells(nil)
				switch rng.IntN(4) {
				case 0: // an old frame, or a part of one
					if n := len(cells); n > 0 {
						cells = cells[rng.IntN(n):]
					}
				case 1:
					cells = nil
				}
				carry := crdt.Carry{}
				if n := len(carries); n > 0 {
					carry = carries[rng.IntN(n)]
				}
				total := tr.pour(at, bucket, 9, carry, cells...)
				if total.Carry.Level > 0 {
					carries = append(carries, total.Carry)
				}
				if rng.IntN(5) == 0 {
					a.step(0)
					b.step(0)
				}
				for _, r := range []*region{a, b} {
					if got, exact := levelOf(bucket, ask(r, bucket, 9), r.now), truth.drained(r.now); got > exact {
						t.Fatalf("level %d millionths at %v, the exact one is %d", got, r.now, exact)
					}
				}
			}
			for _, tr := range edges {
				tr.flush(a)
			}
			truth.near(a, "in the end", ask(a, bucket, 9))
		})
	}
}

// Nobody can pour in more than a full bucket by a carry, nor hide counts by one.
func TestHostileCarry(t *testing.T) {
	now := sliceOf(bucket, start)
	for _, tt := range []struct {
		name  string
		shape deltasync.Shape
		carry crdt.Carry
		most  uint64 // units
		least uint64
	}{
		{"huge", bucket, crdt.Carry{Boundary: now - 50, Level: 1<<64 - 1}, 33, 33},
		{"older than all that is kept", bucket, crdt.Carry{Boundary: now - 400, Level: 1<<64 - 1}, 33, 33},
		{"before 1970", bucket, crdt.Carry{Boundary: -5, Level: 1<<64 - 1}, 33, 33},
		{"of a slice in the window", bucket, crdt.Carry{Boundary: now - 5, Level: 1<<64 - 1}, 123, 123}, // 100 a second ago
		{"of the future", bucket, crdt.Carry{Boundary: now + 1000, Level: 1}, 33, 33},
		{"small, and later than all counts", bucket, crdt.Carry{Boundary: now + 4, Level: 1}, 33, 33},
		{"for a window", minute, crdt.Carry{Boundary: slice(start) - 41, Level: 1 << 40}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := bucketRegion(t, "eu", 1)
			e := &edge{name: "e1"}
			s := sliceOf(tt.shape, start)
			if tt.shape.Bucket() {
				// 30 now, and 3 each in two slices that come late.
				e.pour(r, tt.shape, 9, crdt.Carry{}, crdt.Cell{Slice: s, Charges: 30})
			}
			(&edge{name: "mallory"}).pour(r, tt.shape, 9, tt.carry)
			if tt.shape.Bucket() {
				e.pour(r, tt.shape, 9, crdt.Carry{}, crdt.Cell{Slice: s - 1, Charges: 3}, crdt.Cell{Slice: s, Charges: 30})
			}
			total := ask(r, tt.shape, 9)
			if !tt.shape.Bucket() {
				if !total.Carry.Zero() {
					t.Errorf("a window has the carry %v", total.Carry)
				}
				return
			}
			if got := levelOf(tt.shape, total, start); got > tt.most*micro || got < (tt.least-3)*micro {
				t.Errorf("level %d millionths with %v, want %d to %d units", got, total.Carry, tt.least, tt.most)
			}
		})
	}
}
