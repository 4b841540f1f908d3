package edge

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
)

// readAs is a request of a user whose path can be read in several ways.
func readAs(n *Node, user string, path string, others ...string) *limit.Request {
	req := requestOf(n, user)
	req.Set("path", path)
	req.AlsoPaths(others)
	return req
}

// ownOf is what is used of the rule's first rate for a request, as the node counts.
func ownOf(n *Node, req *limit.Request) uint64 { return n.Inspect(start, req)[0].Own }

// What has no path in its key is charged once, however many readings a path has: be it
// that it may have one, and has not.
func TestReadingsChargeOtherKeysOnce(t *testing.T) {
	for _, key := range []string{"user", "route"} {
		set, problems := limit.Compile(limit.Document{
			Namespace: "test", Keys: map[string]limit.KeySource{"route": {From: []string{"user", "path"}}},
			Rules: []limit.RuleSpec{{Name: "r", Key: []string{key}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}}},
		})
		if set == nil {
			t.Fatal(problems)
		}
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
		n.SetRules(set)
		n.Check(start, readAs(n, "u", "/a", "/b", "/c"))
		if used := ownOf(n, readAs(n, "u", "/a")); used != 1 {
			t.Errorf("key %s: a request of three readings used %d, want 1", key, used)
		}
	}
}

// Each reading is charged all that the request costs.
func TestReadingsChargeTheCost(t *testing.T) {
	n := newNode(t, Config{}, limit.RuleSpec{Name: "r", Key: []string{"path"}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}})
	req := readAs(n, "", "/a", "/b", "/c")
	req.Cost = 7
	n.Check(start, req)
	for _, path := range []string{"/a", "/b", "/c"} {
		if used := ownOf(n, readAs(n, "", path)); used != 7 {
			t.Errorf("%s: %d used, want 7", path, used)
		}
	}
}

// A reading by which a rule does not apply is not charged to it.
func TestReadingsThatMeetNoRuleAreNotCharged(t *testing.T) {
	n := newNode(t, Config{}, limit.RuleSpec{Name: "login", Match: limit.MatchSpec{Path: []string{"/login"}}, Key: []string{"path"}, Rates: []limit.RateSpec{{Limit: 2, Per: time.Hour}}})
	req := readAs(n, "", "/public", "/login")
	req.Receipt = true
	if d := n.Check(start, req); !d.Allowed || len(req.Charges) != 1 {
		t.Errorf("%+v, charged %d counters, want the one of /login", d, len(req.Charges))
	}
	if used := ownOf(n, readAs(n, "", "/login")); used != 1 {
		t.Errorf("%d of /login used, want 1", used)
	}
}

// What is borrowed is borrowed of all readings: whoever spells a path otherwise gets no
// more of its parent than who does not, and leaves as much.
func TestReadingsBorrowOfEach(t *testing.T) {
	user := perUser(limit.RateSpec{Limit: 4, Per: time.Hour})
	user.Name, user.Priority, user.Match.Has = "user", 10, []string{"user"}
	user.Margin.Elastic = limit.ElasticSpec{UpToPercent: 1000, Parent: "path"}
	n := newNode(t, Config{}, user, limit.RuleSpec{Name: "path", Key: []string{"path"}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Hour}}})
	got := 0
	for i := range 50 {
		if n.Check(start, readAs(n, "u", fmt.Sprint("/x", i), "/login")).Allowed {
			got++
		}
	}
	if used := ownOf(n, readAs(n, "", "/login")); got != 9 || used != 5 {
		t.Errorf("%d admitted and %d of the parent's 5 borrowed, want 9 and 5", got, used)
	}
}

// A parent that applies by one reading, and is asked for that, lends of the others.
func TestReadingsBorrowWhereTheParentAppliesToo(t *testing.T) {
	for _, after := range []bool{false, true} {
		user := perUser(limit.RateSpec{Limit: 1, Per: time.Hour})
		user.Name, user.Priority, user.Match.Path = "user", 10, []string{"/login"}
		user.Margin.Elastic = limit.ElasticSpec{UpToPercent: 1000, Parent: "path"}
		if after {
			user.CountWhen = "response.status == 401"
		}
		set, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{
			user, {Name: "path", Key: []string{"path"}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Hour}}},
		}})
		if set == nil {
			t.Fatal(problems)
		}
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
		n.SetRules(set)
		for range 2 {
			req := readAs(n, "u", "/x", "/login")
			if d := n.Check(start, req); !d.Allowed {
				t.Fatalf("%+v", d)
			}
			req.Set("response.status", "401")
			n.Answered(start, req)
		}
		for path, want := range map[string]uint64{"/x": 2, "/login": 1} {
			if used := ownOf(n, readAs(n, "", path)); used != want {
				t.Errorf("after %v: %d of %s used, want %d", after, used, path, want)
			}
		}
	}
}

// A response counts where it does by one reading of its request's path.
func TestReadingsCountTheirResponses(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 3, Per: time.Hour})
	rule.CountWhen = `response.status == 401 && path == "/login"`
	set, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}})
	if set == nil {
		t.Fatal(problems)
	}
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
	n.SetRules(set)
	for _, c := range []struct {
		user, path, status string
		others             []string
		want               int
	}{
		{"plain", "/login", "401", nil, 3},
		{"spelled", "/x/login", "401", []string{"/x%2Fb/../login", "/login", "/else"}, 3},
		{"elsewhere", "/x/login", "401", []string{"/x"}, 20},
		{"right", "/x/login", "200", []string{"/login"}, 20},
	} {
		got := 0
		for range 20 {
			req := readAs(n, c.user, c.path, slices.Clone(c.others)...)
			if n.Check(start, req).Allowed {
				got++
				req.Set("response.status", c.status)
				n.Answered(start, req)
			}
		}
		if got != c.want {
			t.Errorf("%s: %d of 20 admitted, want %d", c.user, got, c.want)
		}
	}
}

// Who waits for rights is woken by those of the reading that denies, be it another than
// the request's own.
func TestReadingsWaitForTheOneThatDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := waitingNode(t, func(r *limit.RuleSpec) { r.Key = []string{"path"} })
		ask := func(path string, others ...string) <-chan asked {
			out := make(chan asked, 1)
			go func() { // ends with the wait, which is bounded
				req := readAs(n, "", path, others...)
				defer req.Release()
				began := time.Now()
				d := n.CheckWait(t.Context(), began, req)
				out <- asked{d, time.Since(began)}
			}()
			synctest.Wait()
			time.Sleep(20 * time.Millisecond)
			answerClaims(t, n, grants(5, 0))
			return out
		}
		later(t, ask("/x/login"))
		for _, c := range [][]string{{"/x/login", "/login"}, {"/a", "/x/login"}, {"/b", "/c"}} {
			if a := later(t, ask(c[0], c[1])); !a.d.Allowed || a.took != 20*time.Millisecond {
				t.Errorf("%q: %+v after %v, want it admitted as the rights come", c, a.d, a.took)
			}
		}
		idle(t, n)
	})
}
