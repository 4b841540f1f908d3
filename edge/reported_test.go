package edge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// reported charges a user's request with what it cost beyond what its check said.
func reported(n *Node, user string, cost uint64) {
	req := requestOf(n, user)
	defer req.Release()
	req.Cost = cost
	n.Report(start, req)
}

// givenBack gives a user's cost back without a receipt, and says whether there was any.
func givenBack(n *Node, user string, cost uint64) bool {
	req := requestOf(n, user)
	defer req.Release()
	req.Cost = cost
	n.GiveBack(start, req)
	return req.Recorded
}

// countedOf is what is counted of the first rule that applies to a user's requests.
func countedOf(n *Node, user string) uint64 {
	req := requestOf(n, user)
	defer req.Release()
	return n.Inspect(start, req)[0].Total
}

// What is counted above a rule's own limit stands at its parent too, in whatever order it
// was checked, reported and given back; and no less than that where more was reported than the
// parent had left, of which nobody knows then what is given back.
func TestWhatIsAboveTheLimitStandsAtTheParent(t *testing.T) {
	for _, scope := range []string{"edge", "global"} {
		for seed := range uint64(50) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			child := borrower("child", limit.RateSpec{Limit: 10, Per: time.Hour, Scope: scope}, limit.RateSpec{Limit: 14, Per: 2 * time.Hour, Scope: scope})
			child.Margin.SoftPercent = 20
			parent := lender(60)
			parent.Rates[0].Scope = scope
			n := newNode(t, Config{}, parent, child)
			said, beyond := "", false
			for range 60 {
				user, cost := string(rune('a'+rnd.IntN(3))), 1+rnd.Uint64N(9)
				switch rnd.IntN(4) {
				case 0:
					said += fmt.Sprintf(" check(%s, %d)=%v", user, cost, checkCost(n, start, user, cost).Allowed)
				case 1:
					said += fmt.Sprintf(" report(%s, %d)", user, cost)
					reported(n, user, cost)
				default:
					said += fmt.Sprintf(" giveBack(%s, %d)=%v", user, cost, givenBack(n, user, cost))
				}
				var above uint64
				for _, user := range []string{"a", "b", "c"} {
					above += max(12, countedOf(n, user)) - 12
				}
				got := usedOf(n, start)
				beyond = beyond || got > 60
				if got < above || got > above && !beyond {
					t.Fatalf("%s, seed %d:%s: %d at the parent, want the %d above the limit of 10 and its margin of 2", scope, seed, said, got, above)
				}
			}
		}
	}
}

// Whoever reports most of the cost when the work is done borrows as much as who says it at
// the check, and no more is left to be lent.
func TestReportsAreBorrowed(t *testing.T) {
	n := newNode(t, Config{}, lender(100), borrower("child", limit.RateSpec{Limit: 10, Per: time.Hour}))
	checkCost(n, start, "u", 10)
	requests := 0
	for check(n, start, "u").Allowed {
		reported(n, "u", 9)
		requests++
	}
	if requests != 10 || usedOf(n, start) != 100 {
		t.Errorf("%d requests of 10 above the limit, %d charged to the parent; want 10, and its 100", requests, usedOf(n, start))
	}
	reported(n, "u", 50)
	if got := usedOf(n, start); got != 150 {
		t.Errorf("50 more reported: %d at the parent, want 150: work that is done counts, whatever room there is", got)
	}
}

// What is reported beyond what the pool has left is of no use to who reports it: where others
// hold all of the pool he has his own, and no more than the last report beyond it. Were that
// lent as well, each bit of his own that leaves the window would let one more request through.
func TestReportsBeyondThePoolMakeNoRoom(t *testing.T) {
	const own, window = 70, time.Minute
	rates := sliders(own)
	rates["token_bucket"] = limit.RateSpec{Algorithm: "token_bucket", Capacity: own, Refill: limit.Flow{Units: own, Per: window}}
	for name, rate := range rates {
		for _, cost := range []uint64{7, 50} { // 1 of it is checked, and the others are reported
			n := newNode(t, Config{}, lender(400), borrower("child", rate))
			through(n, start, "b", 1000)
			for i := range own { // they leave the window one by one
				check(n, start.Add(time.Duration(i)*800*time.Millisecond), "a")
			}
			units, minutes := uint64(0), uint64(10)
			for at := window; at < time.Duration(1+minutes)*window; at += 100 * time.Millisecond {
				if now := start.Add(at); check(n, now, "a").Allowed {
					units += cost
					req := requestOf(n, "a")
					req.Cost = cost - 1
					n.Report(now, req)
					req.Release()
				}
			}
			if most := minutes * (own + cost); units > most || units < minutes*own*8/10 {
				t.Errorf("%s: %d units in %d minutes of requests that report %d of %d, want about %d", name, units, minutes, cost-1, cost, minutes*own)
			}
		}
	}
}

