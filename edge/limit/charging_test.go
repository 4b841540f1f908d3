package limit_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
)

func TestCostFromHeader(t *testing.T) {
	rule := plainRule()
	rule.Cost = limit.CostSpec{Default: 3, ByRoute: map[string]uint64{"/big": 9}, FromHeader: "x-request-cost", Max: 50}
	set := compileRules(t, rule)
	r := set.Rules()[0]
	for name, tc := range map[string]struct {
		header, path string
		trusted      bool
		named        uint64
		want         uint64
	}{
		"trusted":             {header: "17", trusted: true, want: 17},
		"free":                {header: "0", trusted: true, want: 0},
		"not trusted":         {header: "17", want: 3},
		"absent":              {trusted: true, want: 3},
		"more than the rule":  {header: "51", trusted: true, want: 50},
		"no number":           {header: "-1", trusted: true, want: 3},
		"no number, by route": {header: "1e3", path: "/big", trusted: true, want: 9},
		"before the route":    {header: "4", path: "/big", trusted: true, want: 4},
		"after the caller":    {header: "4", trusted: true, named: 7, want: 7},
		"too long":            {header: strings.Repeat("9", 5000), trusted: true, want: 50},
		"too large":           {header: "99999999999999999999", trusted: true, want: 50},
	} {
		req := set.Namespace("test").NewRequest()
		req.SetHTTP("GET", tc.path, "", "", map[string][]string{"X-Request-Cost": {tc.header}})
		req.Trusted, req.Cost = tc.trusted, tc.named
		if got := r.CostOf(req); got != tc.want {
			t.Errorf("%s: cost %d, want %d", name, got, tc.want)
		}
		req.Release()
	}
	if r.BadCosts() != 2 {
		t.Errorf("%d bad costs counted, want 2", r.BadCosts())
	}
	if req := set.Namespace("test").NewRequest(); req.Trusted {
		t.Error("trust outlives its request")
	}
}

// Of a lump each request is bounded, and what counts responses is asked about one.
func TestCostsOfLumps(t *testing.T) {
	for _, tc := range []struct {
		cost      limit.CostSpec
		after     bool
		named, of uint64
		want      uint64
	}{
		{named: 500, of: 100, want: 500},
		{cost: limit.CostSpec{Max: 2}, named: 500, of: 100, want: 200},
		{cost: limit.CostSpec{Max: 2}, named: 500, of: 0, want: 2},
		{cost: limit.CostSpec{Max: 2}, named: 1, of: 1, want: 1},
		{cost: limit.CostSpec{Default: 3}, of: 100, want: 3},
		{cost: limit.CostSpec{Default: 3}, after: true, named: 500, of: 100, want: 3},
		{cost: limit.CostSpec{Default: 3}, after: true, named: 500, want: 500},
		{named: math.MaxUint64, of: 7, want: 1<<53 + 1},
		{named: math.MaxUint64, of: math.MaxUint64, want: 1<<53 + 1},
		{cost: limit.CostSpec{Max: 1}, named: math.MaxUint64, of: 1 << 32, want: 1 << 32},
	} {
		rule := plainRule()
		if rule.Cost = tc.cost; tc.after {
			rule.CountWhen = "response.status in [401]"
		}
		set, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}})
		if set == nil {
			t.Fatal(problems)
		}
		req := set.Namespace("test").NewRequest()
		req.Cost, req.Lump = tc.named, tc.of
		if got := set.Rules()[0].CostOf(req); got != tc.want {
			t.Errorf("%+v: cost %d", tc, got)
		}
		req.Release()
	}
}

// Without a bound of the rule what is named is what it costs, and a number too
// large for any limit is one still.
func TestCostsWithoutABound(t *testing.T) {
	rule := plainRule()
	rule.Cost = limit.CostSpec{Default: 2_000_000, ByRoute: map[string]uint64{"/big": 1 << 53}, FromHeader: "X-Bytes"}
	set := compileRules(t, rule)
	for _, tc := range []struct {
		header, path string
		named, want  uint64
	}{
		{want: 2_000_000}, {path: "/big", want: 1 << 53}, {named: 5_000_000_000, want: 5_000_000_000}, {header: "9007199254740992", want: 1 << 53},
		{named: 1<<53 + 1, want: 1<<53 + 1}, {named: math.MaxUint64, want: 1<<53 + 1}, {header: "99999999999999999999", want: 1<<53 + 1},
	} {
		req := set.Namespace("test").NewRequest()
		req.SetHTTP("GET", tc.path, "", "", map[string][]string{"X-Bytes": {tc.header}})
		req.Trusted, req.Cost = true, tc.named
		if got := set.Rules()[0].CostOf(req); got != tc.want {
			t.Errorf("%+v: cost %d", tc, got)
		}
		req.Release()
	}
	for path, cost := range map[string]limit.CostSpec{
		"default": {Default: 1<<53 + 1}, "max": {Max: 1<<53 + 1}, "by_route./a": {ByRoute: map[string]uint64{"/a": math.MaxUint64}},
	} {
		rule.Cost = cost
		set, problems := limit.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}})
		if set != nil || len(problems[0]) != 1 || problems[0][0].Code != "E171" || problems[0][0].Path != "rules[0].cost."+path {
			t.Errorf("a %s above 2^53: %v, want E171", path, problems)
		}
	}
}

