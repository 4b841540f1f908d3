package edge

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// exceptAll has exceptions of namespace "" come in force, as all that there are.
func exceptAll(t testing.TB, n *Node, now time.Time, list ...limit.Exception) {
	t.Helper()
	for i := range list {
		e := &list[i]
		e.Namespace = n.Rules().Only().Name
		if e.Rule == "" {
			e.Rule = "api"
		}
		if e.ID == "" {
			e.ID = fmt.Sprint(i)
		}
	}
	if problems := n.SetExceptions(now, list); len(problems) > 0 {
		t.Fatal(problems)
	}
}

func resetOf(number uint64, key ...string) limit.Exception {
	return limit.Exception{Kind: limit.KeyReset, Amount: number, Key: key}
}

func limitOf(kind limit.ExceptionKind, amount uint64, until time.Time, user string) limit.Exception {
	return limit.Exception{Kind: kind, Amount: amount, Until: until, Key: []string{user}}
}

// passes is how many requests of a user pass at one instant until one does not.
func passes(n *Node, now time.Time, user string) (passed int) {
	for passed < 1000 && check(n, now, user).Allowed {
		passed++
	}
	return passed
}

var exceptedRates = map[string]limit.RateSpec{
	"fixed_window":   {Name: "r", Algorithm: "fixed_window", Limit: 5, Per: time.Hour},
	"first_hit":      {Name: "r", Algorithm: "fixed_window", Align: "first_hit", Limit: 5, Per: time.Hour},
	"sliding_window": {Name: "r", Algorithm: "sliding_window", Limit: 5, Per: time.Hour},
	"sub_windows":    {Name: "r", Limit: 5, Per: time.Hour},
	"sliding_log":    {Name: "r", Algorithm: "sliding_log", Limit: 5, Per: time.Hour},
	"token_bucket":   {Name: "r", Algorithm: "token_bucket", Capacity: 5, Refill: limit.Flow{Units: 5, Per: time.Hour}},
	"leaky_bucket":   {Name: "r", Algorithm: "leaky_bucket", Capacity: 5, Outflow: limit.Flow{Units: 5, Per: time.Hour}},
	"queue":          {Name: "r", Algorithm: "leaky_bucket", Capacity: 5, Outflow: limit.Flow{Units: 5, Per: time.Hour}, Queue: true},
	"concurrency":    {Name: "r", Algorithm: "concurrency", Limit: 5, Lease: time.Hour},
}

// A key that was reset passes up to its limit again, and no other does: by every algorithm,
// at every consistency, and out of a penalty; and once more when it is reset again.
func TestResetOfAKey(t *testing.T) {
	for name, rate := range exceptedRates {
		for _, consistency := range []string{"loose", "adaptive", "strict"} {
			if consistency == "strict" && (name == "first_hit" || name == "queue") { // which cannot be
				continue
			}
			for _, penalty := range []time.Duration{0, 30 * time.Minute} {
				t.Run(fmt.Sprint(name, " ", consistency, " ", penalty), func(t *testing.T) {
					rate := rate
					rate.Scope = "edge"
					rule := perUser(rate)
					rule.Consistency = consistency
					if penalty > 0 {
						rule.Penalty.For = penalty
					}
					n := newNode(t, Config{}, rule)
					whole := passes(n, start, "u1")
					if u2 := passes(n, start, "u2"); whole < 5 || u2 != whole {
						t.Fatalf("%d of u1 pass, and %d of u2, want 5 or more", whole, u2)
					}
					for k := range uint64(3) {
						now := start.Add(time.Duration(k) * time.Millisecond)
						exceptAll(t, n, now, resetOf(k+1, "u1"))
						if got := passes(n, now, "u1"); got != whole {
							t.Fatalf("after reset %d of u1 %d pass, want %d", k+1, got, whole)
						}
						if d := check(n, now, "u2"); d.Allowed {
							t.Fatalf("after a reset of u1 u2 passes: %+v", d)
						}
					}
					if n.SetExceptions(start, nil); check(n, start.Add(time.Second), "u1").Allowed {
						t.Error("what was counted before a reset counts once that is taken away: u1 passes")
					}
				})
			}
		}
	}
}

