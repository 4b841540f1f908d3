package edge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// lentKinds are rates of all kinds that borrow and lend.
func lentKinds(most uint64, per time.Duration) map[string]limit.RateSpec {
	kinds := sliders(most)
	for name, rate := range kinds {
		rate.Per = per
		kinds[name] = rate
	}
	kinds["slots"] = inFlight(most, per)
	kinds["fixed"] = limit.RateSpec{Algorithm: "fixed_window", Limit: most, Per: per}
	kinds["first hit"] = limit.RateSpec{Algorithm: "fixed_window", Limit: most, Per: per, Align: "first_hit"}
	kinds["bucket"] = limit.RateSpec{Algorithm: "token_bucket", Capacity: most, Refill: limit.Flow{Units: most, Per: per}}
	return kinds
}

// askPool asks for one of a pool's own.
func askPool(n *Node, now time.Time) limit.Decision {
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	return n.Check(now, req)
}

// fills has a pool admit all that it has room for by itself.
func fills(n *Node, now time.Time) (admitted int) {
	for range 50 {
		if askPool(n, now).Allowed {
			admitted++
		}
	}
	return admitted
}

// What was admitted under a larger limit was lent by nobody, and gives nothing back to a parent.
func TestNothingIsGivenBackThatNobodyLent(t *testing.T) {
	kinds := lentKinds(20, time.Hour)
	delete(kinds, "bucket") // with its capacity changes how fast it drains
	kinds["day"] = limit.RateSpec{Algorithm: "fixed_window", Limit: 20, Per: 24 * time.Hour, Align: "Europe/Berlin"}
	for name, rate := range kinds {
		less := rate
		less.Limit = 4
		n := newNode(t, Config{}, poolOf(rate), borrower("child", rate))
		if got := through(n, start, "a", 10); got != 10 {
			t.Fatal(got)
		}
		if got := fills(n, start); got != 20 {
			t.Fatal(got)
		}
		n.SetRules(compile(t, poolOf(rate), borrower("child", less)))
		for range 10 {
			giveBackOne(n, start, "a")
		}
		if got := fills(n, start); got > 0 {
			t.Errorf("%s: a pool that is used up admits %d more", name, got)
		}
	}
}

func giveBackOne(n *Node, now time.Time, user string) {
	req := requestOf(n, user)
	n.GiveBack(now, req)
	req.Release()
}

// What a parent lent longer ago than its window lasts it has back already: it gets nothing of
// others for it, of whatever kind the two are.
func TestLoansThatLeftTheParentAreNotGivenBack(t *testing.T) {
	for childs, child := range lentKinds(10, time.Hour) {
		for pools, pool := range lentKinds(10, time.Minute) {
			name := fmt.Sprintf("%s of a %s pool", childs, pools)
			n := newNode(t, Config{}, poolOf(pool), borrower("child", child))
			if got := through(n, start, "a", 16); got != 16 {
				t.Fatalf("%s: %d admitted, want 10 and 6 that are borrowed", name, got)
			}
			later := start.Add(5 * time.Minute)
			if got := fills(n, later); got != 10 {
				t.Errorf("%s: %d of 10 admitted when the loans have left", name, got)
			}
			for range 6 {
				giveBackOne(n, later, "a")
			}
			if got := fills(n, later); got > 0 {
				t.Errorf("%s: a pool that is used up admits %d more", name, got)
			}
		}
	}
}

// Where classes have limits of their own, all that they borrowed is given back when all is,
// whoever leaves first.
func TestClassesLeaveNothingLent(t *testing.T) {
	kinds := lentKinds(10, time.Hour)
	delete(kinds, "bucket") // it drains meanwhile
	for name, rate := range kinds {
		child := borrower("child", rate)
		child.Classes = limit.ClassesSpec{From: "class", Order: []string{"low", "high"}, Reserve: map[string]float64{"high": 50}}
		pool := rate
		if pool.Align = ""; name == "first hit" { // what came in the slice in which it began may be of the window before
			pool.Algorithm = "sliding_log"
		}
		n := newNode(t, Config{}, poolOf(pool), child)
		ask := func(class string, ask func(*limit.Request)) {
			req := requestOf(n, "a")
			defer req.Release()
			req.Set("class", class)
			ask(req)
		}
		rng, lent := rand.New(rand.NewPCG(1, 2)), 0
		for life := range 40 {
			var inside []string
			now := start.Add(time.Duration(life) * 3 * time.Hour)
			for range 16 {
				now = now.Add(time.Minute)
				class := []string{"low", "high"}[rng.IntN(2)]
				ask(class, func(req *limit.Request) {
					if n.Check(now, req).Allowed {
						inside = append(inside, class)
					}
				})
			}
			pool := fills(n, now)
			lent += 10 - pool
			for _, i := range rng.Perm(len(inside)) {
				ask(inside[i], func(req *limit.Request) { n.GiveBack(now, req) })
			}
			if again := fills(n, now); pool+again != 10 {
				t.Errorf("%s: all was given back, and the pool of 10 admits %d and %d", name, pool, again)
			}
		}
		if lent == 0 {
			t.Errorf("%s: nothing was lent", name)
		}
	}
}

