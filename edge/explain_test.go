package edge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// explainUser explains a user's request.
func explainUser(n *Node, now time.Time, user string) (limit.Explanation, limit.Standing) {
	req := requestOf(n, user)
	defer req.Release()
	e := n.Explain(now, req)
	return e, e.Rules[0].Rates[0]
}

// An explanation says what a check would, charges nothing, and knows which keys it had
// not seen.
func TestExplainChargesNothing(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 3, Per: time.Minute}))
	if e, s := explainUser(n, start, "u"); !e.Decision.Allowed || s.Seen || s.Denied || s.Local != 0 || s.Remaining != 3 || s.Heard != -1 {
		t.Errorf("at first: %+v", s)
	}
	for range 3 {
		check(n, start, "u")
		explainUser(n, start, "u")
	}
	e, s := explainUser(n, start, "u")
	if e.Decision.Allowed || !s.Seen || !s.Denied || s.Why != limit.WhyLimit || s.Local != 3 || s.Remaining != 0 || s.RetryAfter <= 0 {
		t.Errorf("used up: %+v", s)
	}
	if !check(n, start, "v").Allowed {
		t.Error("another user is denied")
	}
}

// Who has a request explained, and checks it then, is charged for it.
func TestExplainedIsCheckedAfter(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Minute}))
	for _, want := range []bool{true, false} {
		req := requestOf(n, "u")
		if e := n.Explain(start, req); e.Decision.Allowed != want {
			t.Errorf("explained: %+v, want %v", e.Decision, want)
		}
		if d := n.Check(start, req); d.Allowed != want {
			t.Errorf("checked: %+v, want %v", d, want)
		}
		req.Release()
	}
}

// Why a request is denied is told as what it is.
func TestExplainWhy(t *testing.T) {
	later := start.Add(1020 * time.Millisecond)
	for name, c := range map[string]struct {
		node func(t *testing.T) *Node
		at   time.Time
		want limit.Why
	}{
		"share": {func(t *testing.T) *Node {
			n, _ := sharing(t, &deltasync.Share{Omega: 0.5, Sum: 1, Demand: 1, Window: 1, Unseen: 1000}, perUser(adaptive(aHundred)))
			return n
		}, later, limit.WhyShare},
		"rights": {func(t *testing.T) *Node {
			rate := aHundred
			rate.Consistency = "strict"
			return newNode(t, Config{}, perUser(rate))
		}, start, limit.WhyShare},
		"penalty": {func(t *testing.T) *Node {
			rule := perUser(limit.RateSpec{Limit: 1, Per: time.Second})
			rule.Penalty = limit.Penalty{For: time.Minute}
			n := newNode(t, Config{}, rule)
			through(n, start, "u", 3)
			return n
		}, start.Add(10 * time.Second), limit.WhyPenalty},
		"min_gap": {func(t *testing.T) *Node {
			n := newNode(t, Config{}, limit.RuleSpec{Name: "api", Key: []string{"user"}, MinGap: time.Second})
			check(n, start, "u")
			return n
		}, start.Add(time.Millisecond), limit.WhyGap},
		"cut_off": {func(t *testing.T) *Node {
			n := newNode(t, Config{}, perUser(onPartition("adaptive", "closed")))
			n.Flush(start)
			return n
		}, later, limit.WhyCutOff},
	} {
		t.Run(name, func(t *testing.T) {
			if e, s := explainUser(c.node(t), c.at, "u"); e.Decision.Allowed || !s.Denied || s.Why != c.want {
				t.Errorf("%+v, want it denied for %v", s, c.want)
			}
		})
	}
}

// What a share is made of is told.
func TestExplainShare(t *testing.T) {
	n, _ := sharing(t, &deltasync.Share{Omega: 0.5, Sum: 1, Demand: 1000, Window: 1000}, perUser(adaptive(aHundred)))
	_, s := explainUser(n, start.Add(1020*time.Millisecond), "u")
	if s.Own.Omega != 0.5 || s.Own.Weight <= 0 || s.Granted.Free || s.Granted.Cost == 0 || s.Granted.Cost > 50 || !s.Bound.Known || s.Heard < 0 {
		t.Errorf("%+v", s)
	}
}

// Of a path that can be read in several ways each reading is told by its key, with what is
// used of that; and no rule that applies by one of them is told as missed.
func TestExplainReadings(t *testing.T) {
	rate := []limit.RateSpec{{Limit: 10, Per: time.Hour}}
	n := newNode(t, Config{},
		limit.RuleSpec{Name: "path", Group: "a", Key: []string{"path"}, Rates: rate},
		limit.RuleSpec{Name: "login", Group: "b", Priority: 2, Match: limit.MatchSpec{Path: []string{"/login"}}, Key: []string{"user"}, Rates: rate},
		limit.RuleSpec{Name: "else", Group: "b", Priority: 1, Match: limit.MatchSpec{Path: []string{"/else"}}, Rates: rate},
	)
	for range 7 {
		n.Check(start, readAs(n, "u", "/login"))
	}
	for range 2 {
		n.Check(start, readAs(n, "u", "/public"))
	}
	var got []string
	for _, f := range n.Explain(start, readAs(n, "u", "/public", "/login")).Rules {
		told := fmt.Sprintf("%s [%s] %s", f.Rule.Name, f.Key, f.Miss.Field)
		for _, s := range f.Rates {
			told += fmt.Sprintf("%d used %d left seen %v", s.Local, s.Remaining, s.Seen)
		}
		got = append(got, told)
	}
	want := []string{
		"path [path=/public] 2 used 8 left seen true", "path [path=/login] 7 used 3 left seen true",
		"login [user=u] 7 used 3 left seen true", "else [] match.path",
	}
	if !slices.Equal(got, want) {
		t.Errorf("told\n%q, want\n%q", got, want)
	}
}
