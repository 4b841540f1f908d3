package edge

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// What a push said of a bucket comes out of its level once the region says what has become of that, and
// what was charged here since stays in it, told or not.
func TestLevelOfAPushComesOutAgain(t *testing.T) {
	slow := limit.Flow{Units: 20, Per: 24 * time.Hour}
	for name, spec := range map[string]limit.RateSpec{
		"bucket": {Algorithm: "token_bucket", Capacity: 20, Refill: slow, Consistency: "loose"},
		"meter":  {Algorithm: "leaky_bucket", Capacity: 20, Outflow: slow, Consistency: "loose"},
	} {
		for _, given := range []uint64{0, 10, 18} {
			n := newNode(t, Config{}, perUser(spec))
			rate, now := n.Rules().Rules()[0].Rates[0], start
			others := func(refunds uint64) deltasync.Totals {
				return deltasync.Totals{Peers: []crdt.Cell{{Slice: rate.SliceAt(start.UnixNano()), Charges: 18, Refunds: refunds}}}
			}
			if err := n.ReceiveHot(now, pushOf(t, rate, keyOf(n, "u"), now, 18, 0)); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Second)
			if got := through(n, now, "u", 5); got != 2 {
				t.Errorf("%s: 18 of 20 are used, and %d more admitted", name, got)
			}
			up := upOf(t, n.Flush(now))
			now = now.Add(time.Second)
			answer(t, n, now, up, others(given))
			if got := through(n, now, "u", 20); got != int(given) {
				t.Errorf("%s: 20 of 20 were used, of which %d of others' came back, and %d more are admitted", name, given, got)
			}
		}
	}
}

// Where the region lost what it had told, and who was charged it is gone, what is charged here is no answer
// to that: the bucket is as full as it was said to be, and drains.
func TestLevelOfAPushStaysWhereTheRegionLostIt(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Algorithm: "token_bucket", Capacity: 20, Refill: limit.Flow{Units: 20, Per: 10 * time.Minute}, Consistency: "loose"}))
	rate, now := n.Rules().Rules()[0].Rates[0], start
	tell := func(store uint64) {
		up := upOf(t, n.Flush(now))
		down := deltasync.Down{Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: store, Store: store, LiveRegions: 1, Totals: make([]deltasync.Totals, len(up.Sections[0].Deltas))}
		b, err := down.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Receive(now, 0, b); err != nil {
			t.Fatal(err)
		}
	}
	through(n, now, "another", 1)
	tell(1)
	if err := n.ReceiveHot(now, pushOf(t, rate, keyOf(n, "u"), now, 20, 0)); err != nil {
		t.Fatal(err)
	}
	in := 0
	for range 40 {
		now = now.Add(30 * time.Second) // one more drains
		in += through(n, now, "u", 5)
		tell(2)
	}
	if in < 38 || in > 40 {
		t.Errorf("%d were admitted while 40 drained", in)
	}
}

// Own charges that stay in the level when what a push said comes out can be given back as before.
func TestOwnChargesBesideALevelComeBack(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Algorithm: "token_bucket", Capacity: 20, Refill: limit.Flow{Units: 20, Per: 24 * time.Hour}, Consistency: "loose"}))
	rate, now := n.Rules().Rules()[0].Rates[0], start
	if err := n.ReceiveHot(now, pushOf(t, rate, keyOf(n, "u"), now, 18, 0)); err != nil {
		t.Fatal(err)
	}
	req := requestOf(n, "u")
	req.Cost, req.Receipt = 2, true
	if d := n.Check(now, req); !d.Allowed {
		t.Fatalf("18 of 20 are used, and 2 more are denied: %+v", d)
	}
	charges := slices.Clone(req.Charges)
	req.Release()
	up := upOf(t, n.Flush(now))
	now = time.Unix(0, rate.StartOf(rate.SliceAt(now.UnixNano())+3))
	answer(t, n, now, up, deltasync.Totals{Peers: []crdt.Cell{{Slice: rate.SliceAt(start.UnixNano()), Charges: 18, Refunds: 18}}})
	n.Refund(now, charges, 0)
	if got := through(n, now, "u", 30); got != 20 {
		t.Errorf("all is given back, and %d of 20 are admitted", got)
	}
}