// Two rates of a borrower do not agree on which of its loans came back. The pool gets each back once.
func TestTwoRatesGiveALoanBackOnce(t *testing.T) {
	for name, pool := range lentKinds(10, time.Minute) {
		child := borrower("child", limit.RateSpec{Name: "a", Limit: 10, Per: time.Minute}, limit.RateSpec{Name: "b", Limit: 20, Per: time.Hour})
		n := newNode(t, Config{}, poolOf(pool), child)
		for _, after := range []time.Duration{0, 2 * time.Minute, 4 * time.Minute, 20 * time.Minute} { // the last two times borrowed
			if got := through(n, start.Add(after), "a", 10); got != 10 {
				t.Fatalf("%s: %d of 10 admitted after %v", name, got, after)
			}
		}
		now, own := start.Add(20*time.Minute), 0
		for range 2 {
			for range 10 {
				giveBackOne(n, now, "a")
			}
			own += fills(n, now)
		}
		if own > 10 {
			t.Errorf("a pool of 10 a minute, %s, admits %d of its own at one instant", name, own)
		}
	}
}

// At one instant a pool admits no more of its own than its limit, whenever what it lent is given
// back: the moment that the loan leaves it, or as it drains.
func TestPoolsHoldTheirOwnWhenLoansReturn(t *testing.T) {
	alone.Mark(t)
	for childs, child := range lentKinds(10, time.Hour) {
		for pools, pool := range lentKinds(10, 5*time.Minute) {
			for _, lent := range []time.Duration{0, 40 * time.Second} {
				for after := time.Duration(0); after < 8*time.Minute; after += 10 * time.Second {
					n := newNode(t, Config{}, poolOf(pool), borrower("child", child))
					if got := through(n, start.Add(lent), "a", 20); got != 20 {
						t.Fatalf("%s of a %s pool: %d admitted, want 20", childs, pools, got)
					}
					now := start.Add(lent + after)
					own := fills(n, now)
					for range 10 {
						giveBackOne(n, now, "a")
					}
					if own += fills(n, now); own > 10 {
						t.Errorf("%s of a %s pool: %d of its own 10 at one instant, %v after it lent", childs, pools, own, after)
					}
				}
			}
		}
	}
}

