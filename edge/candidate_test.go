package edge

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// triedRates are limits as a candidate may have them.
var triedRates = map[string][]limit.RateSpec{
	"tighter":        {{Limit: 20, Per: 10 * time.Second}},
	"wider":          {{Limit: 80, Per: 10 * time.Second}},
	"sliding_window": {{Algorithm: "sliding_window", Limit: 50, Per: 10 * time.Second}},
	"sliding_log":    {{Algorithm: "sliding_log", Limit: 50, Per: 10 * time.Second}},
	"fixed_window":   {{Algorithm: "fixed_window", Limit: 70, Per: 10 * time.Second}},
	"token_bucket":   {{Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 5, Per: time.Second}}},
	"two rates":      {{Limit: 70, Per: 10 * time.Second}, {Limit: 5, Per: time.Second}},
	"count_denied":   {{Algorithm: "sliding_log", Limit: 50, Per: 10 * time.Second, CountDenied: true}},
	"loose":          {{Limit: 70, Per: 10 * time.Second, Consistency: "loose"}},
}

// A candidate says of each request what it would say if it was in the place of its rule's limits, be they
// tighter or wider, and nobody notices: what the rule decides is what it decides without.
func TestCandidateDecidesAsIfItWereLive(t *testing.T) {
	alone.Mark(t)
	for name, rates := range triedRates {
		for _, charge := range []string{"all_or_nothing", "each"} {
			if charge == "each" && name == "token_bucket" {
				continue // refused
			}
			t.Run(name+" "+charge, func(t *testing.T) {
				with, without, inPlace := perUser(limit.RateSpec{Limit: 50, Per: 10 * time.Second}), perUser(limit.RateSpec{Limit: 50, Per: 10 * time.Second}), perUser(rates...)
				with.Candidate = &limit.CandidateSpec{Rates: rates}
				with.Charge, without.Charge, inPlace.Charge = charge, charge, charge
				tried, plain, changed := newNode(t, Config{}, with), newNode(t, Config{}, without), newNode(t, Config{}, inPlace)
				rng := rand.New(rand.NewPCG(1, 2))
				now := start
				var want [2][2]uint64
				at := map[bool]int{true: 0, false: 1} // allowed
				for i := range 3000 {
					now = now.Add(time.Duration(rng.ExpFloat64() * float64(100*time.Millisecond)))
					user := []string{"u", "v"}[rng.IntN(2)]
					got, live, candidate := check(tried, now, user), check(plain, now, user), check(changed, now, user)
					if got.Rule.Live != nil || got.Allowed != live.Allowed || got.Remaining != live.Remaining || got.Zone != live.Zone || got.RetryAfter != live.RetryAfter || got.Near != live.Near {
						t.Fatalf("request %d: %+v, and without a candidate %+v", i, got, live)
					}
					want[at[live.Allowed]][at[candidate.Allowed]]++
					if told := tried.Rules().Rules()[0].Trials(); told != want {
						t.Fatalf("request %d: the trials are %v, want %v (allowed or denied, by the rule and by its candidate)", i, told, want)
					}
				}
				if want[0][0] < 40 || want[0][1]+want[1][0] < 50 {
					t.Errorf("%v: the limits hardly differ", want)
				}
			})
		}
	}
}

// What other rules deny a candidate is not charged with; nor is it with peeks, which are not counted.
func TestCandidateOfOneOfSeveralRules(t *testing.T) {
	tried, other := perUser(limit.RateSpec{Limit: 2, Per: time.Minute}), perUser(limit.RateSpec{Limit: 4, Per: time.Minute})
	tried.Candidate = &limit.CandidateSpec{Rates: []limit.RateSpec{{Limit: 3, Per: time.Minute}}, Key: []string{"team"}}
	other.Name, other.Group = "other", "other"
	reg := prometheus.NewRegistry()
	n := newNode(t, Config{Registerer: reg}, tried, other)
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	ask := func(user, team string, peek bool) limit.Decision {
		req.Reset()
		req.Set("user", user)
		req.Set("team", team)
		req.Peek = peek
		return n.Check(start, req)
	}
	for i, want := range []bool{true, true, false, false} { // the candidate admits the third, and denies the fourth
		ask("u", "red", true)
		if d := ask("u", "red", false); d.Allowed != want || d.Rule.Name == "rule.candidate" {
			t.Errorf("request %d: %+v, want allowed: %t", i, d, want)
		}
	}
	if d := ask("v", "red", false); !d.Allowed || d.Zone != limit.ZoneNormal { // the team's three are used up
		t.Errorf("of the other user: %+v", d)
	}
	if got, want := n.Rules().Rules()[0].Trials(), [2][2]uint64{{2, 1}, {1, 1}}; got != want {
		t.Errorf("the trials are %v, want %v", got, want)
	}
	if got := testutil.CollectAndCount(reg, "spillgate_candidate_decisions_total"); got != 4 {
		t.Errorf("%d series of the candidate, want 4", got)
	}
	found := false
	req.Peek = false
	for _, f := range n.Explain(start, req).Rules {
		found = found || f.Rule.Live != nil && len(f.Rates) == 1 && f.Rates[0].Denied
	}
	if !found {
		t.Error("what explains says nothing of the candidate")
	}
}

