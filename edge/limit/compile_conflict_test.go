package limit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// queueOf is a leaky bucket that makes requests wait.
func queueOf(capacity uint64) limit.RateSpec {
	return limit.RateSpec{Algorithm: "leaky_bucket", Capacity: capacity, Outflow: perSecond(1), Queue: true}
}

var slots = limit.RateSpec{Algorithm: "concurrency", Limit: 5, Lease: time.Minute}

const onFailure = "response.status=401"

// Words that contradict one another are refused, each where it stands.
func TestConflictsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil      func(*limit.RuleSpec)
		code, path string
	}{
		"key twice":           {func(s *limit.RuleSpec) { s.Key = []string{"user", "client_ip", "user"} }, "E126", "key[2]"},
		"key that is lacking": {func(s *limit.RuleSpec) { s.Key, s.Match.Lacks = []string{"user"}, []string{"user"} }, "E166", "match.lacks"},
		"has and lacks":       {func(s *limit.RuleSpec) { s.Match.Has, s.Match.Lacks = []string{"user"}, []string{"org", "user"} }, "E166", "match.lacks"},
		"a value of what lacks": {func(s *limit.RuleSpec) {
			s.Match.Equals, s.Match.Lacks = map[string][]string{"user": {"u"}}, []string{"user"}
		}, "E166", "match.lacks"},
		"two methods": {func(s *limit.RuleSpec) {
			s.Match.Equals, s.Match.Methods = map[string][]string{"method": {"GET", "PUT"}}, []string{"POST"}
		}, "E166", "match.equals.method"},
		"two paths": {func(s *limit.RuleSpec) {
			s.Match.Equals, s.Match.Path = map[string][]string{"path": {"/a", "/b"}}, []string{"/c/**"}
		}, "E166", "match.equals.path"},
		"two hosts": {func(s *limit.RuleSpec) {
			s.Match.Equals, s.Match.Host = map[string][]string{"host": {"a.example"}}, []string{"b.example"}
		}, "E166", "match.equals.host"},
		"two addresses": {func(s *limit.RuleSpec) {
			s.Match.Equals, s.Match.CIDR = map[string][]string{"client_ip": {"192.0.2.1"}}, []string{"10.0.0.0/8"}
		}, "E166", "match.equals.client_ip"},
		"route of a small method": {func(s *limit.RuleSpec) { s.Cost.ByRoute = map[string]uint64{"post /x": 3} }, "E172", "cost.by_route.post /x"},
		"route of any method":     {func(s *limit.RuleSpec) { s.Cost.ByRoute = map[string]uint64{"ANY /x": 3} }, "E172", "cost.by_route.ANY /x"},
		"route with a query":      {func(s *limit.RuleSpec) { s.Cost.ByRoute = map[string]uint64{"/x?y=1": 3} }, "E172", "cost.by_route./x?y=1"},
		"route of no method": {func(s *limit.RuleSpec) {
			s.Cost.ByRoute, s.Match.Methods = map[string]uint64{"POST /x": 3, "/y": 2}, []string{"GET"}
		}, "E175", "cost.by_route.POST /x"},
		"route of no path": {func(s *limit.RuleSpec) {
			s.Cost.ByRoute, s.Match.Path = map[string]uint64{"/x": 3, "/*/y": 2}, []string{"/api/**"}
		}, "E175", "cost.by_route./x"},
		"margin above 2^53": {func(s *limit.RuleSpec) { s.Rates[0].Limit, s.Margin.SoftPercent = 1<<53, 100 }, "E143", "rates[0].limit"},
		"margin of a gap":   {func(s *limit.RuleSpec) { s.MinGap, s.Rates, s.Margin.SoftPercent = time.Second, nil, 50 }, "E220", "margin"},
		"near a gap":        {func(s *limit.RuleSpec) { s.MinGap, s.Rates, s.NearLimitPercent = time.Second, nil, 50 }, "E220", "near_limit"},
		"classes of a gap": {func(s *limit.RuleSpec) {
			s.MinGap, s.Rates, s.Classes = time.Second, nil, limit.ClassesSpec{From: "c", Order: []string{"x", "y"}, Reserve: map[string]float64{"y": 10}}
		}, "E220", "classes"},
		"queue by responses": {func(s *limit.RuleSpec) { s.CountWhen, s.Rates[0] = onFailure, queueOf(5) }, "E219", "rates[0].queue"},
		"slots by responses": {func(s *limit.RuleSpec) { s.CountWhen, s.Rates[0] = onFailure, slots }, "E219", "rates[0].algorithm"},
		"each of responses":  {func(s *limit.RuleSpec) { s.CountWhen, s.Charge = onFailure, "each" }, "E219", "charge"},
		"max_delay by responses": {func(s *limit.RuleSpec) {
			s.CountWhen, s.MinGap, s.MaxDelay, s.Rates = onFailure, time.Second, time.Second, nil
		}, "E219", "max_delay"},
	} {
		rule := plainRule()
		rule.Rates[0].Limit = 100
		tc.spoil(&rule)
		set, problems := limit.Options{Conditions: statusIs}.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}})
		if set != nil || len(problems[0]) != 1 {
			t.Errorf("%s: %v, want one problem", name, problems)
			continue
		}
		if p := problems[0][0]; p.Code != tc.code || strings.TrimPrefix(p.Path, "rules[0].") != tc.path || p.Hint == "" {
			t.Errorf("%s: %s %v, want %s at %s and a hint", name, p.Code, p, tc.code, tc.path)
		}
	}
}

func TestParentsThatLendNothingAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(parent, child *limit.RuleSpec)
		says  string
	}{
		"a limit of 0":          {func(p, _ *limit.RuleSpec) { p.Rates[0].Limit = 0 }, "limit of 0"},
		"a gap":                 {func(p, _ *limit.RuleSpec) { p.Rates, p.MinGap = nil, time.Second }, "keeps requests apart"},
		"a key that is lacking": {func(p, c *limit.RuleSpec) { p.Key, c.Match.Lacks = []string{"org"}, []string{"org"} }, "by a name that requests of this rule lack"},
	} {
		parent := limit.RuleSpec{Name: "p", Group: "p", Rates: []limit.RateSpec{{Limit: 50, Per: time.Minute}}}
		child := limit.RuleSpec{Name: "c", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}}, Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 100, Parent: "p"}}}
		if _, problems := limit.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{parent, child}}); problems != nil {
			t.Fatal(problems)
		}
		tc.spoil(&parent, &child)
		set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{parent, child}})
		if set != nil || len(problems[0]) != 1 || problems[0][0].Code != "E207" || problems[0][0].Path != "rules[1].margin.elastic.parent" || !strings.Contains(problems[0][0].Detail, tc.says) {
			t.Errorf("%s: %v, want one E207 that says %q", name, problems, tc.says)
		}
	}
}

// A parent with mistakes of its own is not told to have no limit, too.
func TestParentsWithMistakesAreToldOnce(t *testing.T) {
	parent := limit.RuleSpec{Name: "p", Group: "p", Rates: []limit.RateSpec{{Algorithm: "token_bucket", Capacity: 16, Refill: limit.Flow{Units: 1, Per: limit.MaxWindow}}}}
	child := limit.RuleSpec{Name: "c", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}}, Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 100, Parent: "p"}}}
	_, problems := limit.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{parent, child}})
	if len(problems) != 1 || len(problems[0]) != 1 || problems[0][0].Code != "E157" {
		t.Errorf("%v, want one E157", problems)
	}
}

