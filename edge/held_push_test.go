package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// pushOf is a push of one key's totals in the present slice.
func pushOf(t *testing.T, rate *limit.Rate, key deltasync.Key, now time.Time, charges, refunds uint64) []byte {
	t.Helper()
	hot := deltasync.Hot{Region: "eu", Sections: []deltasync.HotSection{{
		Shape: shapeOf(rate),
		Keys: []deltasync.HotKey{{Key: key, Totals: deltasync.Totals{
			Peers: []crdt.Cell{{Slice: rate.SliceAt(now.UnixNano()), Charges: charges, Refunds: refunds}},
		}}},
	}}}
	payload, err := hot.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// A push tells of keys that are not live here; without a view, or with one that
// dropped them, they are blocked all the same, until the region resets them.
func TestPushBlocksAndResetLifts(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Minute}))
	rate := n.Rules().Rules()[0].Rates[0]
	push := func(user string, charges, refunds uint64) {
		t.Helper()
		if err := n.ReceiveHot(start, pushOf(t, rate, keyOf(n, user), start, charges, refunds)); err != nil {
			t.Fatal(err)
		}
	}
	push("busy", 96, 0)
	push("reset", 96, 0)
	push("reset", 96, 96)
	push("idle", 79, 0)
	push("returned", 79, 79)
	for user, want := range map[string]int{"busy": 4, "reset": 100, "idle": 100, "returned": 100} {
		got := 0
		for check(n, start, user).Allowed {
			got++
		}
		if got != want {
			t.Errorf("%s: %d admitted after the push, want %d", user, got, want)
		}
	}
	// A key that is live and held when it is reset, and of which its region has said all.
	check(n, start, "busy")
	up := upOf(t, n.Flush(start))
	var totals []deltasync.Totals
	for _, d := range up.Sections[0].Deltas {
		told := deltasync.Totals{}
		if d.Key == keyOf(n, "busy") {
			told = peersAt(rate.SliceAt(start.UnixNano()), 96)
		}
		totals = append(totals, told)
	}
	answer(t, n, start, up, totals...)
	if d := check(n, start, "busy"); d.Allowed {
		t.Error("a key that is used up is let in before it is reset")
	}
	push("busy", 96, 96)
	if d := check(n, start, "busy"); !d.Allowed {
		t.Errorf("denied for %v after the key was reset", d.RetryAfter)
	}
}

// What the push of a bucket says of its past counts too, and the key gets what
// drains.
func TestPushOfABucketBlocks(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 1, Per: time.Second}}))
	rate := n.Rules().Rules()[0].Rates[0]
	hot := deltasync.Hot{Region: "eu", Sections: []deltasync.HotSection{{
		Shape: shapeOf(rate),
		Keys: []deltasync.HotKey{{Key: keyOf(n, "u"), Totals: deltasync.Totals{
			Peers: []crdt.Cell{{Slice: rate.SliceAt(start.UnixNano()), Charges: 4}},
			Carry: crdt.Carry{Boundary: rate.SliceAt(start.UnixNano()), Level: 5_000_000},
		}}},
	}}}
	payload, err := hot.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.ReceiveHot(start, payload); err != nil {
		t.Fatal(err)
	}
	spend := func(now time.Time) (admitted int) {
		for check(n, now, "u").Allowed {
			admitted++
		}
		return admitted
	}
	if got := spend(start); got > 1 {
		t.Errorf("%d admitted by a bucket that is full to 9 of 10", got)
	}
	if got := spend(start.Add(4 * time.Second)); got < 3 || got > 5 {
		t.Errorf("%d admitted 4 s later, want what drained", got)
	}
}

