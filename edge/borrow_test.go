package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
)

// newConditionNode is newNode for rules with count_when.
func newConditionNode(t testing.TB, rules ...limit.RuleSpec) *Node {
	t.Helper()
	set, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{Namespace: "t", Rules: rules})
	if set == nil {
		t.Fatalf("Compile: %v", problems)
	}
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
	n.SetRules(set)
	return n
}

// lender lends to requests that have a user, and applies to the others.
func lender(most uint64) limit.RuleSpec {
	return limit.RuleSpec{
		Name: "parent", Group: "a", Match: limit.MatchSpec{Lacks: []string{"user"}},
		Rates: []limit.RateSpec{{Limit: most, Per: time.Hour}},
	}
}

// borrower borrows from the rule "parent".
func borrower(name string, rates ...limit.RateSpec) limit.RuleSpec {
	return limit.RuleSpec{
		Name: name, Group: name, Key: []string{"user"}, Rates: rates,
		Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 1000, Parent: "parent"}},
	}
}

// usedOf is what is counted of the rule that applies to requests without a user.
func usedOf(n *Node, now time.Time) (total uint64) {
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	for _, b := range n.Inspect(now, req) {
		total = b.Total
	}
	return total
}

// What a rule borrows it borrows once, however many of its rates are used up.
func TestTwoRatesBorrowOnce(t *testing.T) {
	child := borrower("child", limit.RateSpec{Limit: 1, Per: time.Hour}, limit.RateSpec{Limit: 1, Per: 2 * time.Hour})
	n := newNode(t, Config{}, lender(5), child)
	if got := through(n, start, "a", 20); got != 6 {
		t.Errorf("%d admitted, want 1 of its own and all 5 of its parent", got)
	}
	applies := limit.RuleSpec{Name: "parent", Group: "a", Rates: []limit.RateSpec{{Limit: 5, Per: time.Hour}}}
	n = newNode(t, Config{}, applies, child)
	if got := through(n, start, "a", 20); got != 5 {
		t.Errorf("%d admitted beside the parent itself, want its 5", got)
	}
}

// A parent that is charged by responses is never charged with what it lends.
func TestParentThatCountsResponsesIsRefused(t *testing.T) {
	parent := lender(5)
	parent.CountWhen = "response.status == 402"
	set, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{
		parent, borrower("child", limit.RateSpec{Limit: 1, Per: time.Hour}),
	}})
	if set != nil || len(problems) != 1 || problems[0][0].Code != "E205" || problems[0][0].Path != "rules[1].margin.elastic.parent" {
		t.Fatalf("compiled %v, %v; want E205 at rules[1].margin.elastic.parent", set != nil, problems)
	}
}

// Nobody releases a slot that is taken when the request is over.
func TestParentWithSlotsOfCountedResponsesIsRefused(t *testing.T) {
	parent, child := lender(5), borrower("child", limit.RateSpec{Limit: 1, Per: time.Hour})
	parent.Rates = append(parent.Rates, limit.RateSpec{Algorithm: "concurrency", Limit: 5, Lease: time.Minute})
	child.CountWhen = "response.status == 401"
	set, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{parent, child}})
	if set != nil || len(problems) != 1 || problems[0][0].Code != "E219" || problems[0][0].Path != "rules[1].margin.elastic.parent" {
		t.Fatalf("compiled %v, %v; want E219 at rules[1].margin.elastic.parent", set != nil, problems)
	}
}

// A rule that counts responses borrows what it counts above its own limit.
func TestCountedResponsesAreBorrowed(t *testing.T) {
	child := borrower("child", limit.RateSpec{Limit: 2, Per: time.Hour})
	child.CountWhen = "response.status == 401"
	fails := func(n *Node, user string) (admitted int) {
		for range 20 {
			req := requestOf(n, user)
			if n.Check(start, req).Allowed {
				admitted++
				req.Set("response.status", "401")
				n.Answered(start, req)
			}
			req.Release()
		}
		return admitted
	}
	n := newConditionNode(t, lender(5), child)
	if got := fails(n, "a"); got != 7 || usedOf(n, start) != 5 {
		t.Errorf("%d failed logins admitted, %d charged to the parent; want 2 of its own and 5 of the parent", got, usedOf(n, start))
	}
	if got := fails(n, "b"); got != 2 {
		t.Errorf("%d of another user admitted, want its own 2", got)
	}

	child.Mode = "shadow"
	n = newConditionNode(t, lender(5), child)
	fails(n, "a")
	if got := usedOf(n, start); got != 0 {
		t.Errorf("a trial is charged to its parent: %d", got)
	}

	child.Mode = ""
	applies := limit.RuleSpec{Name: "parent", Group: "a", Rates: []limit.RateSpec{{Limit: 5, Per: time.Hour}}}
	n = newConditionNode(t, applies, child)
	if got := fails(n, "a"); got != 5 || usedOf(n, start) != 5 {
		t.Errorf("%d admitted, %d charged to a parent that applies itself; want 5 of each", got, usedOf(n, start))
	}
}