// Another limit holds until its end, above the rule's and below it, and a grant comes on top.
func TestOtherLimitOfAKey(t *testing.T) {
	end := start.Add(time.Minute)
	for name, rate := range exceptedRates {
		if name == "queue" || name == "token_bucket" || name == "leaky_bucket" { // which drain meanwhile
			continue
		}
		for _, consistency := range []string{"loose", "adaptive"} {
			t.Run(name+" "+consistency, func(t *testing.T) {
				rule := perUser(rate)
				rule.Consistency = consistency
				n := newNode(t, Config{}, rule)
				if got := passes(n, start, "up"); got != 5 {
					t.Fatalf("%d pass, want 5", got)
				}
				exceptAll(t, n, start, limitOf(limit.KeyOverride, 8, end, "up"), limitOf(limit.KeyGrant, 2, end.Add(time.Second), "up"), limitOf(limit.KeyOverride, 2, end, "down"))
				if d := check(n, start, "up"); !d.Allowed || d.Limit != 10 || d.Remaining != 4 {
					t.Fatalf("with a limit of 8, and 2 more: %+v", d)
				}
				if got := passes(n, start, "up"); got != 4 {
					t.Errorf("then %d pass, want 4", got)
				}
				if got := passes(n, start, "down"); got != 2 {
					t.Errorf("with a limit of 2 %d pass", got)
				}
				if got := passes(n, start, "other"); got != 5 {
					t.Errorf("of another key %d pass, want 5", got)
				}
				if d := check(n, end.Add(-1), "up"); d.Allowed || d.Limit != 10 {
					t.Errorf("just before the end: %+v", d)
				}
				if d := check(n, end, "up"); d.Allowed || d.Limit != 7 {
					t.Errorf("after the end of the override: %+v, want denied by 5 and 2 more", d)
				}
				if d := check(n, end.Add(time.Second), "up"); d.Allowed || d.Limit != 5 {
					t.Errorf("after the end of both: %+v, want denied by 5", d)
				}
				if got := passes(n, end, "down"); got != 3 {
					t.Errorf("after the end of a limit of 2 %d more pass, want 3", got)
				}
			})
		}
	}
	for _, name := range []string{"token_bucket", "leaky_bucket", "queue"} {
		n := newNode(t, Config{}, perUser(exceptedRates[name]))
		had := 0
		if name != "queue" { // those who wait in it keep their turns
			had = passes(n, start, "u")
		}
		exceptAll(t, n, start, limitOf(limit.KeyGrant, 5, end, "u"))
		if got := passes(n, start, "u"); got != 10-had {
			t.Errorf("%s: with 5 more %d pass, and %d did before, want 10 in all", name, got, had)
		}
	}
}

// Every way of asking counts under the key's new name.
func TestWaysToAskOfAKeyThatWasReset(t *testing.T) {
	rule := perUser(limit.RateSpec{Name: "minute", Limit: 5, Per: time.Minute}, limit.RateSpec{Name: "daily", Limit: 20, Per: 24 * time.Hour})
	rule.Candidate = &limit.CandidateSpec{Rates: []limit.RateSpec{{Name: "minute", Limit: 3, Per: time.Minute}}}
	rule.TierFrom = "plan"
	n := newNode(t, Config{}, limit.RuleSpec{Name: "x", Allow: true})
	compiled := func() *limit.Set {
		set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{rule}, Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 2}}})
		if problems != nil {
			t.Fatal(problems)
		}
		return set
	}
	n.SetRules(compiled())
	ask := func(plan string, how func(*limit.Request) limit.Decision) limit.Decision {
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		req.Set("user", "u")
		req.Set("plan", plan)
		return how(req)
	}
	one := func(req *limit.Request) limit.Decision { return n.Check(start, req) }
	peek := func(req *limit.Request) limit.Decision { req.Peek = true; return n.Check(start, req) }
	for range 6 {
		ask("", one)
	}
	exceptAll(t, n, start, resetOf(7, "u"), limit.Exception{Kind: limit.KeyGrant, Rate: "minute", Amount: 1, Until: start.Add(time.Hour), Key: []string{"u"}})
	if d := ask("", peek); d.Remaining != 6 || d.Limit != 6 {
		t.Errorf("a peek: %+v, want 6 left", d)
	}
	if d := ask("", func(req *limit.Request) limit.Decision { return n.CheckBatch(start, []*limit.Request{req}, nil)[0] }); !d.Allowed || d.Remaining != 5 {
		t.Errorf("in a batch: %+v, want 5 left", d)
	}
	if d := ask("", func(req *limit.Request) limit.Decision { req.Cost = 2; return n.Report(start, req) }); d.Remaining != 3 {
		t.Errorf("a report of 2: %+v, want 3 left", d)
	}
	ask("", func(req *limit.Request) limit.Decision { n.GiveBack(start, req); return limit.Decision{} })
	if d := ask("", peek); d.Remaining != 4 {
		t.Errorf("one given back: %+v, want 4 left", d)
	}
	ask("", func(req *limit.Request) limit.Decision {
		req.Made = start.Add(-time.Second).UnixNano()
		n.GiveBack(start, req)
		return limit.Decision{}
	})
	if d := ask("", peek); d.Remaining != 4 {
		t.Errorf("one given back that was charged before the reset: %+v, want 4 left", d)
	}
	if d := ask("gold", peek); d.Limit != 11 || d.Remaining != 9 {
		t.Errorf("of a tenant with twice the limit: %+v, want 11", d)
	}
	explained := limit.Explanation{}
	ask("", func(req *limit.Request) limit.Decision { explained = n.Explain(start, req); return explained.Decision })
	for i, want := range []int{2, 1} { // the rule, and its candidate
		f := &explained.Rules[i]
		if len(f.Exceptions) != 2 || len(f.Rates) != want {
			t.Errorf("explained: %s with %d exceptions and %d rates", f.Rule.Name, len(f.Exceptions), len(f.Rates))
		}
	}
	if local := explained.Rules[0].Rates[0].Local; local != 2 {
		t.Errorf("explained: %d counted of the rate, want 2", local)
	}
	trials := n.Rules().Rules()[0].Trials()
	for range 2 {
		ask("", one)
	}
	if now := n.Rules().Rules()[0].Trials(); now[0][0] != trials[0][0]+2 { // 3, and 1 more: as many as the 4 that count
		t.Errorf("with 3 and 1 more 2 of the candidate's would pass: %v, then %v", trials, now)
	}
	n.SetRules(compiled())
	if d := ask("", peek); d.Remaining != 2 || d.Limit != 6 {
		t.Errorf("after a reload: %+v, want 2 of 6 left", d)
	}
}