// What is reported and the pool has no room for is his own as well who reports it: of a log, in
// whatever window, his requests find as much less room, and the pool is charged the same.
func TestReportsAreLentAsThePoolHasRoom(t *testing.T) {
	const own, pool = 10, 12
	window, poolWindow := 10*time.Second, 7*time.Second
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 14))
		child := borrower("child", limit.RateSpec{Algorithm: "sliding_log", Limit: own, Per: window, Scope: "edge"})
		n := newNode(t, Config{}, poolOf(limit.RateSpec{Algorithm: "fixed_window", Limit: pool, Per: poolWindow, Scope: "edge"}), child)
		hits, at := map[string][]lentHit{}, time.Duration(0)
		for step := range 400 {
			at += time.Duration(rnd.Int64N(int64(1200 * time.Millisecond)))
			now := start.Add(at)
			user, cost := string(rune('a'+rnd.IntN(3))), 1+rnd.Uint64N(3)
			used := within(hits[user], at, window, func(h lentHit) uint64 { return h.cost - h.borrowed })
			part, before := max(cost, own-min(own, used))-(own-min(own, used)), usedOf(n, now)
			if rnd.IntN(3) == 0 {
				req := requestOf(n, user)
				req.Cost = cost
				n.Report(now, req)
				req.Release()
			} else if want := part == 0 || before+part <= pool; checkCost(n, now, user, cost).Allowed != want {
				t.Fatalf("seed %d, step %d: %d of %s at %v: allowed %t, want %t: %d of his %d used, %d of the pool's %d", seed, step, cost, user, at, !want, want, used, own, before, pool)
			} else if !want {
				continue
			}
			if got := usedOf(n, now) - before; got != part {
				t.Fatalf("seed %d, step %d: %d of %s at %v: %d more at the pool, want %d: %d of his %d used", seed, step, cost, user, at, got, part, used, own)
			}
			hits[user] = append(hits[user], lentHit{at, cost, min(part, pool-min(pool, before))})
		}
	}
}

// What is reserved and given back is there for others: with the request, and at the parent.
func TestBorrowedReservesAreGivenBack(t *testing.T) {
	n := newNode(t, Config{}, lender(100), borrower("child", limit.RateSpec{Limit: 10, Per: time.Hour}))
	checkCost(n, start, "u", 10)
	for i := range uint64(50) {
		if !checkCost(n, start, "u", 10).Allowed || !givenBack(n, "u", 9) {
			t.Fatalf("request %d that needs 1 is denied, %d are charged to the parent", i+1, usedOf(n, start))
		}
	}
	if got := usedOf(n, start); got != 50 {
		t.Errorf("%d charged to the parent, want 1 for each of 50 requests", got)
	}
	checkCost(n, start, "v", 10)
	if givenBack(n, "v", 9); usedOf(n, start) != 50 {
		t.Errorf("%d charged to the parent after another user gave back what he had not borrowed, want 50", usedOf(n, start))
	}
}

// A request that its rule has room for in part borrows the rest: of requests that reserve
// more than they need nothing stays at the parent, whether they have receipts or not.
func TestPartOfACostIsBorrowed(t *testing.T) {
	for _, receipts := range []bool{false, true} {
		n := newNode(t, Config{}, lender(9), borrower("child", limit.RateSpec{Limit: 10, Per: time.Hour}))
		for i := range uint64(10) {
			d, charges := take(t, n, start, "u", 10)
			if !d.Allowed || usedOf(n, start) != i {
				t.Fatalf("10 asked with %d used: allowed %t, %d borrowed; want %d", i, d.Allowed, usedOf(n, start), i)
			}
			if receipts {
				n.Refund(start, charges, 9)
			} else {
				givenBack(n, "u", 9)
			}
		}
		if got := usedOf(n, start); got != 0 {
			t.Errorf("receipts %t: %d at the parent of a rule with 10 of 10 used, want none", receipts, got)
		}
		if d := checkCost(n, start, "u", 10); d.Allowed {
			t.Errorf("receipts %t: 10 are admitted that the parent has 9 for", receipts)
		}
	}
}

