package edge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// sliders are a rate of so many in a minute by each algorithm whose window slides.
func sliders(most uint64) map[string]limit.RateSpec {
	return map[string]limit.RateSpec{
		"sliding_log":    {Algorithm: "sliding_log", Limit: most, Per: time.Minute},
		"sliding_window": {Algorithm: "sliding_window", Limit: most, Per: time.Minute},
		"sub_windows":    {Limit: most, Per: time.Minute},
		"oldest in full": {Limit: most, Per: time.Minute, Oldest: "full"},
	}
}

// poolOf lends to requests that have a user, by a rate.
func poolOf(rate limit.RateSpec) limit.RuleSpec {
	pool := lender(0)
	pool.Rates[0] = rate
	return pool
}

// Who borrowed is charged for what is above his limit, and once: in the minutes after that
// he may go on with all of his own, as what was borrowed leaves the window last.
func TestBorrowersKeepTheirOwn(t *testing.T) {
	for name, own := range sliders(50) {
		n := newNode(t, Config{}, poolOf(limit.RateSpec{Algorithm: "sliding_log", Limit: 60, Per: time.Minute}), borrower("child", own))
		perMinute := make([]int, 6)
		for i := range 6 * 240 { // four a second
			if now := start.Add(time.Duration(i) * 250 * time.Millisecond); check(n, now, "a").Allowed {
				perMinute[i/240]++
			}
		}
		for m, got := range perMinute[1:] {
			if got < 105 || got > 112 { // by slices a few more or less
				t.Errorf("%s: %v admitted in each minute, want about 110 in minute %d: 50 and the 60 of the pool", name, perMinute, m+2)
				break
			}
		}
		if perMinute[0] != 110 {
			t.Errorf("%s: %d admitted in the first minute, want 110", name, perMinute[0])
		}
	}
}

// Who asks for his own alone has next to nothing of the pool.
func TestWhoStaysAtTheLimitBorrowsNothing(t *testing.T) {
	for name, own := range sliders(50) {
		n := newNode(t, Config{}, lender(1000), borrower("child", own))
		for i := range 300 {
			if now := start.Add(time.Duration(i) * 1200 * time.Millisecond); !check(n, now, "a").Allowed {
				t.Fatalf("%s: request %d of 50 a minute is denied", name, i)
			}
		}
		if used := usedOf(n, start.Add(6*time.Minute)); used > 10 {
			t.Errorf("%s: %d of the pool are lent to who asks for 50 a minute of his 50", name, used)
		}
	}
}

// A pool that is shared lends to the second what the first does not need any more.
func TestPoolsLendToOthersMeanwhile(t *testing.T) {
	pool := limit.RateSpec{Algorithm: "sliding_log", Limit: 60, Per: time.Minute}
	n := newNode(t, Config{}, poolOf(pool), borrower("child", limit.RateSpec{Algorithm: "sliding_log", Limit: 50, Per: time.Minute}))
	admitted := map[string]int{}
	for i := range 10 * 60 { // each asks for 80 a minute: 30 above his own
		now := start.Add(time.Duration(i) * time.Second)
		for _, user := range []string{"a", "b"} {
			for range 1 + i%3%2 {
				if check(n, now, user).Allowed {
					admitted[user]++
				}
			}
		}
	}
	if admitted["a"] != 800 || admitted["b"] != 800 {
		t.Errorf("%v admitted of 800 each, want all: their 50 a minute and 30 each of the pool", admitted)
	}
}

// lentHit is what was admitted at an instant, and how much of that stands at the pool.
type lentHit struct {
	at             time.Duration
	cost, borrowed uint64
}

// within is the sum of what was admitted, or borrowed, in a window that ends with an instant.
func within(hits []lentHit, end, window time.Duration, of func(lentHit) uint64) (sum uint64) {
	for _, h := range hits {
		if h.at > end-window && h.at <= end {
			sum += of(h)
		}
	}
	return sum
}