// An exception by the key's name is one by what that is made of.
func TestExceptionByName(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 2, Per: time.Minute}))
	passes(n, start, "u")
	name := uint64(deltasync.HashOf(keyOf(n, "u"), n.Rules().Rules()[0].Rates[0].Generation))
	exceptAll(t, n, start, limit.Exception{Kind: limit.KeyReset, Amount: 5, Name: name})
	if got := passes(n, start, "u"); got != 2 {
		t.Errorf("after a reset by name %d pass, want 2", got)
	}
}

// What is over an override is punished, as it is over the key's limit.
func TestPenaltyOverAnOverride(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 10, Per: time.Second})
	rule.Penalty.For = time.Minute
	n := newNode(t, Config{}, rule)
	exceptAll(t, n, start, limitOf(limit.KeyOverride, 2, start.Add(time.Hour), "u"))
	passes(n, start, "u")
	if d := check(n, start.Add(10*time.Second), "u"); d.Allowed || !d.Basis.Penalty {
		t.Errorf("10 s after a denial by an override: %+v, want it to be punished", d)
	}
}

// What is over a limit that a request named for itself is not punished, whatever the key had once.
func TestNoPenaltyOverARequestsOwnLimit(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 10, Per: time.Hour})
	rule.Penalty.For = time.Minute
	n := newNode(t, Config{}, rule)
	exceptAll(t, n, start, limitOf(limit.KeyGrant, 5, start.Add(time.Second), "u"))
	now := start.Add(time.Minute)
	for range 4 {
		req := n.Rules().Only().NewRequest()
		req.Set("user", "u")
		req.Override(n.Rules().Rules()[0].Rates[0].Policy, 2)
		n.Check(now, req)
		req.Release()
	}
	if d := check(n, now, "u"); !d.Allowed {
		t.Errorf("after denials by a request's own limit, and with a grant that has ended: %+v", d)
	}
}

// Strict limits are as their rule has them, be it strict since the exception was made.
func TestNoOtherStrictLimit(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 2, Per: time.Minute, Scope: "edge"})
	n := newNode(t, Config{}, rule)
	exceptAll(t, n, start, limitOf(limit.KeyGrant, 3, start.Add(time.Hour), "u"))
	if got := passes(n, start, "u"); got != 5 {
		t.Fatalf("%d pass, want 5", got)
	}
	rule.Consistency = "strict"
	n.SetRules(compile(t, rule))
	if got := passes(n, start.Add(2*time.Minute), "u"); got != 2 {
		t.Errorf("%d pass once the limit is strict, want 2", got)
	}
	problems := n.SetExceptions(start, []limit.Exception{{ID: "a", Namespace: n.Rules().Only().Name, Rule: "api", Kind: limit.KeyGrant, Amount: 1, Until: start.Add(time.Hour), Key: []string{"u"}}})
	if len(problems) != 1 || problems[0].Code != "E338" || !strings.HasPrefix(problems[0].Path, n.Rules().Only().Name+"/a") {
		t.Errorf("problems: %v, want E338 of a", problems)
	}
}