// statusIs is an engine for tests: a condition is the name of an attribute, an
// "=" and the value that it must have; "broken" fails.
func statusIs(text string, lookup limit.Lookup) (limit.Condition, error) {
	name, value, _ := strings.Cut(text, "=")
	a, ok := lookup(name)
	if !ok {
		return nil, &limit.ConditionError{Line: 1, Column: 1, Detail: "no attribute " + name}
	}
	return equality{a, value}, nil
}

type equality struct {
	limit.Attribute
	value string
}

func (e equality) Holds(req *limit.Request) (bool, error) {
	if e.value == "broken" {
		return true, errors.New("broken")
	}
	return e.Value(req) == e.value, nil
}

func TestCountWhen(t *testing.T) {
	compile := func(count, when string) (*limit.Set, []limit.Problems) {
		rule := plainRule()
		rule.CountWhen, rule.Match.When = count, when
		return limit.Options{Conditions: statusIs}.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}})
	}
	counts := func(condition, status string) (bool, *limit.Rule) {
		set, problems := compile(condition, "")
		if problems != nil {
			t.Fatal(problems[0])
		}
		req := set.Namespace("test").NewRequest()
		req.Set("response.status", status)
		req.Set("user", "u1")
		return set.Rules()[0].Counts(req), set.Rules()[0]
	}
	if ok, r := counts("response.status=401", "401"); !ok || !r.CountsAfter() {
		t.Errorf("a failed login counts %v, after the response %v", ok, r.CountsAfter())
	}
	if ok, _ := counts("response.status=401", "200"); ok {
		t.Error("a login that went well counts")
	}
	if ok, _ := counts("user=u1", "200"); !ok {
		t.Error("a condition on the request does not hold after the response")
	}
	if ok, r := counts("response.status=broken", "401"); ok || r.Failures() != 1 {
		t.Errorf("a condition that fails counts %v, and %d failures", ok, r.Failures())
	}
	if ok, r := counts("", "200"); !ok || r.CountsAfter() {
		t.Error("a rule without a condition does not count, or counts after the response")
	}
	for _, bad := range []string{"response.=1", "response.header.X=1", "response=1 "} {
		if _, problems := compile(bad, ""); bad != "response=1 " && (problems == nil || problems[0][0].Code != "E167" || problems[0][0].Path != "rules[0].count_when") {
			t.Errorf("%q: %v, want E167", bad, problems)
		}
	}
	if _, problems := compile("", "response.status=401"); problems == nil {
		t.Error("when: may ask for what is known after the response only")
	}
	rule := plainRule()
	rule.CountWhen = "response.status=401"
	if _, problems := limit.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}}); problems == nil || problems[0][0].Code != "E168" {
		t.Errorf("without an engine: %v, want E168", problems)
	}
}

func TestMinGap(t *testing.T) {
	rule := plainRule()
	rule.MinGap, rule.Margin.SoftPercent = 200*time.Millisecond, 100
	r := compileRules(t, rule).Rules()[0]
	gap := r.Rates[len(r.Rates)-1]
	if gap.Name != "min_gap" || gap.Policy != rule.Name+".min_gap" || !gap.PerRequest || gap.Ceiling != 1 || !gap.Bucket() {
		t.Fatalf("the rate of a gap: %+v", gap)
	}
	e := &edge{rate: gap}
	for _, s := range []struct {
		at   time.Duration
		want bool
	}{{0, true}, {200*time.Millisecond - 1, false}, {200 * time.Millisecond, true}, {399 * time.Millisecond, false}, {time.Hour, true}} {
		if got := e.hit(1, epoch+int64(s.at)); got != s.want {
			t.Errorf("at %v: admitted %v, want %v", s.at, got, s.want)
		}
	}
	alone := compileRules(t, limit.RuleSpec{Name: "gap", MinGap: time.Second}).Rules()[0]
	if len(alone.Rates) != 1 {
		t.Errorf("a rule with a gap alone has %d rates", len(alone.Rates))
	}
}