// Where nobody knows what was lent, of whom, nothing is given back without a receipt: of queues,
// of parents that count by another key, and of a parent that rules name in place of another.
func TestNothingIsGivenBackToOneWhoMayNotHaveLent(t *testing.T) {
	queue := limit.RateSpec{Name: "q", Algorithm: "leaky_bucket", Capacity: 10, Outflow: limit.Flow{Units: 10, Per: time.Hour}, Queue: true, Scope: "edge"}
	for name, rate := range lentKinds(10, time.Hour) {
		ask := func(n *Node, count int, set ...string) (admitted int) {
			for range count {
				req := n.Rules().Only().NewRequest()
				for i := 0; i < len(set); i += 2 {
					req.Set(set[i], set[i+1])
				}
				if n.Check(start, req).Allowed {
					admitted++
				}
				req.Release()
			}
			return admitted
		}
		pool, child := poolOf(rate), borrower("child", rate)
		back := func(n *Node, what string, org string) {
			for range 10 {
				req := requestOf(n, "u")
				req.Set("org", org)
				n.GiveBack(start, req)
				req.Release()
			}
			if got := ask(n, 20, "org", org); got > 0 {
				t.Errorf("%s, %s: a pool that lent nothing, and is used up, admits %d more", what, name, got)
			}
		}

		byOrg := pool
		byOrg.Key = []string{"org"}
		n := newNode(t, Config{}, byOrg, child)
		if own, lent, others := ask(n, 10, "user", "u", "org", "b"), ask(n, 10, "user", "u", "org", "a"), ask(n, 20, "org", "b"); own != 10 || lent != 10 || others != 10 {
			t.Fatal(name, own, lent, others)
		}
		back(n, "another key", "b")

		other := pool
		other.Name, other.Group, other.Match.Has = "other", "b", []string{"org"}
		pool.Match.Lacks = append([]string{"org"}, pool.Match.Lacks...)
		n = newNode(t, Config{}, pool, other, child)
		if got := through(n, start, "u", 20); got != 20 {
			t.Fatal(name, got)
		}
		child.Margin.Elastic.Parent = "other"
		if err := n.SetRules(compile(t, pool, other, child)); err != nil {
			t.Fatal(err)
		}
		if got := ask(n, 20, "org", "b"); got != 10 {
			t.Fatal(name, got)
		}
		back(n, "another parent", "b")

		if rate.Algorithm == "concurrency" { // is released beside no other
			continue
		}
		minute := lentKinds(10, time.Minute)[name]
		n = newNode(t, Config{}, poolOf(minute), borrower("child", queue))
		got := 0
		for i := range 16 {
			if check(n, start.Add(time.Duration(i)*time.Second), "u").Allowed {
				got++
			}
		}
		later := start.Add(10 * time.Minute)
		if got != 16 || fills(n, later) != 10 {
			t.Fatal(name, got)
		}
		for range 16 {
			giveBackOne(n, later, "u")
		}
		if got := fills(n, later); got > 0 {
			t.Errorf("a queue, %s: a pool that has its loans back admits %d more", name, got)
		}
	}
}

// Where receipts alone give loans back, as requests of the borrower have turns or it has slots beside
// what else it counts, leaving without one gives nothing back: the receipts would do it once more.
func TestReceiptsAloneGiveBackWhatDoesNotSwap(t *testing.T) {
	bucket := limit.RateSpec{Name: "b", Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 10, Per: time.Hour}, Scope: "edge"}
	delayed := borrower("child", bucket)
	delayed.MaxDelay = time.Second
	for what, child := range map[string]limit.RuleSpec{
		"turns": delayed,
		"slots": borrower("child", limit.RateSpec{Name: "w", Limit: 100, Per: time.Hour}, inFlight(10, time.Hour)),
	} {
		for name, pool := range lentKinds(20, time.Hour) {
			n := newNode(t, Config{}, poolOf(pool), child)
			nobodys := through(n, start, "u", 10)
			var receipts [][]limit.Charge
			for range 10 {
				if d, charges := take(t, n, start, "u", 1); d.Allowed {
					receipts = append(receipts, charges)
				}
			}
			if nobodys != 10 || len(receipts) != 10 {
				t.Fatalf("%s, %s: %d and %d admitted, want 10 and 10", what, name, nobodys, len(receipts))
			}
			own := fills(n, start)
			for range nobodys {
				giveBackOne(n, start, "u")
			}
			for _, charges := range receipts {
				n.Refund(start, charges, 0)
			}
			if own += fills(n, start); own != 20 {
				t.Errorf("%s, %s: a pool admits %d of its own once all have left, want its 20", what, name, own)
			}
		}
	}
}

// A pool whose window begins with a hit, and whose loans all come back, begins a new one within the slice:
// what it lends then comes back, too, by whatever receipts.
func TestLoansOfAWindowThatBeganAnewComeBack(t *testing.T) {
	pool := poolOf(limit.RateSpec{Algorithm: "fixed_window", Limit: 5, Per: time.Hour, Align: "first_hit"})
	n := newNode(t, Config{}, pool, borrower("child", limit.RateSpec{Limit: 2, Per: time.Hour}))
	now := start.Add(10 * time.Minute)
	in := func(count int) (receipts [][]limit.Charge) {
		for range count {
			d, charges := take(t, n, now, "u", 1)
			if !d.Allowed {
				t.Fatalf("%+v", d)
			}
			receipts = append(receipts, charges)
		}
		return receipts
	}
	first := in(3)
	n.Refund(now, first[0], 0) // of what the third borrowed
	now = now.Add(5 * time.Second)
	for _, charges := range slices.Concat(in(3), first[1:]) {
		n.Refund(now, charges, 0)
	}
	if left, got := usedOf(n, now), fills(n, now); left > 0 || got != 5 {
		t.Errorf("once all have left the pool counts %d, and admits %d of its own, want 0 and 5", left, got)
	}
}

