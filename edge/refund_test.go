package edge

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
	"github.com/spillgate/spillgate/sync"
)

// take decides one request of a user and keeps its receipt.
func take(t *testing.T, n *Node, now time.Time, user string, cost uint64) (limit.Decision, []limit.Charge) {
	t.Helper()
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	req.Cost, req.Receipt = cost, true
	d := n.Check(now, req)
	return d, slices.Clone(req.Charges)
}

// refundable are rates of ten, in every kind of algorithm.
var refundable = map[string]limit.RateSpec{
	"sub_windows":    {Limit: 10, Per: time.Hour},
	"fixed_window":   {Limit: 10, Per: time.Hour, Algorithm: "fixed_window"},
	"sliding_window": {Limit: 10, Per: time.Hour, Algorithm: "sliding_window"},
	"token_bucket":   tokens(10, limit.Flow{Units: 10, Per: time.Hour}),
}

// What is given back may be spent again, once.
func TestRefund(t *testing.T) {
	for name, rate := range refundable {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(rate))
			_, first := take(t, n, start, "u", 6)
			if len(first) != 1 || first[0].Cost != 6 {
				t.Fatalf("receipt %+v, want one charge of 6", first)
			}
			take(t, n, start, "u", 4)
			if d, none := take(t, n, start, "u", 1); d.Allowed || len(none) != 0 {
				t.Fatalf("eleventh of ten: %+v with receipt %v, want denied and nothing charged", d, none)
			}
			n.Refund(start, first, 2)
			if d := checkCost(n, start, "u", 3); d.Allowed {
				t.Fatal("3 were admitted with 2 given back")
			}
			if d := checkCost(n, start, "u", 2); !d.Allowed {
				t.Fatalf("2 given back are not to be had: %+v", d)
			}
			n.Refund(start, first, 0) // the other 4
			n.Refund(start, first, 0) // and nothing more
			if d := checkCost(n, start, "u", 5); d.Allowed {
				t.Fatal("what was given back twice counts twice")
			}
			if d := checkCost(n, start, "u", 4); !d.Allowed {
				t.Fatalf("the rest given back is not to be had: %+v", d)
			}
		})
	}
}

// A copy of a receipt gives back no more than is still charged in its slice: what is asked
// for later, in another, is not paid by it.
func TestRefundOfACopy(t *testing.T) {
	log := limit.RateSpec{Limit: 10, Per: time.Hour, Algorithm: "sliding_log"}
	for name, rate := range with(refundable, map[string]limit.RateSpec{"sliding_log": log, "concurrency": inFlight(10, time.Hour)}) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(rate))
			_, receipt := take(t, n, start, "u", 4) // of slots: one
			for range 5 {
				n.Refund(start, slices.Clone(receipt), 0)
			}
			admitted := 0
			for range 20 {
				if checkCost(n, start, "u", 1).Allowed {
					admitted++
				}
			}
			if admitted != 10 {
				t.Errorf("%d of 10 were admitted after a receipt that was given back five times", admitted)
			}
		})
	}
}

func with[V any](a, b map[string]V) map[string]V {
	a = maps.Clone(a)
	maps.Copy(a, b)
	return a
}

// A refund goes out beside its charge, and others' refunds are heard.
func TestRefundIsTold(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Hour}))
	_, charges := take(t, n, start, "u", 10)
	settleFrames(n, start)
	n.Refund(start, charges, 3)
	if !n.Urgent() {
		t.Error("a refund is not urgent: who waits for it elsewhere waits longer")
	}
	up := upOf(t, n.Flush(start))
	rate := n.Rules().Rules()[0].Rates[0]
	slice := rate.SliceAt(start.UnixNano())
	want := []crdt.Cell{{Slice: slice, Charges: 10, Refunds: 3}}
	if got := up.Sections[0].Deltas[0].Cells; !slices.Equal(got, want) {
		t.Fatalf("told %+v, want %+v", got, want)
	}
	answer(t, n, start, up, refundOf(slice, 5))
	if d := checkCost(n, start, "u", 8); !d.Allowed {
		t.Fatalf("3 of ours and 5 of others given back: %+v, want 8 admitted", d)
	}
	if d := checkCost(n, start, "u", 1); d.Allowed {
		t.Fatal("more is admitted than was given back")
	}
}

