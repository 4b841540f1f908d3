package limit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

func TestClasses(t *testing.T) {
	set := compileRules(t, limit.RuleSpec{
		Name: "api",
		Classes: limit.ClassesSpec{
			From: "header.X-Class", Order: []string{"batch", "normal", "critical"}, Reserve: map[string]float64{"critical": 10, "normal": 20},
		},
		Rates: []limit.RateSpec{
			{Limit: 100, Per: time.Minute}, {Limit: 3, Per: time.Second},
			{Algorithm: "token_bucket", Capacity: 20, Refill: perSecond(5), Initial: 30},
		},
		MinGap: time.Millisecond,
	})
	rule := set.Rules()[0]
	for i, want := range [][3]uint64{{30, 10, 0}, {1, 1, 0}, {6, 2, 0}, {0, 0, 0}} {
		r := rule.Rates[i]
		if got := [3]uint64{r.Withheld(0), r.Withheld(1), r.Withheld(2)}; got != want {
			t.Errorf("rate %s withholds %v, want %v", r.Name, got, want)
		}
	}
	for name, want := range map[string]int{"": 0, "batch": 0, "normal": 1, "critical": 2, "CRITICAL": 0, "other": 0} {
		req := set.Namespace("test").NewRequest()
		req.Set("header.x-class", name)
		if got := rule.ClassOf(req); got != want {
			t.Errorf("class %q is %d, want %d", name, got, want)
		}
		req.Release()
	}
	// There is room for a class where there is room for what it withholds too.
	minute := rule.Rates[0]
	sums := []crdt.Cell{{Slice: minute.SliceAt(epoch), Charges: 75}}
	room := minute.Room(minute.Used(sums, limit.Carry{}, epoch))
	for class, want := range []bool{false, true, true} {
		if got := room >= 10+minute.Withheld(class); got != want {
			t.Errorf("10 of class %d pass at 75 of 100: %v, want %v", class, got, want)
		}
	}
	if plain := compileRules(t, plainRule()).Rules()[0]; plain.Rates[0].Withheld(0) != 0 || plain.Rates[0].Withheld(7) != 0 {
		t.Error("a rule without classes withholds something")
	}
}

func TestWarningOfAClassThatIsShutOut(t *testing.T) {
	set := compileRules(t, limit.RuleSpec{
		Name: "api", Rates: []limit.RateSpec{{Limit: 100, Per: time.Minute}, {Limit: 1, Per: time.Second}},
		Classes: limit.ClassesSpec{From: "class", Order: []string{"low", "high"}, Reserve: map[string]float64{"high": 10}},
	})
	if ws := set.Warnings()[0]; len(ws) != 1 || ws[0].Code != "W203" || ws[0].Path != "rules[0].classes.reserve" || ws[0].Hint == "" {
		t.Errorf("warnings %v, want one of the class that never passes", ws)
	}
}

// Of a small limit a part of one is a whole one, which is more than the rule says; a tenant's
// may be small where the rule's is not.
func TestWarningOfAReserveBelowOne(t *testing.T) {
	set, problems := limit.Compile(limit.Document{
		Namespace: "test", Tenants: map[string]limit.TenantSpec{"small": {Multiply: 0.05}},
		Rules: []limit.RuleSpec{{
			Name: "api", Rates: []limit.RateSpec{{Limit: 100, Per: time.Minute}}, TierFrom: "tier",
			Classes: limit.ClassesSpec{From: "class", Order: []string{"batch", "critical"}, Reserve: map[string]float64{"critical": 10}},
		}},
	})
	if problems != nil {
		t.Fatal(problems[0])
	}
	if ws := set.Warnings()[0]; len(ws) != 1 || ws[0].Code != "W261" || !strings.Contains(ws[0].Detail, "less than one of the 5 of 1m, multiplied by 0.05") {
		t.Errorf("warnings %v, want W261 of the tenant", ws)
	}
	for percent, want := range map[float64]string{1: "W261", 19.99: "W261", 20: "", 30: ""} {
		set := compileRules(t, limit.RuleSpec{
			Name: "api", Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}},
			Classes: limit.ClassesSpec{From: "class", Order: []string{"batch", "critical"}, Reserve: map[string]float64{"critical": percent}},
		})
		ws := set.Warnings()[0]
		if want == "" && len(ws) == 0 {
			continue
		}
		if len(ws) != 1 || ws[0].Code != want || ws[0].Path != "rules[0].classes.reserve" || !strings.Contains(ws[0].Detail, `from class "batch" is less than one of the 5 of 1m`) || !strings.HasPrefix(ws[0].Hint, "20% or more") {
			t.Errorf("%v%% of 5: warnings %v, want %q", percent, ws, want)
		}
	}
}

func TestWarningOfAClassThatIsShutOutForATenant(t *testing.T) {
	set, problems := limit.Compile(limit.Document{
		Namespace: "test", Tenants: map[string]limit.TenantSpec{"big": {Multiply: 10}, "small": {Multiply: 0.1}},
		Rules: []limit.RuleSpec{{
			Name: "api", TierFrom: "plan", Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}},
			Classes: limit.ClassesSpec{From: "class", Order: []string{"low", "high"}, Reserve: map[string]float64{"high": 10}},
		}},
	})
	if set == nil {
		t.Fatal(problems)
	}
	if ws := set.Warnings()[0]; len(ws) != 1 || ws[0].Code != "W203" || !strings.Contains(ws[0].Detail, "all 1 of 1m, multiplied by 0.1, are") {
		t.Errorf("warnings %v, want one of a tenth of the limit", ws)
	}
}
