package edge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// slotsFromPool are two rules: a pool of slots that applies to nobody here, and slots of
// each user that borrows from it.
func slotsFromPool(pool, own uint64) (lends, borrows limit.RuleSpec) {
	lends = limit.RuleSpec{Name: "parent", Group: "a", Match: limit.MatchSpec{Lacks: []string{"user"}}, Rates: []limit.RateSpec{inFlight(pool, time.Minute)}}
	return lends, borrower("child", inFlight(own, time.Minute))
}

// Whoever leaves makes room of the rule's own for those who borrowed, so that the parent gets
// back a slot, be it not the one who borrowed it, and once.
func TestBorrowedSlotsLeaveWithAnybody(t *testing.T) {
	for name, leave := range map[string][]int{"own first": {0, 1, 2, 3}, "borrowed first": {2, 3, 0, 1}, "by turns": {0, 2, 1, 3}, "last first": {3, 2, 1, 0}} {
		n := newNode(t, Config{}, slotsOfBoth(slotsFromPool(2, 2))...)
		var held [][]limit.Charge
		for range 4 {
			_, c := take(t, n, start, "a", 1)
			held = append(held, c)
		}
		if used := usedOf(n, start); used != 2 {
			t.Fatalf("%d of the pool's slots are held, want the 2 that are lent", used)
		}
		for i, k := range leave {
			n.Refund(start, held[k], 0)
			if got, want := usedOf(n, start), uint64(max(0, 1-i)); got != want {
				t.Errorf("%s: %d have left, and %d slots of the pool are held, want %d", name, i+1, got, want)
			}
		}
		if got := through(n, start, "a", 9); got != 4 {
			t.Errorf("%s: all have left, and %d are admitted, want 4", name, got)
		}
	}
}

func slotsOfBoth(a, b limit.RuleSpec) []limit.RuleSpec { return []limit.RuleSpec{a, b} }

// Of a pool as much is lent at all times as its borrowers are above their own limits,
// whoever comes, leaves, or stays and renews.
func TestPoolsHoldWhatIsOwed(t *testing.T) {
	alone.Mark(t)
	kinds := map[string]func() []limit.RuleSpec{
		"slots": func() []limit.RuleSpec { return slotsOfBoth(slotsFromPool(5, 3)) },
		"costs": func() []limit.RuleSpec {
			return slotsOfBoth(lender(20), borrower("child", limit.RateSpec{Limit: 10, Per: time.Hour}))
		},
		"two rates": func() []limit.RuleSpec {
			return slotsOfBoth(lender(20), borrower("child", limit.RateSpec{Limit: 10, Per: time.Hour}, limit.RateSpec{Name: "b", Limit: 7, Per: 2 * time.Hour}))
		},
	}
	for name, rules := range kinds {
		for seed := range uint64(30) {
			rnd, now := rand.New(rand.NewPCG(seed, 5)), start
			n := newNode(t, Config{}, rules()...)
			own := uint64(10)
			switch name {
			case "slots":
				own = 3
			case "two rates":
				own = 7
			}
			held, used, lent := map[string][][]limit.Charge{}, map[string]uint64{}, 0
			for step := range 400 {
				now = now.Add(time.Duration(rnd.IntN(1000)) * time.Millisecond)
				user := []string{"a", "b", "c"}[rnd.IntN(3)]
				if all := held[user]; len(all) > 0 && rnd.IntN(2) == 0 {
					i := rnd.IntN(len(all))
					cost := uint64(0)
					if c := all[i][0].Cost; name != "slots" && c > 1 && rnd.IntN(3) == 0 {
						cost = 1 + rnd.Uint64N(c-1)
						used[user] -= cost
					} else {
						used[user] -= c
					}
					if n.Refund(now, all[i], cost); cost == 0 {
						held[user] = append(all[:i:i], all[i+1:]...)
					}
				} else if d, c := take(t, n, now, user, 1+rnd.Uint64N(4)); d.Allowed {
					held[user] = append(held[user], c)
					used[user] += c[0].Cost
				}
				for _, all := range held {
					for _, c := range all {
						n.Renew(now, c)
					}
				}
				owed := uint64(0)
				for _, u := range used {
					owed += u - min(u, own)
				}
				if lent += int(owed); usedOf(n, now) != owed {
					t.Fatalf("%s, seed %d, step %d: %d are lent, want the %d that users are above their limits: %v", name, seed, step, usedOf(n, now), owed, used)
				}
			}
			if lent < 100 {
				t.Errorf("%s, seed %d: too little was lent", name, seed)
			}
		}
	}
}