// A slot that was borrowed is released at the parent, too, which keeps what is counted of
// tokens.
func TestBorrowedSlotsAreReleased(t *testing.T) {
	slots := func(most uint64) limit.RateSpec {
		return limit.RateSpec{Algorithm: "concurrency", Limit: most, Lease: time.Hour}
	}
	parent := lender(1000)
	parent.Rates = append(parent.Rates, slots(3))
	n := newNode(t, Config{}, parent, borrower("child", slots(1)))
	check(n, start, "u")
	for i := range 10 {
		if !check(n, start, "u").Allowed || !givenBack(n, "u", 1) {
			t.Fatalf("request %d is denied though each before it was released, %d slots of the parent are taken", i+1, usedOf(n, start))
		}
	}
	if got := usedOf(n, start); got != 0 {
		t.Errorf("%d slots of the parent are taken by nobody", got)
	}
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	if got := n.Inspect(start, req)[0].Total; got != 10 {
		t.Errorf("%d requests counted by the parent, want the 10 that borrowed", got)
	}
}

// A trial charges its parent with no reports, nor gives it back what others borrowed; and a
// rule of slots alone, of which a report is none, has the parent charged with nothing.
func TestReportsOfWhoBorrowsNothing(t *testing.T) {
	trial := borrower("trial", limit.RateSpec{Limit: 10, Per: time.Hour})
	trial.Mode = "shadow"
	live := borrower("live", limit.RateSpec{Limit: 20, Per: time.Hour})
	n := newNode(t, Config{}, lender(100), trial, live)
	reported(n, "u", 30)
	if got := usedOf(n, start); got != 10 {
		t.Errorf("%d at the parent, want the 10 above the limit that is in force", got)
	}
	if givenBack(n, "u", 12); usedOf(n, start) != 0 {
		t.Errorf("%d at the parent after 12 of 30 were given back, want none", usedOf(n, start))
	}

	n = newNode(t, Config{}, lender(100), borrower("child", limit.RateSpec{Algorithm: "concurrency", Limit: 1, Lease: time.Hour}))
	check(n, start, "u")
	if reported(n, "u", 30); usedOf(n, start) != 0 {
		t.Errorf("%d at the parent of a rule of slots, want none", usedOf(n, start))
	}
}

// A parent that applies by itself is charged, and given back, once.
func TestParentThatAppliesIsReportedOnce(t *testing.T) {
	parent := limit.RuleSpec{Name: "parent", Group: "a", Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}}
	n := newNode(t, Config{}, parent, borrower("child", limit.RateSpec{Limit: 10, Per: time.Hour}))
	if reported(n, "u", 30); usedOf(n, start) != 30 {
		t.Errorf("30 reported: %d at the parent", usedOf(n, start))
	}
	if givenBack(n, "u", 25); usedOf(n, start) != 5 {
		t.Errorf("25 of 30 given back: %d at the parent, want 5", usedOf(n, start))
	}
}

// Whoever is kept out by a penalty, and reports less than his limit has room for, borrows
// nothing.
func TestReportsUnderAPenaltyBorrowWhatIsAboveTheLimit(t *testing.T) {
	child := borrower("child", limit.RateSpec{Limit: 10, Per: time.Hour})
	child.Penalty.For = time.Hour
	n := newNode(t, Config{}, lender(100), child)
	if checkCost(n, start, "u", 200).Allowed {
		t.Fatal("200 were admitted of 110")
	}
	if reported(n, "u", 4); usedOf(n, start) != 0 {
		t.Errorf("4 of 10 reported: %d at the parent, want none", usedOf(n, start))
	}
	if reported(n, "u", 9); usedOf(n, start) != 3 {
		t.Errorf("13 of 10 reported: %d at the parent, want 3", usedOf(n, start))
	}
}
