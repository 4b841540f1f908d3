package edge

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
)

// The tests of this file are each of a way around a limit, or into a lock-out,
// that was there once.

func requestOf(n *Node, user string) *limit.Request {
	req := n.Rules().Only().NewRequest()
	req.Set("user", user)
	return req
}

func through(n *Node, now time.Time, user string, tries int) int {
	got, _ := admits(n, now, user, tries)
	return got
}

// What a report under another limit leaves is for nobody else.
func TestReportUnderAnOverrideLeavesNoAllowance(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Hour}))
	req := requestOf(n, "u")
	req.Override("api.1h", 1000)
	req.Cost = 1
	n.Report(start, req)
	if got := through(n, start, "u", 2000); got != 9 {
		t.Fatalf("after a report of 1 under an override: %d admitted, want 9", got)
	}
}

// Nor what a renewal leaves.
func TestRenewUnderAnOverrideLeavesNoAllowance(t *testing.T) {
	n := newNode(t, Config{}, perUser(inFlight(2, time.Hour)))
	req := requestOf(n, "u")
	req.Override("api.slots", 1000)
	req.Receipt = true
	n.Check(start, req)
	ch := slices.Clone(req.Charges)
	n.Renew(start, ch)
	if got := through(n, start, "u", 2000); got != 1 {
		t.Fatalf("after renew under an override: %d admitted, want 1", got)
	}
}

// A slot that was taken in an open margin is renewed after it closed, and opens it for nobody.
func TestRenewLeavesAMarginClosed(t *testing.T) {
	rule := perUser(inFlight(10, time.Hour))
	rule.Margin.Elastic = limit.ElasticSpec{UpToPercent: 100, While: "capacity.api < 70%"}
	n := newNode(t, Config{}, rule)
	n.SetCapacity(start, "api", 0.1, time.Minute)
	for range 10 {
		check(n, start, "u")
	}
	_, ch := take(t, n, start, "u", 1) // elastic
	n.SetCapacity(start, "api", 0.9, time.Minute)
	if got := through(n, start, "u", 100); got != 0 {
		t.Fatalf("closed: %d", got)
	}
	n.Renew(start, ch)
	if got := through(n, start, "u", 100); got != 0 {
		t.Fatalf("closed and renewed: %d admitted, want 0", got)
	}
}

// Threads that read the clock and come in another order wait their turn too.
func TestQueueDelaysWhoComesOutOfOrder(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 100, Outflow: limit.Flow{Units: 10, Per: time.Second}, Queue: true}))
	for range 50 {
		check(n, start, "u")
	}
	d := check(n, start, "u")
	d2 := check(n, start.Add(-100), "u")
	if d2.Delay < 4*time.Second {
		t.Fatalf("a request 100ns earlier: delay %v, want about %v", d2.Delay, d.Delay)
	}
}

// A parent that is asked under another limit is so for that request alone.
func TestParentUnderAnOverrideLeavesNoAllowance(t *testing.T) {
	parent := limit.RuleSpec{Name: "parent", Group: "a", Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}}
	child := limit.RuleSpec{Name: "child", Group: "b", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}, Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 1000, Parent: "parent"}}}
	n := newNode(t, Config{}, parent, child)
	req := requestOf(n, "u")
	n.Check(start, req)
	req.Reset()
	req.Set("user", "u")
	req.Override("parent.1h", 100000)
	d := n.Check(start, req)
	if !d.Allowed {
		t.Fatalf("the child under another limit of its parent: %+v", d)
	}
	got := 0
	for range 1000 {
		r := n.Rules().Only().NewRequest() // no user: the parent alone
		if n.Check(start, r).Allowed {
			got++
		}
	}
	if got != 98 {
		t.Fatalf("%d admitted by parent, want 98", got)
	}
}

// Also where it only lends.
func TestLenderUnderAnOverrideLeavesNoAllowance(t *testing.T) {
	parent := limit.RuleSpec{Name: "parent", Match: limit.MatchSpec{Lacks: []string{"user"}}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}}
	child := limit.RuleSpec{Name: "child", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}, Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 1000, Parent: "parent"}}}
	n := newNode(t, Config{}, parent, child)
	check(n, start, "u")
	req := requestOf(n, "u")
	req.Override("parent.1h", 100000)
	d := n.Check(start, req)
	if !d.Allowed {
		t.Fatalf("the child under another limit of its parent: %+v", d)
	}
	got := 0
	for range 1000 {
		r := n.Rules().Only().NewRequest()
		if n.Check(start, r).Allowed {
			got++
		}
	}
	if got != 99 {
		t.Fatalf("%d admitted by parent, want 99", got)
	}
}

