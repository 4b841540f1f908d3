package edge

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

func reportCost(n *Node, now time.Time, user string, cost uint64) limit.Decision {
	req := requestOf(n, user)
	defer req.Release()
	req.Cost = cost
	return n.Report(now, req)
}

// Bytes are counted one by one: no cost is taken for less than was named, but by
// a rule that says so.
func TestLargeCosts(t *testing.T) {
	const most = 100_000_000
	for name, spec := range everyKind(most) {
		if name == "concurrency" || name == "sliding_log" { // they count requests, or remember few
			continue
		}
		n := newNode(t, Config{}, perUser(spec))
		ceiling := n.Rules().Rules()[0].Rates[0].Ceiling
		for _, above := range []uint64{ceiling + 1, 1 << 53, math.MaxUint64} {
			if d := checkCost(n, start, "u", above); d.Allowed || d.RetryAfter <= 0 {
				t.Errorf("%s: a cost of %d of %d: %+v", name, above, ceiling, d)
			}
		}
		for i, want := range []bool{true, true, false} {
			if d := checkCost(n, start, "u", ceiling/2); d.Allowed != want || want && d.Cost != ceiling/2 {
				t.Errorf("%s: half of %d, the %d. time: %+v", name, ceiling, i+1, d)
			}
		}
		if d := check(n, start, "u"); d.Allowed {
			t.Errorf("%s: %d and one more admitted", name, ceiling)
		}
		if d := reportCost(n, start, "v", ceiling); d.Cost != ceiling || check(n, start, "v").Allowed {
			t.Errorf("%s: one more than a reported %d was admitted; the report: %+v", name, ceiling, d)
		}
		rule := perUser(spec)
		rule.Cost.Max = 1000
		n = newNode(t, Config{}, rule)
		if d := checkCost(n, start, "u", math.MaxUint64); !d.Allowed || d.Cost != 1000 {
			t.Errorf("%s: more than the rule's max: %+v, want it to cost 1000", name, d)
		}
	}
}

// What is reported may be as large as it likes: it is a use of all there is, and
// overflows nowhere. It leaves a window with the window, and a bucket as it
// drains.
func TestReportsBeyondAllLimits(t *testing.T) {
	alone.Mark(t)
	for name, spec := range everyKind(10) {
		for _, scope := range []string{"edge", "global"} {
			for _, times := range []int{1, 2, 2100} { // 2048 of them do not fit 64 bits
				for _, forgotten := range []bool{false, true} {
					spec.Scope = scope
					n := newNode(t, Config{View: mapView{}}, perUser(spec))
					rate, now := n.Rules().Rules()[0].Rates[0], start
					if rate.Lease > 0 { // reports are not of slots
						continue
					}
					for range times {
						reportCost(n, now, "u", math.MaxUint64)
						settleFrames(n, now)
					}
					if forgotten {
						forgetAll(n, now)
					}
					for _, cost := range []uint64{1, 10, math.MaxUint64} {
						if d := checkCost(n, now, "u", cost); d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > 101*366*24*time.Hour || d.Remaining != 0 {
							t.Fatalf("%s, scope %s, %d times, forgotten %v: then a cost of %d: %+v", name, scope, times, forgotten, cost, d)
						}
					}
					for range 12 {
						n.Tick(now)
					}
					if b := check(n, now, "u").Basis; !forgotten && b.Local < math.MaxUint32 {
						t.Errorf("%s: told to be based on %d local", name, b.Local)
					}
					now = now.Add(3 * time.Minute)
					// Of a bucket that was forgotten no more is believed than that it was full.
					if d := check(n, now, "u"); d.Allowed == (rate.Bucket() && !forgotten) {
						t.Errorf("%s, scope %s, %d times, forgotten %v: three minutes later: %+v", name, scope, times, forgotten, d)
					}
				}
			}
		}
	}
	n := newNode(t, Config{}, perUser(everyKind(10)["token_bucket"]))
	reportCost(n, start, "u", 5_000_010)
	if d := check(n, start, "u"); d.Allowed || d.RetryAfter != 500_000*time.Minute+6*time.Second {
		t.Errorf("five million beyond the capacity, ten a minute: %+v", d)
	}
}

// A request that never fits is not told to ask again at once, as nothing is used.
func TestWhatNeverFitsWaitsAWindow(t *testing.T) {
	for name, rate := range map[string]limit.RateSpec{
		"window": {Limit: 3, Per: time.Minute}, "bucket": tokens(3, limit.Flow{Units: 3, Per: time.Minute}), "adaptive": adaptive(limit.RateSpec{Limit: 3, Per: time.Minute}),
	} {
		n := newNode(t, Config{}, perUser(rate))
		for range 2 {
			if d := checkCost(n, start, "u", 4); d.Allowed || d.RetryAfter < time.Minute || d.RetryAfter > 67*time.Second {
				t.Errorf("%s: 4 of 3: %+v, want a wait of a minute, and the jitter", name, d)
			}
		}
		if d := check(n, start, "u"); !d.Allowed {
			t.Errorf("%s: %+v after it", name, d)
		}
	}
}

// What costs nothing takes no place in a queue, and so goes at once, as it does by
// max_delay: it is never denied, and behind a full queue it would wait for longer than max_wait.
func TestFreeRequestsWaitInNoQueue(t *testing.T) {
	for name, maxWait := range map[string]time.Duration{"max_wait": 2 * time.Second, "until it is full": 0} {
		queue := limit.RateSpec{Name: "q", Algorithm: "leaky_bucket", Capacity: 4, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true, MaxWait: maxWait}
		rule := perUser(queue)
		rule.Cost.ByRoute = map[string]uint64{"/health": 0}
		n := newNode(t, Config{}, rule)
		ask := func(path string) limit.Decision {
			req := requestOf(n, "u")
			defer req.Release()
			req.Set("path", path)
			return n.Check(start, req)
		}
		waits := time.Duration(0)
		for ; ; waits += time.Second {
			if d := ask("/health"); !d.Allowed || d.Delay != 0 || d.Cost != 0 {
				t.Errorf("%s: a free request behind a queue of %v: %+v, want it to go at once", name, waits, d)
			}
			d := ask("/x")
			if !d.Allowed {
				break
			}
			if d.Delay != waits {
				t.Fatalf("%s: %+v, want a turn after %v", name, d, waits)
			}
		}
		if waits < 3*time.Second {
			t.Errorf("%s: full at %v, want three who wait at the least", name, waits)
		}
	}
}