// In whatever window, what a rule admits and did not borrow is within its limit, what all
// borrowed is within the pool's, and nobody is denied who has room of his own: of logs,
// which count each hit to the instant.
func TestBorrowedAndOwnAreWithinTheirLimits(t *testing.T) {
	const own, most, pool = 10, 18, 12
	window, poolWindow := 10*time.Second, 7*time.Second
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		child := borrower("child", limit.RateSpec{Algorithm: "sliding_log", Limit: own, Per: window, Scope: "edge"})
		child.Margin.Elastic.UpToPercent = 80
		parent := poolOf(limit.RateSpec{Algorithm: "sliding_log", Limit: pool, Per: poolWindow, Scope: "edge"})
		n := newNode(t, Config{}, parent, child)
		hits, all, at := map[string][]lentHit{}, []lentHit(nil), time.Duration(0)
		isOwn := func(h lentHit) uint64 { return h.cost - h.borrowed }
		isLent := func(h lentHit) uint64 { return h.borrowed }
		for step := range 400 {
			at += time.Duration(rnd.Int64N(int64(600 * time.Millisecond)))
			user, cost := string(rune('a'+rnd.IntN(3))), 1+rnd.Uint64N(3)
			usedOwn, lent := within(hits[user], at, window, isOwn), within(all, at, poolWindow, isLent)
			part := max(cost, own-min(own, usedOwn)) - (own - min(own, usedOwn))
			total := within(hits[user], at, window, func(h lentHit) uint64 { return h.cost })
			want := part == 0 || lent+part <= pool && total+cost <= most
			before := usedOf(n, start.Add(at))
			d := checkCost(n, start.Add(at), user, cost)
			if d.Allowed != want {
				t.Fatalf("seed %d, step %d: %d of %s at %v: allowed %t, want %t: %d of his %d used, %d of the pool's %d lent", seed, step, cost, user, at, d.Allowed, want, usedOwn, own, lent, pool)
			}
			if got := usedOf(n, start.Add(at)) - before; d.Allowed && got != part {
				t.Fatalf("seed %d, step %d: %d of %s at %v: %d lent, want %d", seed, step, cost, user, at, got, part)
			}
			if d.Allowed {
				h := lentHit{at, cost, part}
				hits[user], all = append(hits[user], h), append(all, h)
			}
		}
	}
}

// What is reported beyond all that may be admitted stands at the pool but for what is within
// the limit, however much of it a log remembers.
func TestReportsBeyondTheMarginAreBorrowed(t *testing.T) {
	const own = 10
	window := 10 * time.Second
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 13))
		child := borrower("child", limit.RateSpec{Algorithm: "sliding_log", Limit: own, Per: window, Scope: "edge"})
		child.Margin.Elastic.UpToPercent = 80
		n := newNode(t, Config{}, poolOf(limit.RateSpec{Algorithm: "sliding_log", Limit: 1000, Per: time.Hour, Scope: "edge"}), child)
		hits, at := []lentHit(nil), time.Duration(0)
		for step := range 200 {
			at += time.Duration(rnd.Int64N(int64(900 * time.Millisecond)))
			cost, before := 1+rnd.Uint64N(3), usedOf(n, start.Add(at))
			if rnd.IntN(3) > 0 {
				req := requestOf(n, "a")
				req.Cost = cost
				n.Report(start.Add(at), req)
				req.Release()
			} else if !checkCost(n, start.Add(at), "a", cost).Allowed {
				continue
			}
			h := lentHit{at, cost, usedOf(n, start.Add(at)) - before}
			hits = append(hits, h)
			if got := within(hits, at, window, func(h lentHit) uint64 { return h.cost - h.borrowed }); got > own {
				t.Fatalf("seed %d, step %d: %d of %d lent: %d of his %d are used", seed, step, h.borrowed, cost, got, own)
			}
		}
	}
}

