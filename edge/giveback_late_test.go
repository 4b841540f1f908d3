package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// What a bucket starts with beyond its capacity is nothing that could be given back.
func TestGiveBackOfWhatABucketStartsWith(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Name: "t", Algorithm: "token_bucket", Capacity: 10, Initial: 1010, Refill: limit.Flow{Units: 1, Per: time.Second}}))
	for _, charged := range []uint64{0, 3} {
		user := fmt.Sprint(charged)
		if charged > 0 {
			checkCost(n, start, user, charged)
		}
		req := requestOf(n, user)
		req.Cost = charged + 2
		if n.GiveBack(start, req); req.Recorded != (charged > 0) {
			t.Errorf("%d charged: recorded %t", charged, req.Recorded)
		}
		req.Release()
		if d := checkCost(n, start, user, 1010); !d.Allowed {
			t.Errorf("%d charged, and more given back: of the 1010 that it starts with %d are left", charged, d.Remaining)
		}
	}
}

// What is given back is what still counts, and not what has drained before.
func TestGiveBackOfWhatHasNotDrained(t *testing.T) {
	n := newNode(t, Config{}, perUser(tokens(10, limit.Flow{Units: 10, Per: 10 * time.Second})))
	checkCost(n, start, "u", 5)
	now := start.Add(6 * time.Second)
	checkCost(n, now, "u", 10)
	req := requestOf(n, "u")
	defer req.Release()
	req.Cost = 5
	if n.GiveBack(now, req); !req.Recorded {
		t.Error("nothing is given back")
	}
	if d := checkCost(n, now, "u", 5); !d.Allowed {
		t.Errorf("5 of 10 were given back, and %d are left", d.Remaining)
	}
}

// So it can from a queue of this edge alone, which knows that nobody waits.
func TestLateGiveBackOfALoneQueue(t *testing.T) {
	for name, rule := range turnsOf(1) {
		for i := range rule.Rates {
			rule.Rates[i].Scope = "edge"
		}
		for _, after := range []time.Duration{time.Second, 5 * time.Minute} {
			n := newNode(t, Config{}, rule)
			req := requestOf(n, "u")
			req.Cost = 1_000_000
			n.Report(start, req)
			for at := start; at.Before(start.Add(after)); at = at.Add(after / 20) {
				n.Tick(at)
			}
			req.Cost = 1_000_000
			if n.GiveBack(start.Add(after), req); !req.Recorded {
				t.Errorf("%s: %v after it nothing is given back", name, after)
			}
			req.Release()
			if d := check(n, start.Add(after), "u"); !d.Allowed || d.Delay > 0 {
				t.Errorf("%s: given back %v after it: allowed %t, delay %v, retry %v", name, after, d.Allowed, d.Delay, d.RetryAfter)
			}
		}
	}
}

// A report that was too large can be taken back from a bucket for as long as it counts,
// which is long after its slice is forgotten, be it that others charged too.
func TestLateGiveBack(t *testing.T) {
	for name, rule := range map[string]limit.RuleSpec{
		"token_bucket": perUser(tokens(10, limit.Flow{Units: 10, Per: 10 * time.Second})),
		"meter":        perUser(limit.RateSpec{Name: "m", Algorithm: "leaky_bucket", Capacity: 10, Outflow: limit.Flow{Units: 1, Per: time.Second}}),
	} {
		for _, after := range []time.Duration{100 * time.Millisecond, 15 * time.Second, 30 * time.Second, time.Hour} {
			n := newNode(t, Config{}, rule)
			rate := n.Rules().Rules()[0].Rates[0]
			check(n, start, "u")
			answer(t, n, start, upOf(t, n.Flush(start)), deltasync.Totals{Peers: []crdt.Cell{{Slice: rate.SliceAt(start.UnixNano()), Charges: 1}}})
			req := requestOf(n, "u")
			req.Cost = 1_000_000
			n.Report(start, req)
			for at := start; at.Before(start.Add(after)); at = at.Add(after / 20) {
				n.Tick(at)
			}
			now := start.Add(after)
			if d := check(n, now, "u"); d.Allowed {
				t.Fatalf("%s: allowed %v after a report of a million", name, after)
			}
			req.Cost = 1_000_000
			if n.GiveBack(now, req); !req.Recorded {
				t.Errorf("%s: %v after it nothing is given back", name, after)
			}
			req.Release()
			if d := check(n, now, "u"); !d.Allowed {
				t.Errorf("%s: given back %v after it, and denied for %v", name, after, d.RetryAfter)
			}
		}
	}
}