// Where some have no receipts, and are given back in nobody's name, no less is lent: what that gave
// back of the pool receipts give back no more. What nobody noted may stay lent though others leave.
func TestPoolsHoldWhatIsOwedInNobodysName(t *testing.T) {
	alone.Mark(t)
	const own, pool = 10, 40
	kinds := sliders(own)
	kinds["slots"] = inFlight(own, time.Minute)
	kinds["fixed_window"] = limit.RateSpec{Algorithm: "fixed_window", Limit: own, Per: time.Hour}
	for name, rate := range kinds {
		most := rate
		most.Limit = pool
		beyond, all := uint64(0), uint64(0)
		for seed := range uint64(30) {
			rnd := rand.New(rand.NewPCG(seed, 6))
			n := newNode(t, Config{}, poolOf(most), borrower("child", rate))
			held, nobodys := map[string][][]limit.Charge{}, map[string]uint64{}
			for step := range 200 {
				user := []string{"a", "b"}[rnd.IntN(2)]
				req := requestOf(n, user)
				switch rnd.IntN(5) {
				case 0, 1:
					req.Receipt = true
					if n.Check(start, req).Allowed {
						held[user] = append(held[user], slices.Clone(req.Charges))
					}
				case 2:
					if n.Check(start, req).Allowed {
						nobodys[user]++
					}
				case 3:
					if nobodys[user] > 0 {
						nobodys[user]--
						n.GiveBack(start, req)
					}
				default:
					if all := held[user]; len(all) > 0 {
						i := rnd.IntN(len(all))
						n.Refund(start, all[i], 0)
						held[user] = append(all[:i:i], all[i+1:]...)
					}
				}
				req.Release()
				owed := uint64(0)
				for _, u := range []string{"a", "b"} {
					owed += max(own, uint64(len(held[u]))+nobodys[u]) - own
				}
				got := usedOf(n, start)
				if got < owed {
					t.Fatalf("%s, seed %d, step %d: %d are lent, want the %d that users are above their limits", name, seed, step, got, owed)
				}
				beyond += got - owed
				all += owed
			}
		}
		if beyond > all/5 {
			t.Errorf("%s: %d are lent beyond the %d that users are above their limits", name, beyond, all)
		}
	}
}

// So it is where many come and leave at once.
func TestPoolsHoldWhatIsOwedAtOnce(t *testing.T) {
	const own, pool, goroutines, steps = 5, 20, 8, 3000
	kinds := sliders(own)
	kinds["slots"] = inFlight(own, time.Minute)
	kinds["token_bucket"] = tokens(own, limit.Flow{Units: 1, Per: 10 * time.Hour})
	for name, rate := range kinds {
		most := rate
		if most.Limit = pool; name == "token_bucket" {
			most = tokens(pool, limit.Flow{Units: 1, Per: 10 * time.Hour})
		}
		n := newNode(t, Config{}, poolOf(most), borrower("child", rate))
		var used [3]atomic.Int64
		var all sync.WaitGroup
		for g := range goroutines {
			all.Go(func() { // the test waits for it
				rnd := rand.New(rand.NewPCG(uint64(g), 7))
				var held [][]limit.Charge
				var whose []int
				for range steps {
					if len(held) > 3 || len(held) > 2 && rnd.IntN(2) == 0 {
						i := rnd.IntN(len(held))
						n.Refund(start, held[i], 0)
						used[whose[i]].Add(-1)
						held, whose = slices.Delete(held, i, i+1), slices.Delete(whose, i, i+1)
						continue
					}
					user := rnd.IntN(len(used))
					if d, c := take(t, n, start, string(rune('a'+user)), 1); d.Allowed {
						used[user].Add(1)
						held, whose = append(held, c), append(whose, user)
					}
				}
			})
		}
		all.Wait()
		owed := func() (sum uint64) {
			for i := range used {
				sum += uint64(max(0, used[i].Load()-own))
			}
			return sum
		}
		if got := usedOf(n, start); got != owed() {
			t.Errorf("%s: %d are lent, want the %d that users are above their limits", name, got, owed())
		}
		for i := range used {
			used[i].Add(int64(through(n, start, string(rune('a'+i)), 2*pool)))
		}
		if got := owed(); got != pool {
			t.Errorf("%s: %d are borrowed in all, of a pool of %d", name, got, pool)
		}
	}
}