// What a borrower gives back of his own makes room for who borrowed, and the pool has that
// back; what leaves the window meanwhile is given back to nobody.
func TestLentIsGivenBackAsTheWindowSlides(t *testing.T) {
	for name, own := range sliders(10) {
		for _, receipts := range []bool{true, false} {
			n := newNode(t, Config{}, lender(100), borrower("child", own))
			var charges [][]limit.Charge
			for i := range 15 {
				_, c := take(t, n, start.Add(time.Duration(i)*time.Second), "a", 1)
				charges = append(charges, c)
			}
			now := start.Add(20 * time.Second)
			back := func(i int) {
				if receipts {
					n.Refund(now, charges[i], 0)
					return
				}
				req := requestOf(n, "a")
				defer req.Release()
				n.GiveBack(now, req)
			}
			back(0)
			back(12)
			if got := usedOf(n, now); got != 3 {
				t.Errorf("%s, receipts %t: %d at the pool, want 3: 13 are counted, and 10 are his own", name, receipts, got)
			}
			later := start.Add(3 * time.Minute) // nothing counts any more
			for i := range 10 {
				if d := check(n, later, "a"); !d.Allowed || usedOf(n, later) != 3 {
					t.Fatalf("%s, receipts %t: request %d of the next minutes: %t, %d at the pool", name, receipts, i, d.Allowed, usedOf(n, later))
				}
			}
			if check(n, later, "a"); usedOf(n, later) != 4 {
				t.Errorf("%s, receipts %t: the eleventh is not borrowed anew", name, receipts)
			}
		}
	}
}

// Who gives back loans while he is within his limit has those for his own that he makes then:
// what is not at the pool is within the limit when the others have left.
func TestLoansGivenBackAreNoRoom(t *testing.T) {
	alone.Mark(t)
	for name, own := range sliders(10) {
		n := newNode(t, Config{}, poolOf(limit.RateSpec{Algorithm: "sliding_log", Limit: 100, Per: time.Minute}), borrower("child", own))
		at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
		through(n, at(0), "a", 10)
		through(n, at(30), "a", 7) // borrowed
		through(n, at(63), "a", 3)
		req := requestOf(n, "a")
		defer req.Release()
		n.GiveBack(at(66), req)
		n.GiveBack(at(66), req)
		through(n, at(69), "a", 9)
		now := at(92)
		if used, lent := n.Inspect(now, req)[0].Total, usedOf(n, now); used > 10+lent {
			t.Errorf("%s: %d are used of his 10, and %d are lent", name, used, lent)
		}
	}
	const own, pool = 10, 14
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 78))
		rate := limit.RateSpec{Algorithm: "sliding_log", Limit: own, Per: 20 * time.Second, Scope: "edge"}
		child := borrower("child", rate)
		child.Margin.Elastic.UpToPercent = 200
		rate.Limit = pool
		n, now := newNode(t, Config{}, poolOf(rate), child), start
		req := requestOf(n, "a")
		for step := range 200 {
			now = now.Add(time.Duration(rnd.Int64N(int64(1200 * time.Millisecond))))
			if req.Cost = 1 + rnd.Uint64N(3); rnd.IntN(7) > 0 {
				n.Check(now, req)
			} else {
				n.GiveBack(now, req)
			}
			if used, lent := n.Inspect(now, req)[0].Total, usedOf(n, now); used > own+lent || lent > pool {
				t.Fatalf("seed %d, step %d: %d are used of his %d, and %d are lent of %d", seed, step, used, own, lent, pool)
			}
		}
		req.Release()
	}
}