// What was charged ahead of a clock that was set back counts, and can be given back.
func TestGiveBackAheadOfTheClock(t *testing.T) {
	for _, algorithm := range []string{"sub_windows", "sliding_window", "sliding_log", "fixed_window"} {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: 10 * time.Second, Algorithm: algorithm}))
		for i := range 3 { // 1, 2 and 3, in three slices
			checkCost(n, start.Add(time.Duration(i)*2*time.Second), "u", uint64(i+1))
		}
		now := start.Add(time.Second)
		req := requestOf(n, "u")
		for req.Cost = 2; req.Cost > 0; req.Cost-- {
			if n.GiveBack(now, req); !req.Recorded {
				t.Errorf("%s: %d of what was charged ahead of the clock cannot be given back", algorithm, req.Cost)
			}
		}
		if d := checkCost(n, now, "u", 8); d.Allowed {
			t.Errorf("%s: 3 count, and 8 more of 10 are allowed", algorithm)
		}
		if d := checkCost(n, now, "u", 7); !d.Allowed {
			t.Errorf("%s: 3 count, and 7 more of 10 are denied", algorithm)
		}
		req.Release()
	}
}

// A log drops what decides nothing beside later hits; once some of these are given back it
// does, and is counted by its slices.
func TestGiveBackBesideWhatALogDropped(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: 10 * time.Second, Algorithm: "sliding_log", CountDenied: true, Scope: "edge"}))
	for i := range 3 { // the last is denied, and has the log forget the first
		checkCost(n, start.Add(time.Duration(i)*2*time.Second), "u", 5)
	}
	now := start.Add(5 * time.Second)
	req := requestOf(n, "u")
	req.Cost = 5
	n.GiveBack(now, req)
	req.Release()
	if d := check(n, now, "u"); d.Allowed {
		t.Error("10 of 10 count of 15 hits, as 5 are given back, and one more is allowed")
	}
}

// What is given back without a receipt is of what still counts, though slices have more yet:
// of the window before, or from before the instant that a log goes by.
func TestGiveBackOfWhatCounts(t *testing.T) {
	for name, rate := range map[string]limit.RateSpec{
		"first hit": {Limit: 10, Per: 10 * time.Second, Algorithm: "fixed_window", Align: "first_hit"},
		"log":       {Limit: 10, Per: 10 * time.Second, Algorithm: "sliding_log"},
	} {
		for _, rate.Scope = range []string{"edge", "global"} {
			for _, second := range []time.Duration{10100 * time.Millisecond, 15 * time.Second, 19900 * time.Millisecond} {
				n := newNode(t, Config{}, perUser(rate))
				counts := n.Rules().Rules()[0].Rates[0]
				checkCost(n, start, "u", 10)
				now := start.Add(second)
				if d := checkCost(n, now, "u", 5); !d.Allowed {
					t.Fatalf("%s, after %v: %+v", name, second, d)
				}
				req := requestOf(n, "u")
				req.Cost = 4
				n.GiveBack(now, req)
				if used := n.Believe(now, counts, keyOf(n, "u")).Total; used != 1 || !req.Recorded {
					t.Errorf("%s, scope %s, after %v: 4 of 5 given back: recorded %t, %d used, want 1", name, rate.Scope, second, req.Recorded, used)
				}
				req.Cost = 100 // of which there is 1
				n.GiveBack(now, req)
				if used := n.Believe(now, counts, keyOf(n, "u")).Total; used != 0 || !req.Recorded {
					t.Errorf("%s, scope %s, after %v: all given back: recorded %t, %d used, want 0", name, rate.Scope, second, req.Recorded, used)
				}
				if n.GiveBack(now, req); req.Recorded {
					t.Errorf("%s, scope %s, after %v: what is gone is given back", name, rate.Scope, second)
				}
				req.Release()
			}
		}
	}
}