// A parent lends what its limit leaves, not its margin; and where the request
// names another limit for it, what that leaves.
func TestParentLendsByItsLimit(t *testing.T) {
	child := borrower("child", limit.RateSpec{Limit: 1, Per: time.Hour})
	parent := lender(4)
	parent.Margin.SoftPercent = 50
	n := newNode(t, Config{}, parent, child)
	if got := through(n, start, "a", 20); got != 5 {
		t.Errorf("%d admitted, want 1 and the parent's 4 without its margin of 2", got)
	}

	n = newNode(t, Config{}, lender(4), child)
	alone := func() bool { return n.Check(start, n.Rules().Only().NewRequest()).Allowed }
	if !alone() || !check(n, start, "a").Allowed {
		t.Fatal("the first of each is denied")
	}
	ask := func(parentLimit uint64) bool {
		req := requestOf(n, "a")
		defer req.Release()
		req.Override("parent.1h", parentLimit)
		return n.Check(start, req).Allowed
	}
	if ask(1) {
		t.Error("a parent with 1 of 1 used lent one more")
	}
	for alone() {
	}
	if !ask(100) {
		t.Error("a parent with 4 of 100 used lent nothing")
	}
}

// Who borrows nothing does not wait in the queue of its parent.
func TestParentsQueueIsForWhoBorrows(t *testing.T) {
	n := newNode(t, Config{}, limit.RuleSpec{
		Name: "child", Priority: 2, Match: limit.MatchSpec{Path: []string{"/api"}}, Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}},
		Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 100, Parent: "queue"}},
	}, limit.RuleSpec{
		Name: "queue", Priority: 1, Match: limit.MatchSpec{Path: []string{"/other"}},
		Rates: []limit.RateSpec{{Algorithm: "leaky_bucket", Capacity: 20, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true}},
	})
	ask := func(path string) limit.Decision {
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		req.Set("path", path)
		return n.Check(start, req)
	}
	for i := range 5 {
		if d := ask("/other"); !d.Allowed || d.Delay != time.Duration(i)*time.Second {
			t.Fatalf("in the queue: %+v", d)
		}
	}
	for range 10 {
		if d := ask("/api"); !d.Allowed || d.Delay != 0 {
			t.Fatalf("within its own limit: %+v, want no delay", d)
		}
	}
	if d := ask("/api"); !d.Allowed || d.Delay != 5*time.Second {
		t.Errorf("borrowed: %+v, want the parent's queue", d)
	}
}

// What a parent keeps for its higher classes is not lent to lower ones.
func TestParentsLendNoReserve(t *testing.T) {
	n := newNode(t, Config{}, limit.RuleSpec{
		Name: "child", Priority: 2, Match: limit.MatchSpec{Path: []string{"/api"}}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}},
		Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 1000, Parent: "total"}},
	}, limit.RuleSpec{
		Name: "total", Priority: 1, Match: limit.MatchSpec{Path: []string{"/other"}}, Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}},
		Classes: limit.ClassesSpec{From: "header.X-Class", Order: []string{"batch", "critical"}, Reserve: map[string]float64{"critical": 50}},
	})
	admitted := func(path, class string) (count int) {
		for range 20 {
			req := n.Rules().Only().NewRequest()
			req.Set("path", path)
			req.Set("header.X-Class", class)
			if n.Check(start, req).Allowed {
				count++
			}
			req.Release()
		}
		return count
	}
	if got := admitted("/api", "batch"); got != 6 {
		t.Errorf("batch: %d admitted, want its own and 5 of the parent's", got)
	}
	if got := admitted("/api", "critical") + admitted("/other", "critical"); got != 5 {
		t.Errorf("critical: %d admitted, want the 5 that are kept for it", got)
	}
}

// A parent that applies by itself, with another cost, lends what it leaves unused and no
// more: a request is charged to it once, by the dearer of both.
func TestParentOfAnotherCost(t *testing.T) {
	type want struct{ admitted, charged uint64 }
	for name, test := range map[string]struct {
		pool, child limit.CostSpec
		before      int // of 10, of the pool, by others
		want        want
	}{
		"the same":              {limit.CostSpec{Default: 5}, limit.CostSpec{Default: 5}, 0, want{2, 10}},
		"free there":            {limit.CostSpec{ByRoute: map[string]uint64{"/x": 0}}, limit.CostSpec{}, 0, want{20, 10}},
		"free there, used up":   {limit.CostSpec{ByRoute: map[string]uint64{"/x": 0}}, limit.CostSpec{}, 10, want{10, 10}},
		"free there, half used": {limit.CostSpec{ByRoute: map[string]uint64{"/x": 0}}, limit.CostSpec{}, 5, want{15, 10}},
		"dear for the borrower": {limit.CostSpec{}, limit.CostSpec{Default: 5}, 0, want{3, 7}}, // two of its own at 1, and one that borrows 5
		"dear for the parent":   {limit.CostSpec{Default: 3}, limit.CostSpec{}, 0, want{3, 9}},
		"free for the borrower": {limit.CostSpec{}, limit.CostSpec{ByRoute: map[string]uint64{"/x": 0}}, 0, want{10, 10}},
	} {
		pool := limit.RuleSpec{Name: "parent", Group: "a", Cost: test.pool, Rates: []limit.RateSpec{{Limit: 10, Per: time.Hour}}}
		child := borrower("child", limit.RateSpec{Limit: 10, Per: time.Hour})
		child.Cost = test.child
		n := newNode(t, Config{}, pool, child)
		for range test.before {
			other := n.Rules().Only().NewRequest()
			n.Check(start, other)
		}
		var got want
		var receipts [][]limit.Charge
		for range 50 {
			req := requestOf(n, "a")
			req.Set("path", "/x")
			req.Receipt = true
			if n.Check(start, req).Allowed {
				got.admitted++
				receipts = append(receipts, append([]limit.Charge(nil), req.Charges...))
			}
			req.Release()
		}
		if got.charged = usedOf(n, start); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		for _, c := range receipts {
			n.Refund(start, c, 0)
		}
		if got := usedOf(n, start); got != uint64(test.before) {
			t.Errorf("%s: %d of the pool are used once all is given back, want %d", name, got, test.before)
		}
	}
}
