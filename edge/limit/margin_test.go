package limit_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// compileRules compiles rules of the namespace "test".
func compileRules(t testing.TB, rules ...limit.RuleSpec) *limit.Set {
	t.Helper()
	set, problems := limit.Compile(limit.Document{Namespace: "test", Rules: rules})
	if problems != nil {
		t.Fatal(problems[0])
	}
	return set
}

func TestElasticMargin(t *testing.T) {
	set := compileRules(t, limit.RuleSpec{
		Name: "api", NearLimitPercent: 80,
		Margin: limit.MarginSpec{SoftPercent: 10, Elastic: limit.ElasticSpec{UpToPercent: 50, While: "capacity.api-2  <  72.5%"}},
		Rates: []limit.RateSpec{
			{Limit: 100, Per: time.Minute},
			{Algorithm: "token_bucket", Capacity: 100, Refill: perSecond(5), Initial: 130},
		},
	}, limit.RuleSpec{
		Name: "borrower", Group: "b", Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 50, Parent: "api"}},
		Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}},
	})
	api, borrower := set.Rules()[0], set.Rules()[1]
	if e := api.Elastic; e == nil || e.Signal != "api-2" || e.Below != 0.725 || e.Parent != nil {
		t.Errorf("elastic of a signal: %+v", e)
	}
	if e := borrower.Elastic; e == nil || e.Signal != "" || e.Parent != api {
		t.Errorf("elastic of a parent: %+v", e)
	}
	for i, want := range []struct{ ceiling, open, near uint64 }{{110, 150, 80}, {140, 180, 110}} {
		r := api.Rates[i]
		if r.Ceiling != want.ceiling || r.Open.Ceiling != want.open || r.Near != want.near || r.Open.Near != want.near ||
			r.Open.Limit != r.Limit || r.Open.Generation != r.Generation || r.Open.Open != nil {
			t.Errorf("rate %d: ceiling %d, open %+v, near %d; want %+v", i, r.Ceiling, r.Open, r.Near, want)
		}
	}
	var x limit.Exact
	bucket := api.Rates[1]
	bucket.Open.Measure(&x, nil, nil, limit.Carry{}, epoch)
	x.Charge(bucket.Open, 180, epoch)
	if room := bucket.Room(bucket.Measure(&x, nil, nil, limit.Carry{}, epoch)); room != 0 {
		t.Errorf("room when the margin has closed = %d, want none", room)
	}
	if w := bucket.Wait(&x, nil, nil, limit.Carry{}, 1, epoch); w != 8200*time.Millisecond {
		t.Errorf("Wait when the margin has closed = %v, want the 8.2s in which 41 drain", w)
	}
}

func TestMarginsOfTenants(t *testing.T) {
	set, problems := limit.Compile(limit.Document{
		Namespace: "test", Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 3}},
		Rules: []limit.RuleSpec{{
			Name: "api", TierFrom: "plan", NearLimitPercent: 50, MinGap: time.Second,
			Margin:  limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 50, While: "capacity.api < 70%"}},
			Classes: limit.ClassesSpec{From: "class", Order: []string{"low", "high"}, Reserve: map[string]float64{"high": 10}},
			Rates:   []limit.RateSpec{{Limit: 100, Per: time.Minute}},
		}},
	})
	if problems != nil {
		t.Fatal(problems[0])
	}
	req := set.Namespace("test").NewRequest()
	req.Set("plan", "gold")
	rule := req.Rules()[0]
	if r := rule.Rates[0]; r.Limit != 300 || r.Open.Ceiling != 450 || r.Near != 150 || r.Withheld(0) != 30 || r.Open.Withheld(0) != 30 {
		t.Errorf("three times 100: %+v, open %+v", r, r.Open)
	}
	if r := rule.Rates[1]; r.Limit != 1 || !r.PerRequest || r != set.Rules()[0].Rates[1] {
		t.Errorf("the gap was multiplied: %+v", r)
	}
	if rule.Elastic != set.Rules()[0].Elastic || set.Rules()[0].For(req) != rule {
		t.Error("the variant has another margin, or For finds another variant")
	}
}

func TestDropShare(t *testing.T) {
	r := compileRules(t, limit.RuleSpec{
		Name: "api", Drop: "probabilistic", Margin: limit.MarginSpec{SoftPercent: 20}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Minute}},
	}).Rules()[0].Rates[0]
	for used, want := range map[uint64]float64{0: 0, 100: 0, 105: 0.25, 119: 0.95, 120: 1, 500: 1} {
		if got := r.DropShare(limit.Level{Whole: used}); got != want {
			t.Errorf("DropShare at %d = %v, want %v", used, got, want)
		}
	}
	hard := compileRate(t, limit.RateSpec{Limit: 0, Per: time.Minute})
	if got := hard.DropShare(limit.Level{}); got != 1 {
		t.Errorf("DropShare of a limit of 0 = %v, want 1", got)
	}
}

// A margin is a whole number of percent of the limit where it can be one.
func TestMarginsAreExact(t *testing.T) {
	for _, test := range []struct {
		limit   uint64
		percent float64
		want    uint64
	}{{100, 29, 129}, {100, 57, 157}, {1000, 0.3, 1003}, {1000, 2.3, 1023}, {1 << 52, 0.1, 1<<52 + 1<<52/1000}, {10, 15, 11}, {7, 1000, 77}, {1000, 0.0001, 1000}} {
		rule := plainRule()
		rule.Rates = []limit.RateSpec{{Limit: test.limit, Per: time.Minute}}
		rule.Margin.SoftPercent = test.percent
		if got := compileRules(t, rule).Rules()[0].Rates[0].Ceiling; got != test.want {
			t.Errorf("%d and %v%%: a ceiling of %d, want %d", test.limit, test.percent, got, test.want)
		}
	}
}