// A push tells what changed: where the rest is known no more, that most of it was given back frees
// nothing.
func TestPushOfSomeFreesNothingOfWhatIsForgotten(t *testing.T) {
	view := mapView{}
	n := newNode(t, Config{View: view}, perUser(limit.RateSpec{Limit: 20, Per: time.Hour}))
	rate := n.Rules().Rules()[0].Rates[0]
	push := func(at time.Time, charges, refunds uint64) {
		if err := n.ReceiveHot(at, pushOf(t, rate, keyOf(n, "u"), at, charges, refunds)); err != nil {
			t.Fatal(err)
		}
	}
	push(start, 20, 0)
	clear(view)
	now := start.Add(5 * time.Minute)
	push(now, 30, 28)
	if got := through(n, now, "u", 40); got > 0 {
		t.Errorf("%d admitted, 20 of 20 are used", got)
	}
}

// Where the region says later that most was given back, there is room again: also of a key that was
// asked for in vain meanwhile, and forgotten.
func TestPushOfWhatWasGivenBackFrees(t *testing.T) {
	for name, spec := range lentKinds(20, time.Hour) {
		for _, asked := range []bool{false, true} {
			n := newNode(t, Config{View: mapView{}}, perUser(spec))
			rate, now := n.Rules().Rules()[0].Rates[0], start.Add(time.Second)
			push := func(refunds uint64) {
				if err := n.ReceiveHot(now, pushOf(t, rate, keyOf(n, "u"), start, 20, refunds)); err != nil {
					t.Fatal(err)
				}
			}
			push(0)
			if asked {
				if d := check(n, now, "u"); d.Allowed {
					t.Fatalf("%s: %+v", name, d)
				}
				forgetAll(n, now)
			}
			now = now.Add(time.Minute)
			push(18)
			if got := through(n, now, "u", 40); got < 17 { // what a bucket holds is known by some 17 ms
				t.Errorf("%s, asked for before: %v: %d admitted, 2 of 20 are used", name, asked, got)
			}
		}
	}
}

// A key whose counts are given back everywhere is blocked by them no more; its penalty goes on, and
// is what is told.
func TestPenaltyOutlastsWhatIsGivenBack(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 20, Per: time.Minute, Consistency: "adaptive"})
	rule.Penalty = limit.Penalty{For: 5 * time.Minute}
	n := newNode(t, Config{}, rule)
	rate := n.Rules().Rules()[0].Rates[0]
	push := func(charges, refunds uint64) {
		t.Helper()
		if err := n.ReceiveHot(start, pushOf(t, rate, keyOf(n, "u"), start, charges, refunds)); err != nil {
			t.Fatal(err)
		}
	}
	push(20, 0)
	if d := check(n, start, "u"); d.Allowed {
		t.Fatal("one more than the limit is admitted")
	}
	for _, forgotten := range []bool{false, true} {
		if forgotten {
			forgetAll(n, start)
		}
		push(20, 20)
		if d := check(n, start.Add(time.Second), "u"); d.Allowed || d.Basis.Short || d.RetryAfter < 4*time.Minute {
			t.Errorf("with a penalty of five minutes, forgotten %v: allowed %v, short of a share %v, to be asked again in %v", forgotten, d.Allowed, d.Basis.Short, d.RetryAfter)
		}
	}
}

// Pushes that tell of more and more hold a key to the most of it, also where no view keeps what
// the last one said, and where it was forgotten here with some of its limit used.
func TestPushesHoldToTheMostThatIsUsed(t *testing.T) {
	for name, cfg := range map[string]Config{"no view": {}, "a view that drops it": {View: mapView{}}} {
		for _, own := range []int{0, 80} {
			n := newNode(t, cfg, perUser(limit.RateSpec{Limit: 100, Per: time.Minute}))
			rate := n.Rules().Rules()[0].Rates[0]
			through(n, start, "u", own)
			forgetAll(n, start)
			for _, used := range []uint64{80, 95, 100, 90} {
				if err := n.ReceiveHot(start, pushOf(t, rate, keyOf(n, "u"), start, used, 0)); err != nil {
					t.Fatal(err)
				}
				if v, ok := cfg.View.(mapView); ok {
					clear(v)
				}
			}
			if got := through(n, start, "u", 200); got != 0 {
				t.Errorf("%s, %d admitted here: 100 of 100 are used, as a push said, and %d more are admitted", name, own, got)
			}
		}
	}
}