// What has left its window is given back no more, and a key that was forgotten
// meanwhile takes its refund as well.
func TestRefundComesLate(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute}))
	_, charges := take(t, n, start, "u", 10)
	settleFrames(n, start)
	n.hurry.Store(false)
	later := start.Add(3 * time.Minute)
	n.Refund(later, charges, 0)
	if n.Urgent() {
		t.Error("a refund of long ago is urgent, though nobody has the charge any more")
	}
	if d := checkCost(n, later, "u", 11); d.Allowed {
		t.Fatal("a refund of long ago made room above the limit")
	}
	if d := checkCost(n, later, "u", 10); !d.Allowed {
		t.Fatalf("a refund of long ago: %+v, want the whole limit", d)
	}

	n = newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Hour}))
	users := neighbours(n, 2)
	n.shard(keyOf(n, users[0])).max = 1
	_, charges = take(t, n, start, users[0], 4)
	settleFrames(n, start)
	check(n, start, users[1]) // the first is forgotten
	n.Refund(start, charges, 0)
	rate := n.Rules().Rules()[0].Rates[0]
	b := n.shard(keyOf(n, users[0])).find(keyOf(n, users[0])).block
	if got := b.own.Get(rate.SliceAt(start.UnixNano())); got.Refunds != 4 || got.Charges != 0 {
		t.Fatalf("its new life has %+v, want the refund of 4", got)
	}
}

// A window that began with a hit gives back nothing of the one before, though
// both have a part in one slice.
func TestRefundOfTheWindowBefore(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Hour, Algorithm: "fixed_window", Align: "first_hit"}))
	began := start.Add(10 * time.Second)
	check(n, began, "u")
	_, last := take(t, n, began.Add(time.Hour-5*time.Second), "u", 9)
	next := began.Add(time.Hour + 5*time.Second)
	if last[0].Slice != last[0].Rate.SliceAt(next.UnixNano()) {
		t.Fatal("the windows meet at the end of a slice, and nothing is tried")
	}
	_, first := take(t, n, next, "u", 10)
	n.Refund(next, last, 0)
	if d := check(n, next, "u"); d.Allowed {
		t.Error("what was charged to the window before was given back to this one")
	}
	n.Refund(next, first, 4)
	if got := through(n, next, "u", 10); got != 4 {
		t.Errorf("4 of this window were given back: %d admitted", got)
	}
}

// What is reported counts, whatever room there was.
func TestReport(t *testing.T) {
	for name, rate := range refundable {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(rate))
			check(n, start, "u")
			req := n.Rules().Only().NewRequest()
			req.Set("user", "u")
			req.Cost = 25
			if d := n.Report(start, req); !d.Allowed || d.Remaining != 0 || d.Cost != 25 {
				t.Fatalf("Report: %+v, want it allowed, 25, with nothing left", d)
			}
			if got := n.Believe(start, n.Rules().Rules()[0].Rates[0], keyOf(n, "u")).Total; got != 26 {
				t.Fatalf("%d used, want 1 and the 25 reported", got)
			}
			if d := check(n, start, "u"); d.Allowed {
				t.Fatal("admitted above a limit that a report used up")
			}
		})
	}
}

func inFlight(limitOf uint64, lease time.Duration) limit.RateSpec {
	return limit.RateSpec{Name: "slots", Algorithm: "concurrency", Limit: limitOf, Lease: lease}
}