// What may be meant, or works in part, is warned of.
func TestSlipsAreWarnedOf(t *testing.T) {
	elastic := limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 100, While: "capacity.a < 70%"}}
	impatient := limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 100, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true, MaxWait: 2 * time.Second}
	for name, tc := range map[string]struct {
		rule       limit.RuleSpec
		code, path string // "": no warning
	}{
		"cost above the limit":   {limit.RuleSpec{Cost: limit.CostSpec{Default: 10}, Rates: []limit.RateSpec{{Limit: 9, Per: time.Minute}}}, "W206", "cost.default"},
		"cost within a margin":   {limit.RuleSpec{Cost: limit.CostSpec{Default: 10}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}}, Margin: elastic}, "", ""},
		"cost that a tier pays":  {limit.RuleSpec{Cost: limit.CostSpec{Default: 10}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}}, TierFrom: "plan"}, "", ""},
		"route above the limit":  {limit.RuleSpec{Cost: limit.CostSpec{ByRoute: map[string]uint64{"/a": 9, "/b": 10}}, Rates: []limit.RateSpec{{Limit: 9, Per: time.Minute}}}, "W206", "cost.by_route./b"},
		"a limit of 0":           {limit.RuleSpec{Rates: []limit.RateSpec{{Limit: 0, Per: time.Minute}}}, "", ""},
		"a margin for one rate":  {limit.RuleSpec{Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}, {Limit: 5, Per: time.Minute}}, Margin: limit.MarginSpec{SoftPercent: 10}}, "W207", "margin.soft"},
		"elastic of nothing":     {limit.RuleSpec{Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}, Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 50, While: "capacity.a < 70%"}}}, "W207", "margin.elastic.up_to"},
		"elastic within soft":    {limit.RuleSpec{Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}}, Margin: limit.MarginSpec{SoftPercent: 10, Elastic: limit.ElasticSpec{UpToPercent: 15, While: "capacity.a < 70%"}}}, "W207", "margin.elastic.up_to"},
		"a margin for nobody":    {limit.RuleSpec{Rates: []limit.RateSpec{queueOf(5)}, Margin: limit.MarginSpec{SoftPercent: 50}}, "", ""},
		"a margin nobody waits":  {limit.RuleSpec{Rates: []limit.RateSpec{impatient}, Margin: limit.MarginSpec{SoftPercent: 50}}, "W262", "margin"},
		"near what nobody waits": {limit.RuleSpec{Rates: []limit.RateSpec{impatient}, NearLimitPercent: 80}, "W262", "near_limit"},
		"near what some wait":    {limit.RuleSpec{Rates: []limit.RateSpec{impatient}, NearLimitPercent: 3}, "", ""},
		"shadow with a penalty":  {limit.RuleSpec{Mode: "shadow", Penalty: limit.Penalty{For: time.Minute}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}}}, "W208", "penalty"},
		"a penalty by leases":    {limit.RuleSpec{Penalty: limit.Penalty{UntilReset: true}, Rates: []limit.RateSpec{{Name: "s", Algorithm: "concurrency", Limit: 5, Lease: time.Hour}}}, "W264", "penalty"},
		"a penalty of days":      {limit.RuleSpec{Penalty: limit.Penalty{For: 49 * time.Hour}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}, {Limit: 50, Per: 3 * time.Hour}}}, "W217", "penalty"},
		"a penalty of windows":   {limit.RuleSpec{Penalty: limit.Penalty{For: 48 * time.Hour}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}, {Limit: 50, Per: 3 * time.Hour}}}, "", ""},
		"penalties of an edge":   {limit.RuleSpec{Penalty: limit.Penalty{For: 49 * time.Hour}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute, Scope: "edge"}}}, "", ""},
		"shadow with a queue":    {limit.RuleSpec{Mode: "shadow", Rates: []limit.RateSpec{queueOf(5)}}, "W208", "rates[0].queue"},
		"a prime window":         {limit.RuleSpec{Rates: []limit.RateSpec{{Limit: 5, Per: 1009 * time.Millisecond}}}, "W202", "rates[0].per"},
		"a prime lease":          {limit.RuleSpec{Rates: []limit.RateSpec{{Algorithm: "concurrency", Limit: 5, Lease: 1009 * time.Millisecond}}}, "W202", "rates[0].lease"},
		"a prime fixed window":   {limit.RuleSpec{Rates: []limit.RateSpec{{Algorithm: "fixed_window", Limit: 5, Per: 1009 * time.Millisecond}}}, "", ""},
		"a short window":         {limit.RuleSpec{Rates: []limit.RateSpec{{Limit: 5, Per: 100 * time.Millisecond}}}, "", ""},
		"one slice, as asked":    {limit.RuleSpec{Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute, Slices: 1}}}, "", ""},
		"a rate in vain":         {limit.RuleSpec{Rates: []limit.RateSpec{{Name: "x", Limit: 20, Per: time.Minute}, {Name: "y", Limit: 10, Per: time.Minute}}}, "W210", "rates[0]"},
		"the same rate twice":    {limit.RuleSpec{Rates: []limit.RateSpec{{Name: "x", Limit: 10, Per: time.Minute}, {Name: "y", Limit: 10, Per: time.Minute}}}, "W210", "rates[1]"},
		"two scopes":             {limit.RuleSpec{Rates: []limit.RateSpec{{Name: "x", Limit: 20, Per: time.Minute}, {Name: "y", Limit: 10, Per: time.Minute, Scope: "edge"}}}, "", ""},
		"too short a wait":       {limit.RuleSpec{Rates: []limit.RateSpec{{Algorithm: "leaky_bucket", Capacity: 50, Outflow: perSecond(2), Queue: true, MaxWait: 499 * time.Millisecond}}}, "W211", "rates[0].max_wait"},
		"too short a delay":      {limit.RuleSpec{MaxDelay: 100 * time.Millisecond, Rates: []limit.RateSpec{{Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(1)}}}, "W211", "max_delay"},
		"a delay that may do":    {limit.RuleSpec{MaxDelay: 101 * time.Millisecond, Rates: []limit.RateSpec{{Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(1)}}}, "", ""},
		"a delay for gold":       {limit.RuleSpec{MaxDelay: 100 * time.Millisecond, Rates: []limit.RateSpec{{Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(1)}}, TierFrom: "plan", Key: []string{"plan"}}, "", ""},
		"too short a penalty":    {limit.RuleSpec{Penalty: limit.Penalty{For: 6 * time.Second}, Rates: []limit.RateSpec{{Limit: 60, Per: time.Hour}}}, "W246", "penalty"},
		"penalty for a bucket":   {limit.RuleSpec{Penalty: limit.Penalty{For: 100 * time.Millisecond}, Rates: []limit.RateSpec{{Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(1)}}}, "W246", "penalty"},
		"penalty for a gap":      {limit.RuleSpec{Penalty: limit.Penalty{For: 100 * time.Millisecond}, MinGap: time.Second}, "W246", "penalty"},
		"penalty in a window":    {limit.RuleSpec{Penalty: limit.Penalty{For: 6 * time.Second}, Rates: []limit.RateSpec{{Algorithm: "fixed_window", Limit: 60, Per: time.Minute}}}, "W246", "penalty"},
		"a penalty that is felt": {limit.RuleSpec{Penalty: limit.Penalty{For: 7 * time.Second}, Rates: []limit.RateSpec{{Limit: 60, Per: time.Hour}}}, "", ""},
		"a penalty of many":      {limit.RuleSpec{Penalty: limit.Penalty{For: time.Second}, Rates: []limit.RateSpec{{Limit: 60, Per: time.Hour}, {Limit: 10, Per: time.Second}}}, "", ""},
		"a penalty by chance":    {limit.RuleSpec{Penalty: limit.Penalty{For: time.Second}, Drop: "probabilistic", Margin: limit.MarginSpec{SoftPercent: 10}, Rates: []limit.RateSpec{{Limit: 60, Per: time.Hour}}}, "", ""},
		"a penalty, or room":     {limit.RuleSpec{Penalty: limit.Penalty{For: time.Second}, Margin: elastic, Rates: []limit.RateSpec{{Limit: 60, Per: time.Hour}}}, "", ""},
		"a penalty of slots":     {limit.RuleSpec{Penalty: limit.Penalty{For: time.Second}, Rates: []limit.RateSpec{{Algorithm: "concurrency", Limit: 5, Lease: time.Hour}}}, "", ""},
		"a penalty of none":      {limit.RuleSpec{Penalty: limit.Penalty{For: time.Second}, Rates: []limit.RateSpec{{Limit: 0, Per: time.Hour}}}, "", ""},
		"none beside another":    {limit.RuleSpec{Allow: true, OnLimit: limit.OnLimitSpec{Headers: []string{"github", "none"}}}, "W245", "on_limit.headers[1]"},
		"headers named twice":    {limit.RuleSpec{Allow: true, OnLimit: limit.OnLimitSpec{Headers: []string{"github", "ietf-06", "github"}}}, "W245", "on_limit.headers[2]"},
		"headers at odds":        {limit.RuleSpec{Allow: true, OnLimit: limit.OnLimitSpec{Headers: []string{"draft-11", "envoy", "github"}}}, "W247", "on_limit.headers[2]"},
		"headers at odds, too":   {limit.RuleSpec{Allow: true, OnLimit: limit.OnLimitSpec{Headers: []string{"x-ratelimit", "envoy"}}}, "W247", "on_limit.headers[1]"},
		"headers that are hid":   {limit.RuleSpec{Allow: true, OnLimit: limit.OnLimitSpec{Headers: []string{"github", "github"}, ShowHeaders: "none"}}, "W245", "on_limit.headers"},
		"no headers at all":      {limit.RuleSpec{Allow: true, OnLimit: limit.OnLimitSpec{Headers: []string{"none"}, ShowHeaders: "none"}}, "", ""},
		"two sets of headers":    {limit.RuleSpec{Allow: true, OnLimit: limit.OnLimitSpec{Headers: []string{"github", "draft-11"}}}, "", ""},
		"a host beyond ASCII":    {limit.RuleSpec{Allow: true, Match: limit.MatchSpec{Host: []string{"*.münchen.de"}}}, "W244", "match.host[0]"},
		"it in punycode":         {limit.RuleSpec{Allow: true, Match: limit.MatchSpec{Host: []string{"*.xn--mnchen-3ya.de"}}}, "", ""},
		"host equals beyond it":  {limit.RuleSpec{Allow: true, Match: limit.MatchSpec{Equals: map[string][]string{"host": {"münchen.de"}}}}, "W244", "match.equals.host[0]"},
		"path without a slash":   {limit.RuleSpec{Allow: true, Match: limit.MatchSpec{Equals: map[string][]string{"path": {"/a", "*", "api"}}}}, "W215", "match.equals.path[2]"},
		"a network as text":      {limit.RuleSpec{Match: limit.MatchSpec{Equals: map[string][]string{"ip": {"home", "2001:db8::/32"}}}, Allow: true}, "W213", "match.equals.ip"},
		"of many, a network":     {limit.RuleSpec{Match: limit.MatchSpec{Equals: map[string][]string{"peer": {"10.0.0.0/8"}}}, Allow: true}, "", ""},
		"an address as text":     {limit.RuleSpec{Match: limit.MatchSpec{Equals: map[string][]string{"ip": {"home", "::1"}}}, Allow: true}, "W213", "match.equals.ip"},
		"no address as text":     {limit.RuleSpec{Match: limit.MatchSpec{Equals: map[string][]string{"ip": {"home"}}}, Allow: true}, "", ""},
		"of many sources":        {limit.RuleSpec{Match: limit.MatchSpec{Equals: map[string][]string{"peer": {"::1"}}}, Allow: true}, "", ""},
		"an edge's own, cut":     {limit.RuleSpec{Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute, Scope: "edge", OnPartition: "closed"}}}, "W218", "rates[0].on_partition"},
		"all edges' own, cut":    {limit.RuleSpec{OnPartition: "closed", Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute, Scope: "local"}, {Limit: 50, Per: time.Hour, Scope: "edge"}}}, "W218", "on_partition"},
		"one edge's own, cut":    {limit.RuleSpec{OnPartition: "closed", Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute, Scope: "edge"}, {Limit: 50, Per: time.Hour, Scope: "region"}}}, "", ""},
		"tenants for nobody":     {limit.RuleSpec{Group: "tenants", Allow: true}, "W212", "tenants"},
		"a wait for one":         {limit.RuleSpec{Rates: []limit.RateSpec{{Algorithm: "leaky_bucket", Capacity: 50, Outflow: perSecond(2), Queue: true, MaxWait: 500 * time.Millisecond}}}, "", ""},
	} {
		tc.rule.Name = "r"
		doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{tc.rule}, Keys: map[string]limit.KeySource{
			"ip": {From: []string{"client_ip"}}, "peer": {From: []string{"header.X-Peer", "client_ip"}},
		}}
		if tc.rule.TierFrom != "" || tc.rule.Group == "tenants" {
			doc.Tenants = map[string]limit.TenantSpec{"gold": {Multiply: 2}}
		}
		set, problems := limit.Compile(doc)
		if problems != nil {
			t.Errorf("%s: %v", name, problems)
			continue
		}
		got := ""
		for _, w := range set.Warnings()[0] {
			got += w.Code + " " + strings.TrimPrefix(w.Path, "rules[0].")
			if w.Hint == "" {
				t.Errorf("%s: %v has no hint", name, w)
			}
		}
		if got != strings.TrimSpace(tc.code+" "+tc.path) {
			t.Errorf("%s: warned of %q, want %s at %s", name, got, tc.code, tc.path)
		}
	}
}