// A hold lasts for as long as what the latest push says, where an earlier one said of more that ends
// sooner, and goes on from what that has eased to.
func TestPushesHoldToTheLastThatEnds(t *testing.T) {
	for name, spec := range map[string]limit.RateSpec{"slots": inFlight(20, time.Minute), "sub_windows": {Limit: 20, Per: time.Minute}, "sliding_log": {Limit: 20, Per: time.Minute, Algorithm: "sliding_log"}} {
		spec.Consistency = "loose"
		n := newNode(t, Config{}, perUser(spec))
		rate := n.Rules().Rules()[0].Rates[0]
		push := func(after time.Duration, charges, refunds uint64) {
			t.Helper()
			if err := n.ReceiveHot(start.Add(after), pushOf(t, rate, keyOf(n, "u"), start.Add(after), charges, refunds)); err != nil {
				t.Fatal(err)
			}
		}
		push(time.Second, 20, 0)
		for second := range 9 { // all of those have left, and 19 others come
			push(time.Duration(50+second)*time.Second, 19, 0)
		}
		if got := through(n, start.Add(70*time.Second), "u", 200); got > 1 {
			t.Errorf("%s: 19 of 20 are used, as a push said, and %d more are admitted", name, got)
		}
	}
}

// Pushes each second that tell all hold a key to what is used by then, not to the most that ever
// was: whoever uses nearly all of his limit all the time keeps what is left. Where it was forgotten
// here with counts that the region may not have, that is so once they have left the window.
func TestPushesHoldToWhatIsUsedNow(t *testing.T) {
	for name, spec := range map[string]limit.RateSpec{
		"sub windows": {Limit: 100, Per: time.Minute}, "log": {Algorithm: "sliding_log", Limit: 100, Per: time.Minute},
		"sliding window": {Algorithm: "sliding_window", Limit: 100, Per: time.Minute}, "slots": inFlight(100, time.Minute),
	} {
		for view, cfg := range map[string]Config{"no view": {}, "view": {View: mapView{}}, "a view that drops it": {View: mapView{}}} {
			for _, own := range []int{0, 90} {
				n := newNode(t, cfg, perUser(spec))
				rate := n.Rules().Rules()[0].Rates[0]
				through(n, start, "u", own)
				forgetAll(n, start)
				var all crdt.Vector
				var used uint64
				now, sum := start, 0.
				for second := range 600 {
					now = start.Add(time.Duration(second) * time.Second)
					rates := []float64{82, 96, 82} // a minute
					sum += rates[second/100%3] / 60
					all.Add(crdt.Cell{Slice: rate.SliceAt(now.UnixNano()), Charges: uint64(sum)})
					sum -= float64(uint64(sum))
					all.Retire(rate.Reach(now.UnixNano()))
					hot := deltasync.Hot{Region: "eu", SentAt: now.UnixNano(), Sections: []deltasync.HotSection{{
						Shape: shapeOf(rate), Keys: []deltasync.HotKey{{Key: keyOf(n, "u"), Totals: deltasync.Totals{Peers: all.Cells(nil)}}},
					}}}
					payload, err := hot.AppendBinary(nil)
					if err != nil {
						t.Fatal(err)
					}
					if err := n.ReceiveHot(now, payload); err != nil {
						t.Fatal(err)
					}
					if v, ok := cfg.View.(mapView); ok && view != "view" && second%10 == 3 {
						clear(v)
					}
					used = rate.Rounded(rate.Used(all.Cells(nil), crdt.Carry{}, now.UnixNano()))
				}
				if got := through(n, now, "u", 100); got < 99-int(used) || got > 100-int(used) {
					t.Errorf("%s, %s, %d admitted here before: %d of 100 are used, and %d more are admitted", name, view, own, used, got)
				}
			}
		}
	}
}

