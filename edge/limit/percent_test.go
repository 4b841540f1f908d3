package limit_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// partly is a rule of all that is named in percent, of a limit and of buckets.
func partly(limitOf uint64, soft, elastic, near, reserve float64) limit.RuleSpec {
	return limit.RuleSpec{
		Name: "api", TierFrom: "plan", NearLimitPercent: near,
		Margin:  limit.MarginSpec{SoftPercent: soft, Elastic: limit.ElasticSpec{UpToPercent: elastic, While: "capacity.api < 70%"}},
		Classes: limit.ClassesSpec{From: "class", Order: []string{"low", "mid", "high"}, Reserve: map[string]float64{"mid": reserve / 3, "high": reserve}},
		Rates: []limit.RateSpec{
			{Limit: limitOf, Per: time.Minute},
			{Algorithm: "token_bucket", Capacity: limitOf, Refill: perSecond(limitOf)},
			{Name: "initial", Algorithm: "token_bucket", Capacity: limitOf, Refill: perSecond(limitOf), Initial: 3 * limitOf},
		},
	}
}

// Whether a limit is a rule's own, a multiple of it, or one that a request asks
// for: what is named in percent is the same of it.
func TestPartsAreTakenFromTheLimitThatDecides(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		small, by := 1+rng.Uint64N(40), 1+rng.Uint64N(300)
		soft, near, reserve := float64(rng.IntN(5000))/100, float64(1+rng.IntN(10000))/100, float64(1+rng.IntN(7000))/100
		elastic := soft + float64(1+rng.IntN(9000))/100
		document := func(limitOf uint64) *limit.Set {
			set, problems := limit.Compile(limit.Document{
				Namespace: "test", Tenants: map[string]limit.TenantSpec{"gold": {Multiply: float64(by)}},
				Rules: []limit.RuleSpec{partly(limitOf, soft, elastic, near, reserve)},
			})
			if set == nil {
				t.Fatal(problems)
			}
			return set
		}
		set, plain := document(small), document(small*by)
		gold, asks := set.Namespace("test").NewRequest(), set.Namespace("test").NewRequest()
		gold.Set("plan", "gold")
		for i, want := range plain.Rules()[0].Rates {
			base := set.Rules()[0].Rates[i]
			asks.Override(base.Policy, want.Limit)
			for who, got := range map[string]*limit.Rate{"tenant": gold.Rules()[0].Rates[i], "request": asks.RateFor(base)} {
				for got, want := got, want; want != nil; got, want = got.Open, want.Open {
					if got.Limit != want.Limit || got.Ceiling != want.Ceiling || got.Near != want.Near ||
						got.Withheld(0) != want.Withheld(0) || got.Withheld(1) != want.Withheld(1) || got.Withheld(2) != 0 {
						t.Fatalf("%s of a %s: %d times %d with %v%%, %v%%, near %v%%, reserved %v%%:\n%+v, want as of %d\n%+v", want.Name, who, small, by, soft, elastic, near, reserve, got, want.Limit, want)
					}
				}
			}
		}
		gold.Release()
		asks.Release()
	}
}

// No margin takes a limit that a request asks for beyond what is measured.
func TestMarginsOfLargeOverrides(t *testing.T) {
	set := compileRules(t, limit.RuleSpec{Name: "a", Margin: limit.MarginSpec{SoftPercent: 900}, Rates: []limit.RateSpec{
		{Name: "bucket", Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(10)},
		{Name: "log", Algorithm: "sliding_log", Limit: 10, Per: time.Minute},
	}})
	for i, most := range []uint64{limit.MaxUnits, limit.MaxLog} {
		base := set.Rules()[0].Rates[i]
		for _, limitOf := range []uint64{most/5 + 1, most, most + 1} {
			req := set.Namespace("test").NewRequest()
			req.Override(base.Policy, limitOf)
			if r := req.RateFor(base); r.Limit != min(limitOf, most) || r.Ceiling != most {
				t.Errorf("%s overridden to %d admits %d to %d, want at most %d", base.Policy, limitOf, r.Limit, r.Ceiling, most)
			}
			req.Release()
		}
	}
}

func TestCeilingOfAnotherLimit(t *testing.T) {
	window := limit.RateSpec{Limit: 100, Per: time.Second}
	bucket := limit.RateSpec{Algorithm: "token_bucket", Capacity: 100, Initial: 120, Refill: limit.Flow{Units: 5, Per: time.Second}}
	soft, elastic := limit.MarginSpec{SoftPercent: 10}, limit.ElasticSpec{UpToPercent: 50, While: "capacity.api < 70%"}
	for _, c := range []struct {
		name        string
		spec        limit.RateSpec
		margin      limit.MarginSpec
		limit, want uint64
	}{
		{"no margin", window, limit.MarginSpec{}, 1000, 1000},
		{"a soft one, of the limit that decides", window, soft, 1000, 1100},
		{"rounded down", window, soft, 15, 16},
		{"an elastic one, as if it was open", window, limit.MarginSpec{SoftPercent: 10, Elastic: elastic}, 1000, 1500},
		{"of a bucket, what it starts with left out", bucket, soft, 120, 130},
		{"of a tenant's bucket", bucket, soft, 220, 240},
	} {
		set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "r", Rates: []limit.RateSpec{c.spec}, Margin: c.margin}}})
		if set == nil {
			t.Fatalf("%s: %v", c.name, problems)
		}
		if got := set.Rules()[0].Rates[0].CeilingOf(c.limit); got != c.want {
			t.Errorf("%s: CeilingOf(%d) = %d, want %d", c.name, c.limit, got, c.want)
		}
	}
}

// Of a small tenant's limit a margin may be less than one, where it is not of the rule's.
func TestWarningOfAMarginBelowOne(t *testing.T) {
	set, problems := limit.Compile(limit.Document{
		Namespace: "test", Tenants: map[string]limit.TenantSpec{"small": {Multiply: 0.1}},
		Rules: []limit.RuleSpec{{Name: "api", Rates: []limit.RateSpec{{Limit: 50, Per: time.Minute}}, TierFrom: "tier", Margin: limit.MarginSpec{SoftPercent: 10}}},
	})
	if problems != nil {
		t.Fatal(problems[0])
	}
	if ws := set.Warnings()[0]; len(ws) != 1 || ws[0].Code != "W207" || !strings.Contains(ws[0].Detail, "10% of 5 is less than one: of 1m, multiplied by 0.1, no more is admitted") {
		t.Errorf("warnings %v, want W207 of the tenant", ws)
	}
}