// Of a bucket the same: what was borrowed drains last, so that its refill is its own from the
// first moment on. Who goes on at that pace borrows nothing more.
func TestBucketsBorrowOnce(t *testing.T) {
	const capacity, most, pool = 6, 15, 12
	window := 20 * time.Second
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 12))
		child := borrower("child", limit.RateSpec{Algorithm: "token_bucket", Capacity: capacity, Refill: limit.Flow{Units: 1, Per: time.Second}, Scope: "edge"})
		child.Margin.Elastic.UpToPercent = 150
		n := newNode(t, Config{}, poolOf(limit.RateSpec{Algorithm: "sliding_log", Limit: pool, Per: window, Scope: "edge"}), child)
		type level struct{ own, lent uint64 }
		levels, lent, at := map[string]*level{}, []lentHit(nil), time.Duration(0)
		for _, user := range []string{"a", "b", "c"} {
			levels[user] = &level{}
		}
		for step := range 600 {
			for range rnd.IntN(3) * rnd.IntN(1+step/100) {
				at += time.Second
				for _, l := range levels {
					if l.own > 0 {
						l.own--
					} else if l.lent > 0 {
						l.lent--
					}
				}
			}
			user, cost := string(rune('a'+rnd.IntN(3))), 1+rnd.Uint64N(3)
			l := levels[user]
			part := max(cost, capacity-l.own) - (capacity - l.own)
			out := within(lent, at, window, func(h lentHit) uint64 { return h.borrowed })
			want := l.own+l.lent+cost <= most && (part == 0 || out+part <= pool)
			before := usedOf(n, start.Add(at))
			if d := checkCost(n, start.Add(at), user, cost); d.Allowed != want {
				t.Fatalf("seed %d, step %d: %d of %s at %v: allowed %t, want %t: %+v, %d of the pool's %d lent", seed, step, cost, user, at, d.Allowed, want, *l, out, pool)
			}
			if got := usedOf(n, start.Add(at)) - before; want && got != part {
				t.Fatalf("seed %d, step %d: %d of %s at %v: %d lent, want %d: %+v", seed, step, cost, user, at, got, part, *l)
			}
			if want {
				l.own, l.lent = l.own+cost-part, l.lent+part
				lent = append(lent, lentHit{at, cost, part})
			}
		}
	}
}

// What is charged when the response is known is so by the margin that it was admitted in: a log
// that kept fewer hits would know less of what was used than of what was borrowed.
func TestCountedResponsesAreBorrowedOnce(t *testing.T) {
	for name, own := range sliders(10) {
		child := borrower("child", own)
		child.CountWhen = "response.status == 401"
		n := newConditionNode(t, poolOf(limit.RateSpec{Limit: 60, Per: time.Hour, Algorithm: "sliding_log"}), child)
		admitted := 0
		for i := range 5 * 600 { // ten a second
			now := start.Add(time.Duration(i) * 100 * time.Millisecond)
			req := requestOf(n, "a")
			if n.Check(now, req).Allowed {
				admitted++
				req.Set("response.status", "401")
				n.Answered(now, req)
			}
			req.Release()
		}
		if admitted < 105 || admitted > 115 {
			t.Errorf("%s: %d failed logins in 5 minutes, want about 110: 10 a minute, and the 60 of the pool", name, admitted)
		}
	}
}

// Tenants whose limits are multiplied borrow as much more.
func TestTenantsBorrowByTheirLimits(t *testing.T) {
	for name, own := range sliders(5) {
		child := borrower("child", own)
		child.Margin.Elastic.UpToPercent, child.TierFrom = 100, "user"
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
		set, problems := limit.Compile(limit.Document{
			Namespace: "t", Rules: []limit.RuleSpec{poolOf(limit.RateSpec{Limit: 40, Per: time.Minute, Algorithm: "sliding_log"}), child},
			Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 10}},
		})
		if set == nil {
			t.Fatal(problems)
		}
		n.SetRules(set)
		perMinute := make([]int, 8)
		for i := range 8 * 240 {
			if check(n, start.Add(time.Duration(i)*250*time.Millisecond), "gold").Allowed {
				perMinute[i/240]++
			}
		}
		for _, got := range perMinute {
			if got < 87 || got > 93 {
				t.Errorf("%s: %v admitted by minute, want about 90: 50 and the 40 of the pool", name, perMinute)
				break
			}
		}
	}
}

// So do requests that ask for a larger limit.
func TestRequestsBorrowByTheirLimits(t *testing.T) {
	for name, own := range sliders(5) {
		own.Name = "r"
		child := borrower("child", own)
		child.Margin.Elastic.UpToPercent = 100
		n := newNode(t, Config{}, poolOf(limit.RateSpec{Algorithm: "sliding_log", Limit: 40, Per: time.Minute}), child)
		perMinute := make([]int, 8)
		for i := range 8 * 240 {
			req := requestOf(n, "a")
			req.Override("child.r", 50)
			if n.Check(start.Add(time.Duration(i)*250*time.Millisecond), req).Allowed {
				perMinute[i/240]++
			}
			req.Release()
		}
		for _, got := range perMinute {
			if got < 87 || got > 93 {
				t.Errorf("%s: %v admitted by minute, want about 90: 50 and the 40 of the pool", name, perMinute)
				break
			}
		}
	}
}

