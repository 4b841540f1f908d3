package regional_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// deniedBy is what another rule in the place of the first would have denied.
func deniedBy(t *testing.T, r *region, next limit.RuleSpec) (regional.Denied, bool) {
	t.Helper()
	rule := ruleSet(t, next).Rules()[0]
	p, known := r.Passed(r.now, "t", rule.Name, rule.Rates[0].Name)
	if !known {
		t.Fatalf("nothing is known of %s", rule.Name)
	}
	return p.Denied(rule.Rates[0])
}

// What a smaller limit would have denied of the last hour is known before it is in force: of every
// algorithm, of keys with ten in each window and one with ninety.
func TestPassedSaysWhatASmallerLimitDenies(t *testing.T) {
	minute := func(algorithm string) limit.RateSpec {
		return limit.RateSpec{Name: "r", Algorithm: algorithm, Limit: 100, Per: time.Minute}
	}
	bucket := limit.RateSpec{Name: "r", Algorithm: "token_bucket", Capacity: 50, Refill: limit.Flow{Units: 50, Per: time.Minute}} // 100 in the minute it fills in
	for name, rate := range map[string]limit.RateSpec{
		"sub_windows": minute(""), "fixed_window": minute("fixed_window"), "sliding_window": minute("sliding_window"),
		"sliding_log": minute("sliding_log"), "token_bucket": bucket,
	} {
		t.Run(name, func(t *testing.T) {
			set := ruleSet(t, apiRule("api", rate))
			live := set.Rules()[0].Rates[0]
			r := truthful(t, set, regional.Config{})
			e, at := &edge{name: "e1", pop: "fra"}, time.Unix(0, r.now.UnixNano()/int64(time.Minute)*int64(time.Minute)).Add(time.Minute)
			r.pass(at.Sub(r.now) + 10*time.Second)
			for range 8 {
				for key := range deltasync.Key(9) {
					e.spends(r, live, key+1, cellAt(live, r.now, 10))
				}
				e.spends(r, live, 10, cellAt(live, r.now, 90))
				r.pass(time.Minute)
			}
			for most, want := range map[uint64]regional.Denied{
				0:  {Part: 1, Windows: 80, Of: 80},
				10: {Part: 80. / 180, Windows: 8, Of: 80},
				50: {Part: 40. / 180, Windows: 8, Of: 80},
				96: {Of: 80},
			} {
				next := rate
				if next.Limit = most; rate.Algorithm == "token_bucket" {
					if next.Limit = 0; most == 0 { // it has no capacity of 0
						continue
					}
					next.Capacity, next.Refill.Units = most/2, most/2
				}
				if got, less := deniedBy(t, r, apiRule("api", next)); !less || got.Windows != want.Windows || got.Of != want.Of || math.Abs(got.Part-want.Part) > 1e-9 {
					t.Errorf("a limit of %d: %+v %v, want %+v", most, got, less, want)
				}
			}
			if got, less := deniedBy(t, r, apiRule("api", rate)); less {
				t.Errorf("the same limit: %+v", got)
			}
			larger := rate
			larger.Limit *= 2
			larger.Capacity *= 2
			if got, less := deniedBy(t, r, apiRule("api", larger)); less {
				t.Errorf("a larger limit: %+v", got)
			}
		})
	}
}

// An hour later nothing of it is known any more.
func TestPassedForgets(t *testing.T) {
	set := ruleSet(t, apiRule("api", limit.RateSpec{Name: "r", Limit: 100, Per: 10 * time.Second}))
	live := set.Rules()[0].Rates[0]
	r := truthful(t, set, regional.Config{})
	e := &edge{name: "e1", pop: "fra"}
	e.spends(r, live, 1, cellAt(live, r.now, 10))
	r.pass(2 * time.Second)
	e.spends(r, live, 1, cellAt(live, r.now, 30))
	r.pass(10 * time.Second)
	if _, known := r.Passed(r.now, "t", "api", "r"); !known {
		t.Fatal("nothing is known of ten seconds ago")
	}
	if _, known := r.Passed(r.now, "t", "api", "other"); known {
		t.Error("something is known of a rate that is not there")
	}
	if _, known := r.Passed(r.now.Add(61*time.Minute), "t", "api", "r"); known {
		t.Error("an hour later it is still known")
	}
}

// A tenant with ten times the limit is held against ten times the new one; what counts over a day is
// known though the day has not ended.
func TestPassedOfTenantsAndDays(t *testing.T) {
	set := ruleSet(t, apiRule("api", limit.RateSpec{Name: "r", Limit: 100, Per: 24 * time.Hour, Align: "utc"}))
	live := set.Rules()[0].Rates[0]
	r := truthful(t, set, regional.Config{})
	shape := shapeOf(live)
	shape.Limit *= 10
	e := &edge{name: "e1", pop: "fra"}
	e.send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{{Key: 1, Cells: []crdt.Cell{cellAt(live, r.now, 400)}}}})
	r.pass(6 * time.Minute)
	half := limit.RateSpec{Name: "r", Limit: 50, Per: 24 * time.Hour, Align: "utc"}
	if got, less := deniedBy(t, r, apiRule("api", half)); !less || got.Part != 0 {
		t.Errorf("400 of 1000, and then of 500: %+v %v", got, less)
	}
	half.Limit = 20
	if got, less := deniedBy(t, r, apiRule("api", half)); !less || math.Abs(got.Part-0.5) > 0.01 {
		t.Errorf("400 of 1000, and then of 200: %+v %v", got, less)
	}
}

// What was counted in other windows is not held against a limit of these; and there is no few rules that it is
// known of alone.
func TestPassedOfChangedAndOfManyRules(t *testing.T) {
	rules := make([]limit.RuleSpec, 600)
	for i := range rules {
		rules[i] = apiRule(fmt.Sprint("api", i), limit.RateSpec{Name: "r", Limit: 6000, Per: time.Hour})
	}
	set := ruleSet(t, rules...)
	r := truthful(t, set, regional.Config{})
	e := &edge{name: "e1", pop: "fra"}
	for i, rule := range set.Rules() {
		e.spends(r, rule.Rates[0], deltasync.Key(i+1), cellAt(rule.Rates[0], r.now, 600))
	}
	r.pass(6 * time.Minute)
	for _, rule := range set.Rules() {
		if got, less := deniedBy(t, r, apiRule(rule.Name, limit.RateSpec{Name: "r", Limit: 300, Per: time.Hour})); !less || got.Part != 0.5 {
			t.Fatalf("%s: %+v %v, want half", rule.Name, got, less)
		}
	}
	rules[0].Rates[0].Limit = 100 // what it counts is the same
	rules[1].Rates[0] = limit.RateSpec{Name: "r", Limit: 100, Per: time.Minute}
	r.SetRules(ruleSet(t, rules...))
	if _, known := r.Passed(r.now, "t", "api0", "r"); !known {
		t.Error("of a rate whose limit changed nothing is known any more")
	}
	if _, known := r.Passed(r.now, "t", "api1", "r"); known {
		t.Error("of a rate whose window changed something is known")
	}
}