// There is room for so many of a namespace, the oldest.
func TestMostExceptions(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Minute}))
	passes(n, start, "u0")
	passes(n, start, "last")
	list := make([]limit.Exception, MaxNamespaceExceptions+1)
	for i := range list {
		user := fmt.Sprint("u", i)
		if i == MaxNamespaceExceptions {
			user = "last"
		}
		list[len(list)-1-i] = limit.Exception{ID: fmt.Sprint(i), Namespace: n.Rules().Only().Name, Rule: "api", Kind: limit.KeyReset, Amount: 1, Key: []string{user}, Since: start.Add(time.Duration(i))}
	}
	problems := n.SetExceptions(start, list)
	if len(problems) != 1 || problems[0].Code != "E339" || n.Exceptions() != MaxNamespaceExceptions {
		t.Fatalf("%d problems, %d exceptions; want 1, and %d", len(problems), n.Exceptions(), MaxNamespaceExceptions)
	}
	if passes(n, start, "u0") != 1 || passes(n, start, "last") != 0 {
		t.Error("the first was to pass again, and not the last")
	}
}

// They come and go, with the rules, while requests are decided.
func TestExceptionsChangeUnderRequests(t *testing.T) {
	rules := []limit.RuleSpec{perUser(limit.RateSpec{Name: "r", Limit: 1 << 30, Per: time.Hour})}
	n := newNode(t, Config{}, rules...)
	namespace, stop := n.Rules().Only().Name, make(chan struct{})
	var asking sync.WaitGroup
	for i := range 4 {
		asking.Go(func() { // until it is stopped below
			for now := start; ; now = now.Add(time.Millisecond) {
				select {
				case <-stop:
					return
				default:
				}
				if d := check(n, now, fmt.Sprint("u", i%2)); !d.Allowed || d.Limit != 1<<30 && d.Limit != 1<<30+5 {
					t.Errorf("decided: %+v", d)
					return
				}
			}
		})
	}
	for k := range uint64(300) {
		list := []limit.Exception{{ID: "r", Namespace: namespace, Rule: "api", Kind: limit.KeyReset, Amount: k + 1, Key: []string{"u0"}}}
		if k%2 == 0 {
			list = append(list, limit.Exception{ID: "g", Namespace: namespace, Rule: "api", Kind: limit.KeyGrant, Amount: 5, Until: start.Add(time.Hour), Key: []string{"u0"}})
		}
		n.SetExceptions(start, list)
		if k%50 == 0 {
			n.SetRules(compile(t, rules...))
		}
	}
	close(stop)
	asking.Wait()
}

// Keys without an exception are decided as if there were none at all.
func TestOthersAreAsEver(t *testing.T) {
	var rules []limit.RuleSpec
	for name, rate := range exceptedRates {
		rules = append(rules, limit.RuleSpec{Name: name, Group: name, Key: []string{"user"}, Rates: []limit.RateSpec{rate}})
	}
	plain := newNode(t, Config{}, rules...)
	other := newNode(t, Config{}, rules...)
	var list []limit.Exception
	for _, r := range rules {
		list = append(list, limit.Exception{ID: r.Name, Rule: r.Name, Kind: limit.KeyReset, Amount: 3, Key: []string{"x"}},
			limit.Exception{ID: r.Name + " limit", Rule: r.Name, Kind: limit.KeyGrant, Amount: 3, Until: start.Add(time.Hour), Key: []string{"x"}})
	}
	exceptAll(t, other, start, list...)
	rand := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		user, now := fmt.Sprint("u", rand.IntN(20)), start.Add(time.Duration(i)*time.Second)
		check(other, now, "x")
		if a, b := check(plain, now, user), check(other, now, user); a.Allowed != b.Allowed || a.Remaining != b.Remaining || a.RetryAfter != b.RetryAfter || !reflect.DeepEqual(a.Basis, b.Basis) || a.Rate.Policy != b.Rate.Policy {
			t.Fatalf("request %d, of %s: %+v, and with exceptions for another key %+v", i, user, a, b)
		}
	}
}