// What another rule denies as well, or would if it was in force, a candidate is not charged with twice, nor at all.
func TestCandidateIsChargedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		mode   string // of the rule
		others bool   // another rule denies what it does
		want   [2][2]uint64
	}{
		"the rule alone denies":  {"", false, [2][2]uint64{{1, 0}, {2, 2}}},
		"others deny, too":       {"", true, [2][2]uint64{{1, 0}, {4, 0}}},
		"the rule is in shadow":  {"shadow", false, [2][2]uint64{{1, 0}, {2, 2}}},
		"others deny the shadow": {"shadow", true, [2][2]uint64{{1, 0}, {4, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			tried := perUser(limit.RateSpec{Limit: 1, Per: time.Minute})
			tried.Mode, tried.Candidate = c.mode, &limit.CandidateSpec{Rates: []limit.RateSpec{{Limit: 3, Per: time.Minute}}}
			other := perUser(limit.RateSpec{Limit: 1, Per: time.Minute})
			other.Name, other.Group = "other", "other"
			rules := []limit.RuleSpec{tried}
			if c.others {
				rules = append(rules, other)
			}
			n := newNode(t, Config{}, rules...)
			for range 5 {
				check(n, start, "u")
			}
			if got := n.Rules().Rules()[0].Trials(); got != c.want {
				t.Errorf("the trials are %v, want %v", got, c.want)
			}
		})
	}
}

// A trial of a window beside slots, be it a candidate or a rule, keeps nobody's slot.
func TestTrialsKeepNoSlot(t *testing.T) {
	slots := perUser(limit.RateSpec{Algorithm: "concurrency", Limit: 1, Lease: time.Minute})
	trial := perUser(limit.RateSpec{Limit: 100, Per: time.Minute})
	trial.Name, trial.Group, trial.Mode = "trial", "trial", "shadow"
	with := slots
	with.Candidate = &limit.CandidateSpec{Rates: trial.Rates}
	for name, rules := range map[string][]limit.RuleSpec{"a rule": {slots, trial}, "a candidate": {with}} {
		n := newNode(t, Config{}, rules...)
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		for range 3 {
			req.Reset()
			req.Set("user", "u")
			if d := n.Check(start, req); !d.Allowed {
				t.Errorf("%s: %+v, want the slot, which was given back", name, d)
			}
			if d := check(n, start, "u"); d.Allowed {
				t.Errorf("%s: there is a slot too many", name)
			}
			req.Reset()
			req.Set("user", "u")
			req.Cost = 1
			if n.GiveBack(start, req); !req.Recorded {
				t.Errorf("%s: nothing was given back", name)
			}
		}
	}
}

// Whatever is done, nobody is told, nor hindered, by a candidate: of rules and candidates of each kind a node
// with one answers as a node without.
func TestCandidateIsNotNoticed(t *testing.T) {
	alone.Mark(t)
	slots := []limit.RateSpec{{Algorithm: "concurrency", Limit: 3, Lease: time.Minute}}
	kinds := map[string][]limit.RateSpec{"slots": slots, "slots and a window": {slots[0], {Limit: 30, Per: 10 * time.Second}}}
	for name, rates := range triedRates {
		kinds[name] = rates
	}
	for liveName, live := range kinds {
		for triedName, rates := range kinds {
			if (liveName == "slots" || liveName == "tighter") || (triedName == "slots" || triedName == "tighter") {
				t.Run(liveName+" with "+triedName, func(t *testing.T) { notNoticed(t, live, rates) })
			}
		}
	}
}

func notNoticed(t *testing.T, live, candidate []limit.RateSpec) {
	spec := limit.RuleSpec{Name: "rule", Key: []string{"user"}, Match: limit.MatchSpec{Path: []string{"/a/**"}}, Rates: live}
	with := spec
	with.Candidate = &limit.CandidateSpec{Rates: candidate, Key: []string{"path"}}
	var nodes []*Node
	var reqs []*limit.Request
	for _, s := range []limit.RuleSpec{with, spec} {
		n := newNode(t, Config{}, s)
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		nodes, reqs = append(nodes, n), append(reqs, req)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	now := start
	tried := uint64(0)
	for i := range 600 {
		now = now.Add(time.Duration(rng.ExpFloat64() * float64(100*time.Millisecond)))
		user, path, what, cost := []string{"", "u", "v"}[rng.IntN(3)], []string{"/a/x", "/a/y", "/b"}[rng.IntN(3)], rng.IntN(6), uint64(rng.IntN(3))
		readings := rng.IntN(4) == 0
		var said [2]limit.Decision
		var recorded [2]bool
		for k, req := range reqs {
			req.Reset()
			req.Set("user", user)
			req.Set("path", path)
			if readings {
				req.AlsoPaths([]string{"/a/z"})
			}
			req.Cost = cost
			switch what {
			case 0:
				said[k] = nodes[k].Report(now, req)
			case 1:
				nodes[k].GiveBack(now, req)
			case 2:
				req.Peek = true
				said[k] = nodes[k].Check(now, req)
			case 3:
				said[k] = nodes[k].Explain(now, req).Decision
			default:
				said[k] = nodes[k].Check(now, req)
			}
			if recorded[k] = req.Recorded; said[k].Rule != nil {
				if said[k].Rule.Live != nil {
					t.Fatalf("step %d: the candidate is told: %+v", i, said[k])
				}
				said[k].Rule, said[k].Rate = nil, nil // each node's own
			}
		}
		if said[0] != said[1] || recorded[0] != recorded[1] {
			t.Fatalf("step %d (%d, cost %d, %q %q): %+v %t, and without a candidate %+v %t", i, what, cost, user, path, said[0], recorded[0], said[1], recorded[1])
		}
		if what > 3 && path != "/b" { // of several readings it is asked once
			tried++
		}
	}
	sum := uint64(0)
	for _, of := range nodes[0].Rules().Rules()[0].Trials() {
		sum += of[0] + of[1]
	}
	if sum == 0 || sum > tried {
		t.Errorf("%d trials of %d requests", sum, tried)
	}
}