// Slots of a concurrency limit come back when they are released, and those of a
// dead holder when their lease is over; a holder that renews keeps its own.
func TestConcurrency(t *testing.T) {
	n := newNode(t, Config{}, perUser(inFlight(2, 30*time.Second)))
	now := start
	_, first := take(t, n, now, "u", 1)
	_, second := take(t, n, now, "u", 1)
	if d, _ := take(t, n, now, "u", 1); d.Allowed {
		t.Fatal("a third slot of two")
	}
	now = now.Add(10 * time.Second)
	n.Refund(now, first, 0)
	_, third := take(t, n, now, "u", 1)
	if len(third) != 1 {
		t.Fatal("the slot that was released is not to be had")
	}
	for range 5 { // the second holder renews, the third is dead
		now = now.Add(10 * time.Second)
		n.Renew(now, second)
		settleFrames(n, now)
		n.Tick(now)
	}
	if _, fourth := take(t, n, now, "u", 1); len(fourth) != 1 {
		t.Fatal("the dead holder's slot did not come back")
	}
	if d, _ := take(t, n, now, "u", 1); d.Allowed {
		t.Fatal("the slot that was renewed was given away")
	}
	n.Refund(now, second, 0)
	if d, _ := take(t, n, now, "u", 1); !d.Allowed {
		t.Fatalf("after its holder released it: %+v", d)
	}
	n.Refund(now, third, 0) // late: its lease is over, and the slot another's
	if d, _ := take(t, n, now, "u", 1); d.Allowed {
		t.Fatal("a lease that was over was given back a second time")
	}
}

// A limit of denied hits too: whoever goes on trying stays out.
func TestDeniedHitsMayCount(t *testing.T) {
	for counts, after := range map[bool]bool{false: true, true: false} {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 2, Per: time.Minute, Algorithm: "sliding_log", CountDenied: counts}))
		check(n, start, "u")
		check(n, start, "u")
		for s := 10; s <= 50; s += 10 {
			if d := check(n, start.Add(time.Duration(s)*time.Second), "u"); d.Allowed {
				t.Fatalf("%d s after two of two: %+v", s, d)
			}
		}
		if d := check(n, start.Add(61*time.Second), "u"); d.Allowed != after {
			t.Errorf("count_denied %v: a minute after, with tries between: allowed %v, want %v", counts, d.Allowed, after)
		}
	}
}

// Without a receipt our own charges are given back first, then others', of each the
// oldest, and never more than there are.
func TestGiveBack(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute}))
	rate := n.Rules().Rules()[0].Rates[0]
	giveBack := func(now time.Time, cost uint64) {
		t.Helper()
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		req.Set("user", "u")
		req.Cost = cost
		n.GiveBack(now, req)
	}
	used := func(now time.Time) uint64 { return n.Believe(now, rate, keyOf(n, "u")).Total }
	checkCost(n, start, "u", 2)
	later := start.Add(30 * time.Second)
	checkCost(n, later, "u", 3)
	answer(t, n, later, upOf(t, n.Flush(later)), peersAt(rate.SliceAt(start.UnixNano()), 4))
	if got := used(later); got != 9 {
		t.Fatalf("%d used, want 2 and 3 of ours and 4 of others", got)
	}
	giveBack(later, 7)
	b := n.shard(keyOf(n, "u")).find(keyOf(n, "u")).block
	first, second := b.own.Get(rate.SliceAt(start.UnixNano())), b.own.Get(rate.SliceAt(later.UnixNano()))
	if got := used(later); got != 2 || first.Refunds != 4 || second.Refunds != 3 {
		t.Fatalf("7 given back: %d used, refunds %d and %d; want 2 used, our 2 and 2 of others' then, and our 3", got, first.Refunds, second.Refunds)
	}
	giveBack(later, 100)
	if got := used(later); got != 0 {
		t.Fatalf("more given back than there is: %d used, want none", got)
	}
	if d := checkCost(n, later, "u", 10); !d.Allowed {
		t.Fatalf("%+v, want all ten admitted", d)
	}
	if d := checkCost(n, later, "u", 1); d.Allowed {
		t.Fatal("more was given back than there was")
	}
}