func TestWordsOfRules(t *testing.T) {
	rule := plainRule()
	rule.Drop, rule.Charge, rule.Penalty, rule.Margin.SoftPercent = "probabilistic", "each", limit.Penalty{For: time.Minute}, 10
	r := compileRules(t, rule).Rules()[0]
	if r.Drop != limit.DropProbabilistic || r.Charge != limit.ChargeEach || r.Penalty.For != time.Minute {
		t.Errorf("compiled %v, %v, %+v", r.Drop, r.Charge, r.Penalty)
	}
	if r = compileRules(t, plainRule()).Rules()[0]; r.Drop != limit.DropHard || r.Charge != limit.ChargeAllOrNothing || r.Penalty != (limit.Penalty{}) || r.Elastic != nil {
		t.Errorf("without words: %v, %v, %+v, %v", r.Drop, r.Charge, r.Penalty, r.Elastic)
	}
	for name, tc := range map[string]struct {
		spoil      func(*limit.RuleSpec)
		code, path string
	}{
		"up to nothing": {func(s *limit.RuleSpec) { s.Margin.Elastic = limit.ElasticSpec{While: "capacity.a < 1%"} }, "E201", "margin.elastic.up_to"},
		"up to soft": {func(s *limit.RuleSpec) {
			s.Margin = limit.MarginSpec{SoftPercent: 50, Elastic: limit.ElasticSpec{UpToPercent: 50, While: "capacity.a < 1%"}}
		}, "E201", "margin.elastic.up_to"},
		"all reserved": {func(s *limit.RuleSpec) {
			s.Classes = limit.ClassesSpec{From: "c", Order: []string{"a", "b", "c"}, Reserve: map[string]float64{"b": 60, "c": 40}}
		}, "E214", "classes.reserve"},
		"up to no number":       {func(s *limit.RuleSpec) { s.Margin.Elastic = limit.ElasticSpec{math.NaN(), "capacity.a < 1%", ""} }, "E201", "margin.elastic.up_to"},
		"soft no number":        {func(s *limit.RuleSpec) { s.Margin.SoftPercent = math.NaN() }, "E134", "margin.soft"},
		"less than no capacity": {func(s *limit.RuleSpec) { s.Margin.Elastic = limit.ElasticSpec{50, "capacity.a < 0%", ""} }, "E204", "margin.elastic.while"},
		"near no number":        {func(s *limit.RuleSpec) { s.NearLimitPercent = math.Inf(1) }, "E209", "near_limit"},
		"two penalties":         {func(s *limit.RuleSpec) { s.Penalty = limit.Penalty{For: time.Second, UntilReset: true} }, "E211", "penalty"},
		"each of a bucket": {func(s *limit.RuleSpec) {
			s.Charge, s.Rates = "each", append(s.Rates, limit.RateSpec{Algorithm: "token_bucket", Capacity: 1, Refill: perSecond(1)})
		}, "E218", "charge"},
		"each of a gap": {func(s *limit.RuleSpec) { s.Charge, s.MinGap = "each", time.Second }, "E218", "charge"},
		"each of slots": {func(s *limit.RuleSpec) {
			s.Charge, s.Rates[0] = "each", limit.RateSpec{Algorithm: "concurrency", Limit: 1, Lease: time.Second}
		}, "E218", "charge"},
		"long penalty":   {func(s *limit.RuleSpec) { s.Penalty.For = 400 * 24 * time.Hour }, "E211", "penalty"},
		"nobody's class": {func(s *limit.RuleSpec) { s.Classes.Order = []string{"a", "b"} }, "E212", "classes.from"},
		"reserve no number": {func(s *limit.RuleSpec) {
			s.Classes = limit.ClassesSpec{From: "c", Order: []string{"a", "b"}, Reserve: map[string]float64{"b": math.NaN()}}
		}, "E214", "classes.reserve.b"},
		"nine rates": {func(s *limit.RuleSpec) {
			s.MinGap, s.Rates = time.Second, nil
			for i := range 8 {
				s.Rates = append(s.Rates, limit.RateSpec{Limit: 1, Per: time.Duration(i+1) * time.Second})
			}
		}, "E133", "rates"},
		"margin of a denial": {func(s *limit.RuleSpec) { s.Deny, s.Rates, s.Margin.SoftPercent = true, nil, 1 }, "E215", "margin"},
		"class of a pass": {func(s *limit.RuleSpec) {
			s.Allow, s.Rates, s.Classes.From = true, nil, "c"
		}, "E215", "classes"},
	} {
		rule := plainRule()
		tc.spoil(&rule)
		set, problems := limit.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}})
		if set != nil || len(problems) != 1 || len(problems[0]) != 1 || problems[0][0].Code != tc.code || problems[0][0].Path != "rules[0]."+tc.path {
			t.Errorf("%s: %v, want one problem, %s at %s", name, problems, tc.code, tc.path)
		}
	}
}
