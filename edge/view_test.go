package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// pushTotals has the node take in a push of one user's totals.
func pushTotals(t *testing.T, n *Node, now time.Time, user string, totals deltasync.Totals) {
	t.Helper()
	hot := deltasync.Hot{Region: "eu", LiveRegions: 1, Sections: []deltasync.HotSection{{
		Shape: shapeOf(n.Rules().Rules()[0].Rates[0]), Keys: []deltasync.HotKey{{Key: keyOf(n, user), Totals: totals}},
	}}}
	payload, err := hot.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.ReceiveHot(now, payload); err != nil {
		t.Fatal(err)
	}
}

// Counts of ours that were forgotten before anybody heard of them are only in the
// view: a push of the key, which lacks them, adds to them.
func TestPushKeepsWhatWasForgottenUnsent(t *testing.T) {
	n := newNode(t, Config{View: mapView{}}, perUser(limit.RateSpec{Limit: 10, Per: time.Hour}))
	rate := n.Rules().Rules()[0].Rates[0]
	users := neighbours(n, 2)
	n.shard(keyOf(n, users[0])).max = 1
	now := start.Add(rate.Width)
	checkCost(n, now, users[0], 4)
	check(n, now, users[1]) // the first is forgotten
	believes := func(when string, live bool, want uint64) {
		t.Helper()
		if b := n.Believe(now, rate, keyOf(n, users[0])); b.Live != live || b.Total != want {
			t.Errorf("%s: live %v, %d used; want live %v, %d", when, b.Live, b.Total, live, want)
		}
	}
	believes("forgotten", false, 4)
	pushTotals(t, n, now, users[0], peersAt(rate.SliceAt(start.UnixNano()), 3))
	believes("after a push of 3 in the slice before", false, 7)
	pushTotals(t, n, now, users[0], peersAt(rate.SliceAt(now.UnixNano()), 2)) // which may be of our 4
	believes("after a push of 2 in the same slice", false, 7)
	n.Check(now, peekOf(n, users[0]))
	believes("when it is live again", true, 7)
}

// A push that says less of a bucket's past than one before it takes nothing away,
// and the key that comes then has what is known of it.
func TestPushKeepsTheLaterCarry(t *testing.T) {
	for _, c := range []struct {
		name   string
		second func(carry crdt.Carry) crdt.Carry
	}{
		{"no carry", func(crdt.Carry) crdt.Carry { return crdt.Carry{} }},
		{"older", func(c crdt.Carry) crdt.Carry { return crdt.Carry{Boundary: c.Boundary - 3, Level: c.Level} }},
		{"lower", func(c crdt.Carry) crdt.Carry { return crdt.Carry{Boundary: c.Boundary, Level: c.Level / 2} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, Config{View: mapView{}}, perUser(tokens(10, limit.Flow{Units: 10, Per: time.Hour})))
			rate := n.Rules().Rules()[0].Rates[0]
			slice := rate.SliceAt(start.UnixNano())
			first := crdt.Carry{Boundary: slice, Level: 6_000_000} // too little to be blocked for
			pushTotals(t, n, start, "u", deltasync.Totals{Carry: first})
			second := peersAt(slice, 1)
			second.Carry = c.second(first)
			pushTotals(t, n, start, "u", second)
			if b := n.Believe(start, rate, keyOf(n, "u")); b.Live || b.Total != 7 {
				t.Errorf("of a key that is not live (%v) believes %d, want the 6 of the first push and the 1 of the second", b.Live, b.Total)
			}
			if d := checkCost(n, start, "u", 4); d.Allowed {
				t.Errorf("4 above 7 of 10: %+v, want denied", d)
			}
			if d := checkCost(n, start, "u", 3); !d.Allowed {
				t.Errorf("3 above 7 of 10: %+v, want allowed", d)
			}
		})
	}
}

// What a bucket's retired slices held is in the view while the key is not live,
// and counts when it is again.
func TestBucketComesBackWithItsCarry(t *testing.T) {
	n := newNode(t, Config{View: mapView{}}, perUser(tokens(10, limit.Flow{Units: 10, Per: time.Hour})))
	rate := n.Rules().Rules()[0].Rates[0]
	users := neighbours(n, 2)
	s := n.shard(keyOf(n, users[0]))
	s.max = 1
	n.Check(start, peekOf(n, users[0]))
	carry := crdt.Carry{Boundary: rate.SliceAt(start.UnixNano()), Level: 6_000_000}
	answer(t, n, start, upOf(t, n.Flush(start)), deltasync.Totals{Carry: carry})
	check(n, start, users[1])
	if s.find(keyOf(n, users[0])) != nil {
		t.Fatal("the bucket was not forgotten: nothing is tested")
	}
	if d := checkCost(n, start, users[0], 5); d.Allowed {
		t.Errorf("5 above 6 of 10: %+v, want denied", d)
	}
	if d := checkCost(n, start, users[0], 4); !d.Allowed {
		t.Errorf("4 above 6 of 10: %+v, want allowed", d)
	}
}

// lastingView notes for how long it is to keep what it is given.
type lastingView struct {
	mapView
	lasts map[deltasync.Key]time.Duration
}

func (v lastingView) Set(k deltasync.Key, t Totals, lasts time.Duration) {
	v.mapView.Set(k, t, lasts)
	v.lasts[k] = lasts
}

// What is pushed of a key that is not live is kept for as long as it may count: a bucket that
// takes more than its capacity, as it has a margin, drains for longer than its window.
func TestPushIsKeptWhileItCounts(t *testing.T) {
	rule := perUser(tokens(10, limit.Flow{Units: 1, Per: time.Second}))
	rule.Margin = limit.MarginSpec{SoftPercent: 900}
	view := lastingView{mapView{}, map[deltasync.Key]time.Duration{}}
	n := newNode(t, Config{View: view}, rule)
	rate := n.Rules().Rules()[0].Rates[0]
	pushTotals(t, n, start, "u", peersAt(rate.SliceAt(start.UnixNano()), 100))
	if got := view.lasts[keyOf(n, "u")]; got < 100*time.Second {
		t.Errorf("a full bucket of 10 and 900 %% at 1/s is kept for %v, want 100 s at least (its window is %v)", got, rate.Window)
	}
}