// count_when charges by what became of the request.
func TestAnswered(t *testing.T) {
	set, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{
		{Name: "logins", Key: []string{"user"}, CountWhen: "response.status in [401, 403]", Rates: []limit.RateSpec{{Limit: 2, Per: time.Hour}}},
		{Name: "all", Group: "all", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}},
	}})
	if set == nil {
		t.Fatal(problems)
	}
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
	n.SetRules(set)
	login := func(status string) bool {
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		req.Set("user", "u")
		if !n.Check(start, req).Allowed {
			return false
		}
		if known := req.Set("response.status", status); !known {
			t.Fatal("no rule reads response.status")
		}
		n.Answered(start, req)
		return true
	}
	for i, step := range []struct {
		status string
		passes bool
	}{{"200", true}, {"200", true}, {"401", true}, {"200", true}, {"", true}, {"403", true}, {"200", false}} {
		if got := login(step.status); got != step.passes {
			t.Errorf("login %d: passes %v, want %v", i, got, step.passes)
		}
	}
	req := n.Rules().Only().NewRequest()
	req.Set("user", "u")
	for _, b := range n.Inspect(start, req) {
		if want := map[string]uint64{"logins": 2, "all": 6}[b.Rule.Name]; b.Total != want {
			t.Errorf("%s has %d, want %d", b.Rule.Name, b.Total, want)
		}
	}
}

// What an earlier life of ours charged, and others tell us of, can be given back
// to the last unit where this edge counts its own charges exactly.
func TestRefundOfAnEarlierLife(t *testing.T) {
	for name, rate := range map[string]limit.RateSpec{
		"sliding_log": {Limit: 10, Per: time.Hour, Algorithm: "sliding_log"},
		"first_hit":   {Limit: 10, Per: time.Hour, Algorithm: "fixed_window", Align: "first_hit"},
	} {
		for _, cost := range []uint64{1, 2, 10} {
			t.Run(fmt.Sprint(name, " ", cost), func(t *testing.T) {
				n := newNode(t, Config{}, perUser(rate))
				users := neighbours(n, 2)
				n.shard(keyOf(n, users[0])).max = 1
				_, charges := take(t, n, start, users[0], cost)
				settleFrames(n, start)
				check(n, start, users[1]) // the first is forgotten
				n.Refund(start, charges, 0)
				up := upOf(t, n.Flush(start))
				totals := make([]deltasync.Totals, 0, 2)
				for _, sec := range up.Sections {
					for _, d := range sec.Deltas {
						if d.Key == keyOf(n, users[0]) {
							totals = append(totals, peersAt(charges[0].Slice, cost))
						} else {
							totals = append(totals, deltasync.Totals{})
						}
					}
				}
				answer(t, n, start, up, totals...)
				if b := n.Believe(start, n.Rules().Rules()[0].Rates[0], keyOf(n, users[0])); !b.Live || b.Total != 0 {
					t.Errorf("believes %d with all given back (live: %v), want none", b.Total, b.Live)
				}
				if d := checkCost(n, start, users[0], 10); !d.Allowed {
					t.Errorf("%+v, want all ten admitted", d)
				}
			})
		}
	}
}