// Nor is anything given back of the new window for what was lent in the one before, in the same slice.
func TestLoansOfAWindowThatIsOverAreNotGivenBack(t *testing.T) {
	const most = 10
	pool := poolOf(limit.RateSpec{Algorithm: "fixed_window", Limit: most, Per: time.Minute, Align: "first_hit"})
	for off := time.Duration(0); off < 3*time.Second; off += 130 * time.Millisecond { // over some slices
		n := newNode(t, Config{}, pool, borrower("child", limit.RateSpec{Limit: 1, Per: time.Hour}))
		began := start.Add(10*time.Minute + off)
		if d := askPool(n, began); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		in := func(at time.Time, count int) (receipts [][]limit.Charge) {
			for range count {
				if d, charges := take(t, n, at, "u", 1); d.Allowed {
					receipts = append(receipts, charges)
				}
			}
			return receipts
		}
		before := in(began.Add(time.Minute-10*time.Millisecond), 5)
		now := began.Add(time.Minute + 10*time.Millisecond)
		since := in(now, 4)
		for _, charges := range before[1:] {
			n.Refund(now, charges, 0)
		}
		if got := fills(n, now); len(since) != 4 || len(since)+got > most {
			t.Errorf("%v: %d lent, 4 of the window before given back, and the pool of %d admits %d of its own", off, len(since), most, got)
		}
	}
}

// Of requests some have receipts, and some have none: what a pool admits of its own is with what its
// borrowers are above their limits no more than it has, in whatever order all come and leave.
func TestPoolsHoldWhatIsOwedToWhoeverLeaves(t *testing.T) {
	alone.Mark(t)
	const lives = 1500
	kinds := func(most uint64) map[string]limit.RateSpec {
		kinds := lentKinds(most, time.Hour)
		delete(kinds, "bucket")    // it drains meanwhile
		delete(kinds, "first hit") // is as the others, and begins its own windows
		return kinds
	}
	for seed := range uint64(lives) {
		rng := rand.New(rand.NewPCG(seed, 5))
		most, own := 1+rng.Uint64N(4), 1+rng.Uint64N(3)
		for name := range kinds(1) {
			n := newNode(t, Config{}, poolOf(kinds(most)[name]), borrower("child", kinds(own)[name]))
			now := start.Add(10 * time.Minute)
			type inside struct {
				user    string
				charges []limit.Charge
			}
			var all []inside
			admitted, net := uint64(0), map[string]uint64{}
			lent := func() (sum uint64) {
				for _, count := range net {
					sum += max(count, own) - own
				}
				return sum
			}
			for range 40 {
				if rng.IntN(4) == 0 {
					now = now.Add(time.Duration(rng.IntN(20)) * time.Second)
				}
				before := lent()
				switch kind := rng.IntN(5); {
				case kind == 0:
					req := n.Rules().Only().NewRequest()
					if n.Check(now, req).Allowed {
						if admitted++; admitted+lent() > most {
							t.Fatalf("%s, seed %d: the pool of %d has %d of its own, and lends %d", name, seed, most, admitted, lent())
						}
					}
					req.Release()
				case kind < 3:
					req := requestOf(n, string("uuv"[rng.IntN(3)]))
					user := req.Get("user")
					if req.Receipt = kind == 2; n.Check(now, req).Allowed {
						net[user]++
						all = append(all, inside{user, slices.Clone(req.Charges)})
						if lent() > before && admitted+lent() > most {
							t.Fatalf("%s, seed %d: the pool of %d has %d of its own, and lends %d", name, seed, most, admitted, lent())
						}
					}
					req.Release()
				case len(all) > 0:
					i := rng.IntN(len(all))
					if one := all[i]; len(one.charges) > 0 {
						n.Refund(now, one.charges, 0)
					} else {
						giveBackOne(n, now, one.user)
					}
					net[all[i].user]--
					all = slices.Delete(all, i, i+1)
				}
			}
		}
	}
}