// A trial does not use up what its parent has for real requests.
func TestTrialBorrowsNothing(t *testing.T) {
	parent := limit.RuleSpec{Name: "parent", Match: limit.MatchSpec{Lacks: []string{"user"}}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}}
	child := limit.RuleSpec{Name: "child", Mode: "shadow", Key: []string{"user"}, Rates: []limit.RateSpec{{Name: "h", Limit: 1, Per: time.Hour}, {Name: "m", Limit: 1000, Per: time.Minute}}, Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 1000, Parent: "parent"}}}
	n := newNode(t, Config{}, parent, child)
	for range 100 {
		for _, u := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			check(n, start, u)
		}
	}
	r := n.Rules().Only().NewRequest()
	if d := n.Check(start, r); !d.Allowed {
		t.Fatalf("a shadow rule used up its enforced parent: %+v", d)
	}
}

// Who counts by the response borrows nothing before it.
func TestWhatMayNotCountBorrowsNothing(t *testing.T) {
	set, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{
		{Name: "parent", Match: limit.MatchSpec{Lacks: []string{"user"}}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}},
		{Name: "child", Key: []string{"user"}, CountWhen: "response.status == 401", Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}, Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 1000, Parent: "parent"}}},
	}})
	if set == nil {
		t.Fatal(problems)
	}
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
	n.SetRules(set)
	req := requestOf(n, "u")
	n.Check(start, req)
	req.Set("response.status", "401")
	n.Answered(start, req)
	for range 50 {
		check(n, start, "u")
	} // never answered 401
	var total uint64
	r := n.Rules().Only().NewRequest()
	for _, b := range n.Inspect(start, r) {
		total = b.Total
	}
	if total != 0 {
		t.Fatalf("parent is charged %d for requests that the child did not count", total)
	}
}

// Two borrowers in one request do not both get the last unit.
func TestLastUnitIsLentOnce(t *testing.T) {
	parent := limit.RuleSpec{Name: "parent", Match: limit.MatchSpec{Lacks: []string{"user"}}, Rates: []limit.RateSpec{{Limit: 3, Per: time.Hour}}}
	mk := func(name, g string) limit.RuleSpec {
		return limit.RuleSpec{Name: name, Group: g, Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}, Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 1000, Parent: "parent"}}}
	}
	n := newNode(t, Config{}, parent, mk("c1", ""), mk("c2", "g2"))
	got := through(n, start, "u", 10)
	var total uint64
	r := n.Rules().Only().NewRequest()
	for _, b := range n.Inspect(start, r) {
		total = b.Total
	}
	t.Logf("%d admitted, parent %d of 3", got, total)
	if total > 3 {
		t.Fatalf("parent lent %d of 3", total)
	}
}

// A gap of the parent is no bound on what it lends.
func TestParentWithAGapLends(t *testing.T) {
	parent := limit.RuleSpec{Name: "parent", MinGap: time.Millisecond, Match: limit.MatchSpec{Lacks: []string{"user"}}, Rates: []limit.RateSpec{{Limit: 1000, Per: time.Hour}}}
	child := limit.RuleSpec{Name: "child", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 10, Per: time.Hour}}, Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 1000, Parent: "parent"}}}
	n := newNode(t, Config{}, parent, child)
	checkCost(n, start, "u", 10)
	if d := checkCost(n, start, "u", 5); !d.Allowed {
		t.Fatalf("parent with min_gap does not lend 5 of 1000")
	}
	if got := through(n, start, "u", 200); got != 95 { // the margin's ten times ten, less 5
		t.Fatalf("%d more are lent at one instant, want 95", got)
	}
}