// Beyond what there is room for each receipt gives back its own alone, and nothing is lost;
// nor where borrowers come and leave at once.
func TestLoansAreBounded(t *testing.T) {
	const users = 3 * mostBorrowers * 64
	n := newNode(t, Config{}, slotsOfBoth(slotsFromPool(1<<30, 1))...)
	var held [][]limit.Charge
	for range 3 {
		for u := range users {
			_, c := take(t, n, start, fmt.Sprint(u), 1)
			held = append(held, c)
		}
	}
	noted := 0
	for i := range n.loans.parts {
		noted += len(n.loans.parts[i].by)
	}
	if got := n.loans.unnoted.Load(); noted > mostBorrowers*64 || noted == 0 || got != uint64(2*(users-noted)) {
		t.Errorf("%d of %d borrowers are noted, and %d loans are not", noted, users, got)
	}
	var leave sync.WaitGroup
	for k := range 4 { // they are gone when Wait returns
		leave.Go(func() {
			for i := k; i < len(held); i += 4 {
				n.Renew(start, held[i])
				n.Refund(start, held[i], 0)
			}
		})
	}
	leave.Wait()
	if used := usedOf(n, start); used != 0 {
		t.Errorf("all have left, and %d of the pool are used", used)
	}
	for i := range n.loans.parts {
		if len(n.loans.parts[i].by) > 0 {
			t.Fatal("all have left, and loans are noted yet")
		}
	}
}

// What there was no room to note is given back once, by its receipts, though others' loans are noted.
func TestUnnotedLoansAreGivenBackOnce(t *testing.T) {
	const users, leave = 4000, 2500
	n := newNode(t, Config{}, slotsOfBoth(slotsFromPool(1<<30, 1))...)
	held := make([][][]limit.Charge, users)
	for u := range users {
		for range 3 {
			_, c := take(t, n, start, fmt.Sprint(u), 1)
			held[u] = append(held[u], c)
		}
	}
	if n.loans.unnoted.Load() == 0 {
		t.Fatal("all loans are noted")
	}
	for u := range leave {
		for _, c := range held[u] {
			n.Refund(start, c, 0)
		}
	}
	if used := usedOf(n, start); used != 2*(users-leave) {
		t.Errorf("%d of the pool are used, want %d", used, 2*(users-leave))
	}
	for u := leave; u < users; u++ { // who stay take two more, which are noted, and give back two before
		for range 2 {
			take(t, n, start, fmt.Sprint(u), 1)
		}
		for _, c := range held[u][1:] {
			n.Refund(start, c, 0)
		}
	}
	if used := usedOf(n, start); used != 2*(users-leave) {
		t.Errorf("%d of the pool are used in the end, want %d", used, 2*(users-leave))
	}
}