// An edge without a view that was told of a key twice is denied by what was said first; once its region
// has answered with all that became of it, it has what is free.
func TestAnswerEndsWhatPushesHeld(t *testing.T) {
	for name, spec := range lentKinds(20, time.Hour) {
		if spec.Algorithm == "token_bucket" {
			continue // what it has left is known by the push
		}
		n := newNode(t, Config{}, perUser(spec))
		rate, now := n.Rules().Rules()[0].Rates[0], start.Add(time.Second)
		for _, refunds := range []uint64{0, 3, 4} {
			if err := n.ReceiveHot(now, pushOf(t, rate, keyOf(n, "u"), start, 20, refunds)); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Second)
		}
		through(n, now, "u", 40)
		up := upOf(t, n.Flush(now))
		answer(t, n, now, up, deltasync.Totals{Peers: []crdt.Cell{{Slice: rate.SliceAt(start.UnixNano()), Charges: 20, Refunds: 18}}})
		if got := through(n, now, "u", 40); got != 18 {
			t.Errorf("%s: 2 of 20 are used, as the region answered, and %d more admitted", name, got)
		}
	}
}

// What its region answers, which has its store, is all that is used of a key that was held by what was
// pushed: some of that may have left the window meanwhile, so that it says less.
func TestAnswerSaysWhatHasLeftTheWindow(t *testing.T) {
	for _, status := range []deltasync.Status{deltasync.StatusOK, deltasync.StatusStoreDown} {
		n := newNode(t, Config{View: mapView{}}, perUser(limit.RateSpec{Limit: 100, Per: time.Minute}))
		rate := n.Rules().Rules()[0].Rates[0]
		early, late := rate.SliceAt(start.UnixNano()), rate.SliceAt(start.Add(30*time.Second).UnixNano())
		now := start.Add(30 * time.Second)
		hot := deltasync.Hot{Region: "eu", SentAt: now.UnixNano(), Sections: []deltasync.HotSection{{
			Shape: shapeOf(rate), Keys: []deltasync.HotKey{{Key: keyOf(n, "u"), Totals: deltasync.Totals{Peers: []crdt.Cell{{Slice: early, Charges: 60}, {Slice: late, Charges: 40}}}}},
		}}}
		payload, err := hot.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.ReceiveHot(now, payload); err != nil {
			t.Fatal(err)
		}
		now = start.Add(65 * time.Second)
		through(n, now, "u", 1)
		up := upOf(t, n.Flush(now))
		answerStatus(t, n, now, up, status, deltasync.Totals{Peers: []crdt.Cell{{Slice: late, Charges: 40}}})
		if got := through(n, now, "u", 200); (got >= 59) != (status == deltasync.StatusOK) {
			t.Errorf("%v: 40 of 100 are used, as the region answered, and %d more admitted", status, got)
		}
	}
}

// Nor is that all which a region answers to what was asked before the key was forgotten: it says what
// changed since it said the rest.
func TestAnswerToAFormerLifeIsNotAll(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Minute, Consistency: "loose"}))
	rate := n.Rules().Rules()[0].Rates[0]
	now := start
	tell := func(up *deltasync.Up, from crdt.Slice) {
		var all crdt.Vector
		all.Add(crdt.Cell{Slice: rate.SliceAt(start.UnixNano()), Charges: 95})
		all.Add(crdt.Cell{Slice: rate.SliceAt(start.Add(30 * time.Second).UnixNano()), Charges: 4})
		all.Retire(from)
		answer(t, n, now, up, deltasync.Totals{Peers: all.Cells(nil)})
	}
	heavyPeek := func() *limit.Request {
		req := peekOf(n, "u")
		req.Cost = 50
		return req
	}
	var up *deltasync.Up
	for _, after := range []time.Duration{0, 10 * time.Second, 30 * time.Second} {
		if up != nil {
			tell(up, 0)
		}
		now = start.Add(after)
		n.Check(now, heavyPeek()) // what is denied is asked about
		up = upOf(t, n.Flush(now))
	}
	if up == nil || up.Sections[0].Deltas[0].Heard == 0 || up.Sections[0].Deltas[0].Tells() {
		t.Fatalf("%+v; want a question about what changed", up)
	}
	forgetAll(n, now)
	n.Check(now, heavyPeek())
	tell(up, up.Sections[0].Deltas[0].Heard)
	if got := through(n, now, "u", 200); got > 5 {
		t.Errorf("99 of 100 are used, and %d more admitted", got)
	}
}