// What was given back of others' charges stays given back when this edge charges
// more in the same slice, whatever the algorithm.
func TestRefundOfOthersOutlivesOwnCharges(t *testing.T) {
	for name, rate := range map[string]limit.RateSpec{
		"sub_windows": {Limit: 10, Per: time.Hour},
		"sliding_log": {Limit: 10, Per: time.Hour, Algorithm: "sliding_log"},
		"first_hit":   {Limit: 10, Per: time.Hour, Algorithm: "fixed_window", Align: "first_hit"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(rate))
			rate := n.Rules().Rules()[0].Rates[0]
			believes := func(when string, now time.Time, want uint64) {
				t.Helper()
				if got := n.Believe(now, rate, keyOf(n, "u")).Total; got != want {
					t.Errorf("%s: believes %d, want %d", when, got, want)
				}
			}
			n.Check(start, peekOf(n, "u"))
			answer(t, n, start, upOf(t, n.Flush(start)), peersAt(rate.SliceAt(start.UnixNano()), 6))
			checkCost(n, start, "u", 2)
			believes("6 of others, 2 of ours", start, 8)
			back := n.Rules().Only().NewRequest()
			back.Set("user", "u")
			back.Cost = 7
			n.GiveBack(start, back)
			believes("7 given back", start, 1)
			now := start
			for i := range 9 {
				now = now.Add(time.Millisecond) // each is folded by itself
				if d := check(n, now, "u"); !d.Allowed {
					t.Fatalf("request %d of the 9 that there is room for: %+v", i+1, d)
				}
				believes(fmt.Sprint(i+1, " more"), now, uint64(i+2))
			}
			if d := check(n, now.Add(time.Millisecond), "u"); d.Allowed {
				t.Errorf("one more: %+v, want denied", d)
			}
		})
	}
}

// A charge of ours that has left the window is given back late: that takes
// nothing from what others charged in its slice, some of which may count yet.
func TestLateRefundTakesNothingFromOthers(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Hour, Algorithm: "sliding_log"}))
	rate := n.Rules().Rules()[0].Rates[0]
	_, charges := take(t, n, start, "u", 4)
	answer(t, n, start, upOf(t, n.Flush(start)), peersAt(charges[0].Slice, 3))
	now := start.Add(time.Hour + time.Second) // ours is of an hour ago to the nanosecond, theirs of a slice
	if got := n.Believe(now, rate, keyOf(n, "u")).Total; got != 3 {
		t.Fatalf("believes %d when ours has left the window, want the 3 of others", got)
	}
	n.Refund(now, charges, 0)
	if got := n.Believe(now, rate, keyOf(n, "u")).Total; got != 3 {
		t.Errorf("believes %d when ours is given back, want the 3 of others", got)
	}
}

// A log takes back the hit that the receipt names, and no other of its slice.
func TestLogsTakeBackWhatTheReceiptNames(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Algorithm: "sliding_log", Limit: 2, Per: time.Minute}))
	_, first := take(t, n, start, "u", 1)
	if d := check(n, start.Add(1400*time.Millisecond), "u"); !d.Allowed {
		t.Fatal(d)
	}
	n.Refund(start.Add(1450*time.Millisecond), first, 0)
	if d := check(n, start.Add(60100*time.Millisecond), "u"); !d.Allowed {
		t.Errorf("%+v: want the place of the hit that was given back", d)
	}
	if d := check(n, start.Add(61300*time.Millisecond), "u"); d.Allowed {
		t.Error("three hits in 59.9 s, of two")
	}
	if d := check(n, start.Add(61400*time.Millisecond), "u"); !d.Allowed {
		t.Errorf("%+v: the second hit is a minute ago", d)
	}
}

// A window begins with the first hit that is left, however many were given back.
func TestFirstHitThatIsLeft(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 3, Per: time.Minute, Algorithm: "fixed_window", Align: "first_hit"}))
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var receipts [3][]limit.Charge
	for i := range receipts {
		_, receipts[i] = take(t, n, at(10*i), "u", 1)
	}
	n.Refund(at(21), receipts[1], 0)
	n.Refund(at(22), receipts[0], 0)
	admitted := 0
	for s := 30; s < 79; s++ { // the window is 20 to 80 s, to the width of a slice
		if check(n, at(s), "u").Allowed {
			admitted++
		}
	}
	if admitted != 2 {
		t.Errorf("%d admitted beside the hit that is left, want 2", admitted)
	}
	if d := check(n, at(80), "u"); !d.Allowed {
		t.Errorf("%+v: that window is over", d)
	}
}