// Who borrowed and waits as he is told is admitted, and about as often as who asks all the time.
func TestBorrowersAreToldWhenTheyHaveRoom(t *testing.T) {
	for name, own := range sliders(50) {
		n := newNode(t, Config{}, poolOf(limit.RateSpec{Algorithm: "sliding_log", Limit: 60, Per: time.Hour}), borrower("child", own))
		admitted, early, told := 0, 0, false
		for now := start; now.Before(start.Add(5 * time.Minute)); {
			d := check(n, now, "a")
			if d.Allowed {
				admitted++
				now, told = now.Add(250*time.Millisecond), false
				continue
			}
			if told {
				if early++; early > 20 {
					t.Fatalf("%s: denied, and told to come again in %v", name, d.RetryAfter)
				}
			}
			now, told = now.Add(d.RetryAfter), true
		}
		if admitted < 290 || admitted > 315 || early > 3 {
			t.Errorf("%s: %d admitted in 5 minutes, want about 310, and %d were told to come too early", name, admitted, early)
		}
	}
}

// What is lent to one reading of a path is no room of another.
func TestReadingsHaveTheirOwnLoans(t *testing.T) {
	child := limit.RuleSpec{Name: "child", Group: "c", Key: []string{"path"}, Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}}}
	child.Match.Has = []string{"user"}
	child.Margin.Elastic = limit.ElasticSpec{UpToPercent: 1000, Parent: "parent"}
	n := newNode(t, Config{}, lender(50), child)
	admitted := func(path string, also ...string) (count int) {
		for range 100 {
			if n.Check(start, readAs(n, "u", path, also...)).Allowed {
				count++
			}
		}
		return count
	}
	if got := admitted("/b"); got != 60 {
		t.Fatalf("%d of /b, want 10 and the pool's 50", got)
	}
	if got := admitted("/a"); got != 10 {
		t.Fatalf("%d of /a, want 10", got)
	}
	if got := admitted("/a", "/b"); got != 0 {
		t.Errorf("%d more of both, want none", got)
	}
}

// Who is far from his limits takes no record for what he might have borrowed.
func TestWhoHasNotBorrowedTakesNoRecordForIt(t *testing.T) {
	n := newNode(t, Config{}, lender(1000), borrower("child", limit.RateSpec{Limit: 50, Per: time.Minute}, limit.RateSpec{Limit: 500, Per: time.Hour}))
	for i := range 100 {
		through(n, start, fmt.Sprint("u", i), 20)
	}
	if got := n.Keys(); got != 201 {
		t.Errorf("%d records of 100 users, want 2 of each, and the parent's", got)
	}
	if through(n, start, "u0", 40); n.Keys() != 203 || usedOf(n, start) != 10 {
		t.Errorf("%d records and %d lent when one borrowed, want 203 and 10", n.Keys(), usedOf(n, start))
	}
}

// Nobody's loans are told as limits, and rules that borrow nothing have none.
func TestLentIsNoLimit(t *testing.T) {
	n := newNode(t, Config{}, lender(9), borrower("child", limit.RateSpec{Limit: 1, Per: time.Minute}, limit.RateSpec{Limit: 1, Per: time.Hour, Algorithm: "fixed_window"}))
	req := requestOf(n, "a")
	defer req.Release()
	req.Details = true
	n.Check(start, req)
	d := n.Check(start, req)
	if d.Zone != limit.ZoneElastic || len(req.States) != 2 {
		t.Errorf("%v: %d states told, want those of the child's two rates", d.Zone, len(req.States))
	}
	said := ""
	for _, b := range n.Inspect(start, req) {
		said += fmt.Sprintf(" %s:%d", b.Rate.Policy, b.Total)
	}
	if said != " child.1m:2 child.1h:2 parent.1h:1" {
		t.Errorf("inspected:%s", said)
	}
}