// Two pushes of what changed are not all, be it that a view which had forgotten the rest has the first of
// them, or that the key was asked for, and denied, when that came.
func TestPushesOfPartsFreeNothing(t *testing.T) {
	for name, spec := range lentKinds(20, time.Hour) {
		if spec.Algorithm == "token_bucket" {
			continue // of which each push tells all
		}
		for _, refunds := range [][]uint64{{0, 2}, {1, 2}, {2, 2}, {0, 1, 2}} {
			for _, asked := range []bool{false, true} {
				view := mapView{}
				n := newNode(t, Config{View: view}, perUser(spec))
				rate, now := n.Rules().Rules()[0].Rates[0], start
				push := func(charges, refunds uint64) {
					if err := n.ReceiveHot(now, pushOf(t, rate, keyOf(n, "u"), now, charges, refunds)); err != nil {
						t.Fatal(err)
					}
				}
				push(18, 0)
				clear(view)
				now = now.Add(5 * time.Minute)
				if asked {
					req := requestOf(n, "u")
					req.Cost = 5
					n.Check(now, req) // denied, but of slots, of which it is one
				}
				push(2, refunds[0])
				forgetAll(n, now)
				for _, r := range refunds[1:] {
					push(2, r)
				}
				if got := through(n, now, "u", 40); got > 2 {
					t.Errorf("%s, %v given back, asked for %v: 18 of 20 are used for long, and %d more admitted", name, refunds, asked, got)
				}
			}
		}
	}
}

// Nor is an answer about what changed, which comes when the key is forgotten and its view has forgotten, too.
func TestLateAnswerOfAPartFreesNobody(t *testing.T) {
	view := mapView{}
	n := newNode(t, Config{View: view}, perUser(limit.RateSpec{Algorithm: "concurrency", Limit: 20, Lease: time.Hour, Consistency: "loose"}))
	rate, now := n.Rules().Rules()[0].Rates[0], start
	if err := n.ReceiveHot(now, pushOf(t, rate, keyOf(n, "u"), start, 20, 2)); err != nil {
		t.Fatal(err)
	}
	var up *deltasync.Up
	for _, after := range []time.Duration{time.Second, 5 * time.Minute, 10 * time.Minute} {
		if up != nil {
			answer(t, n, now, up, deltasync.Totals{Peers: []crdt.Cell{{Slice: rate.SliceAt(start.UnixNano()), Charges: 20, Refunds: 2}}})
		}
		now = start.Add(after)
		req := peekOf(n, "u")
		req.Cost = 5
		n.Check(now, req) // what is denied is asked about
		up = upOf(t, n.Flush(now))
	}
	if up == nil || up.Sections[0].Deltas[0].Heard == 0 {
		t.Fatalf("%+v; want a question about what changed", up)
	}
	forgetAll(n, now)
	clear(view)
	answer(t, n, now, up, deltasync.Totals{Peers: []crdt.Cell{{Slice: rate.SliceAt(now.UnixNano()), Charges: 30, Refunds: 30}}})
	if got := through(n, now, "u", 40); got > 2 {
		t.Errorf("18 of 20 are used, and %d more admitted", got)
	}
}