// What is given back is free again, though the key was forgotten meanwhile.
func TestRefundAfterForgetting(t *testing.T) {
	for _, rate := range []limit.RateSpec{{Limit: 10, Per: time.Hour}, {Limit: 10, Per: time.Hour, Algorithm: "sliding_log"}, {Limit: 10, Per: time.Hour, Align: "first_hit", Algorithm: "fixed_window"}, inFlight(10, time.Hour), tokens(10, limit.Flow{Units: 10, Per: time.Hour})} {
		for _, withView := range []bool{false, true} {
			cfg := Config{}
			if withView {
				v, _ := NewCacheView(1 << 20)
				cfg.View = v
			}
			n := newNode(t, cfg, perUser(rate))
			users := neighbours(n, 2)
			var ch []limit.Charge
			for range 10 { // requests, as it is those that take a slot
				_, one := take(t, n, start, users[0], 1)
				ch = append(ch, one...)
			}
			s := n.shard(keyOf(n, users[0]))
			s.mu.Lock()
			for i := range s.table {
				if s.table[i].key == keyOf(n, users[0]) {
					n.forget(s, i, start.UnixNano())
					break
				}
			}
			s.mu.Unlock()
			if withView {
				n.cfg.View.(*CacheView).Wait()
			}
			n.Refund(start.Add(time.Second), ch, 0)
			d := checkCost(n, start.Add(2*time.Second), users[0], 10)
			if !d.Allowed {
				t.Errorf("%s view=%v: all given back after eviction, still denied for %v", n.Rules().Rules()[0].Rates[0].Algorithm, withView, d.RetryAfter)
			}
		}
	}
}

// A log that tenants share is cut for the largest of their limits.
func TestLogOfTwoTenants(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 10, Per: time.Hour, Algorithm: "sliding_log", CountDenied: true})
	rule.TierFrom = "plan"
	_, ask := tenantNode(t, rule)
	got := 0
	now := start
	for range 100 {
		if ask(now, "u", "gold").Allowed {
			got++
		}
		now = now.Add(time.Millisecond)
	}
	for range 20 {
		ask(now, "u", "trial")
		now = now.Add(time.Millisecond)
	}
	for range 100 {
		if ask(now, "u", "gold").Allowed {
			got++
		}
		now = now.Add(time.Millisecond)
	}
	if got != 100 {
		t.Fatalf("gold admitted %d of 100 an hour", got)
	}
}

// A denied request has no receipt, whatever was asked with it before.
func TestDeniedHasNoReceipt(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
	req := requestOf(n, "u")
	req.Receipt = true
	n.Check(start, req)
	d := n.Check(start, req)
	if d.Allowed || len(req.Charges) != 0 {
		t.Fatalf("denied %v with charges %v", !d.Allowed, req.Charges)
	}
}

// A part given back does not undo that the request was made.
func TestPartialRefundKeepsTheGap(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 1000, Per: time.Hour})
	rule.MinGap = time.Second
	n := newNode(t, Config{}, rule)
	_, ch := take(t, n, start, "u", 100)
	n.Refund(start, ch, 40)
	if d := check(n, start, "u"); d.Allowed {
		t.Fatal("a part given back undoes min_gap")
	}
}

// What costs nothing takes nothing of a reserve.
func TestFreeRequestOfTheLeastClass(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 10, Per: time.Hour})
	rule.Classes = limit.ClassesSpec{From: "class", Order: []string{"low", "high"}, Reserve: map[string]float64{"high": 50}}
	rule.Cost.ByRoute = map[string]uint64{"/free": 0}
	n := newNode(t, Config{}, rule)
	for range 8 {
		req := requestOf(n, "u")
		req.Set("class", "high")
		n.Check(start, req)
	}
	req := requestOf(n, "u")
	req.Set("path", "/free")
	d := n.Check(start, req)
	if !d.Allowed {
		t.Fatalf("free request denied: %+v", d)
	}
}

// Who is punished is told to come when both penalty and limit let it pass.
func TestPenaltyAndItsLimit(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 1, Per: time.Hour})
	rule.Penalty.For = time.Second
	n := newNode(t, Config{}, rule)
	check(n, start, "u")
	d := check(n, start, "u")
	if d2 := check(n, start.Add(d.RetryAfter), "u"); !d2.Allowed {
		t.Fatalf("told to retry after %v, denied again for %v", d.RetryAfter, d2.RetryAfter)
	}
}

// Nobody waits for more than the capacity, once the initial tokens are gone.
func TestNoWaitForWhatNeverFits(t *testing.T) {
	r := tokens(7, limit.Flow{Units: 1, Per: time.Second})
	r.Initial = 21
	rule := perUser(r)
	rule.MaxDelay = 100 * time.Millisecond
	n := newNode(t, Config{}, rule)
	checkCost(n, start, "u", 21)
	if d := checkCost(n, start.Add(time.Minute), "u", 20); d.Allowed {
		t.Fatalf("20 of a capacity of 7: %+v", d)
	}
}