// A pool whose window begins with a hit is one window for as long as that lasts, whatever is
// charged as it begins, and whoever turns out to have begun it earlier: what it lends in that is
// noted together.
func TestLoansOfOneWindowAreOne(t *testing.T) {
	for _, gap := range []time.Duration{0, time.Millisecond} {
		for _, earlier := range []bool{false, true} {
			n := newNode(t, Config{}, poolOf(limit.RateSpec{Algorithm: "fixed_window", Limit: 10, Per: time.Hour, Align: "first_hit"}), borrower("child", limit.RateSpec{Limit: 5, Per: 24 * time.Hour}))
			now := start.Add(40 * time.Minute)
			_, own := take(t, n, now, "u", 5)
			_, lent := take(t, n, now, "u", 6)
			now = now.Add(gap)
			n.Refund(now, own, 0)
			now = now.Add(gap)
			others := 0
			if earlier {
				c := lent[slices.IndexFunc(lent, func(c limit.Charge) bool { return c.Borrower != 0 })]
				push := pushOf(t, c.Rate, deltasync.Key(c.Counter), time.Unix(0, c.Rate.StartOf(c.Slice)-1), 1, 0)
				if err := n.ReceiveHot(now, push); err != nil {
					t.Fatal(err)
				}
				others = 1
			}
			_, again := take(t, n, now, "u", 5)
			n.Refund(now, lent, 0)
			admitted := others + fills(n, now)
			now = now.Add(gap)
			n.Refund(now, again, 0)
			if admitted += fills(n, now); admitted != 10 {
				t.Errorf("after %v, an earlier hit heard of %v: a pool of 10 admits %d", gap, earlier, admitted)
			}
		}
	}
}

// In whatever order requests come and leave within some milliseconds, a pool whose window begins
// with a hit counts no less than is lent; and no more, but in few lives in which that begins anew.
func TestPoolsOfFirstHitsHoldWhatIsOwed(t *testing.T) {
	alone.Mark(t)
	const lives, own = 1000, 3
	more := 0
	for seed := range uint64(lives) {
		rng := rand.New(rand.NewPCG(seed, 5))
		n := newNode(t, Config{}, poolOf(limit.RateSpec{Algorithm: "fixed_window", Limit: 10, Per: time.Hour, Align: "first_hit"}), borrower("child", limit.RateSpec{Limit: own, Per: 24 * time.Hour}))
		now := start.Add(10 * time.Minute)
		var all [][]limit.Charge
		used, admitted, kept := uint64(0), uint64(0), false
		for range 40 {
			now = now.Add(time.Duration(rng.IntN(3)) * time.Millisecond)
			switch {
			case rng.IntN(2) == 0 && len(all) > 0:
				i := rng.IntN(len(all))
				used -= all[i][0].Cost
				n.Refund(now, all[i], 0)
				all = slices.Delete(all, i, i+1)
			case rng.IntN(6) == 0:
				if askPool(n, now).Allowed {
					admitted++
				}
			default:
				if d, charges := take(t, n, now, "u", 1+rng.Uint64N(4)); d.Allowed {
					all = append(all, charges)
					used += charges[0].Cost
				}
			}
			want := admitted + max(used, own) - own
			if got := usedOf(n, now); got < want || want > 10 {
				t.Fatalf("seed %d: a pool of 10 counts %d, and has admitted, or lends, %d", seed, got, want)
			} else if got > want {
				kept = true
			}
		}
		if kept {
			more++
		}
	}
	if more > 5 { // 2 were seen
		t.Errorf("in %d of %d lives some stays lent that nobody owes", more, lives)
	}
}

// Slots are renewed while others of the same borrower are released: what was borrowed goes back once
// nobody needs it, whichever comes first.
func TestRenewBesideRelease(t *testing.T) {
	lends, borrows := slotsFromPool(1000, 2)
	n := newNode(t, Config{}, lends, borrows)
	for turn := range 3000 {
		var held [][]limit.Charge
		for range 4 {
			_, c := take(t, n, start, fmt.Sprint("u", turn%8), 1)
			held = append(held, c)
		}
		var all sync.WaitGroup
		all.Go(func() {
			for range 3 {
				n.Renew(start, held[2])
				n.Renew(start, held[3])
			}
		})
		all.Go(func() {
			n.Refund(start, held[0], 0)
			n.Refund(start, held[1], 0)
		})
		all.Wait()
		if lent := usedOf(n, start); lent != 0 {
			t.Fatalf("turn %d: two are left, which is the rule's own, and %d are lent", turn, lent)
		}
		n.Refund(start, held[2], 0)
		n.Refund(start, held[3], 0)
	}
}
