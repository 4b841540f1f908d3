package limit_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func plainRule() limit.RuleSpec {
	return limit.RuleSpec{Name: "a", Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}}
}

// One case for each code, by the smallest change to a document that is right.
func TestCompileNamesEachMistake(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*limit.Document)
		code  string
		path  string
	}{
		"namespace's name":  {func(d *limit.Document) { d.Namespace = "a b" }, "E101", "namespace"},
		"no rule":           {func(d *limit.Document) { d.Rules = nil }, "E103", "rules"},
		"rule's name":       {func(d *limit.Document) { d.Rules[0].Name = "" }, "E111", "rules[0].name"},
		"rule's name twice": {func(d *limit.Document) { d.Rules = append(d.Rules, plainRule()) }, "E112", "rules[1].name"},
		"two of one policy": {func(d *limit.Document) {
			d.Rules = append(d.Rules, plainRule())
			d.Rules[0].Name, d.Rules[0].Rates[0].Name, d.Rules[1].Name, d.Rules[1].Rates[0].Name = "a", "b.c", "a.b", "c"
		}, "E114", "rules[1].rates[0].name"},
		"key's name":            {func(d *limit.Document) { d.Keys = map[string]limit.KeySource{"a-b": {}} }, "E121", "keys.a-b"},
		"key's source":          {func(d *limit.Document) { d.Keys = map[string]limit.KeySource{"k": {From: []string{"ip", "x y"}}} }, "E122", "keys.k.from[1]"},
		"IPv4 prefix":           {func(d *limit.Document) { d.Keys = map[string]limit.KeySource{"k": {IPv4Prefix: 33}} }, "E123", "keys.k.ipv4_prefix"},
		"IPv6 prefix":           {func(d *limit.Document) { d.Keys = map[string]limit.KeySource{"k": {IPv6Prefix: -1}} }, "E123", "keys.k.ipv6_prefix"},
		"key of a rule":         {func(d *limit.Document) { d.Rules[0].Key = []string{"user", "a b"} }, "E124", "rules[0].key[1]"},
		"has":                   {func(d *limit.Document) { d.Rules[0].Match.Has = []string{""} }, "E124", "rules[0].match.has[0]"},
		"lacks":                 {func(d *limit.Document) { d.Rules[0].Match.Lacks = []string{"?"} }, "E124", "rules[0].match.lacks[0]"},
		"allow with rates":      {func(d *limit.Document) { d.Rules[0].Allow = true }, "E131", "rules[0].rates"},
		"no rates":              {func(d *limit.Document) { d.Rules[0].Rates = nil }, "E132", "rules[0].rates"},
		"nine rates":            {func(d *limit.Document) { d.Rules[0].Rates = nineRates() }, "E133", "rules[0].rates"},
		"network":               {func(d *limit.Document) { d.Rules[0].Match.CIDR = []string{"10.0.0.0/8", "10.0.0.0/33"} }, "E163", "rules[0].match.cidr[1]"},
		"network's host bits":   {func(d *limit.Document) { d.Rules[0].Match.CIDR = []string{"10.0.0.0/8", "::ffff:10.1.2.3/104"} }, "E169", "rules[0].match.cidr[1]"},
		"network of a zone":     {func(d *limit.Document) { d.Rules[0].Match.CIDR = []string{"fe80::1%eth0"} }, "E163", "rules[0].match.cidr[0]"},
		"network around mapped": {func(d *limit.Document) { d.Rules[0].Match.CIDR = []string{"::ffff:0:0/90"} }, "E163", "rules[0].match.cidr[0]"},
		"host":                  {func(d *limit.Document) { d.Rules[0].Match.Host = []string{"*.a", "a.*"} }, "E164", "rules[0].match.host[1]"},
		"host with a port":      {func(d *limit.Document) { d.Rules[0].Match.Host = []string{"a:80"} }, "E164", "rules[0].match.host[0]"},
		"empty host":            {func(d *limit.Document) { d.Rules[0].Match.Host = []string{"*."} }, "E164", "rules[0].match.host[0]"},
		"value":                 {func(d *limit.Document) { d.Rules[0].Match.Equals = map[string][]string{"a": {"x", ""}} }, "E165", "rules[0].match.equals.a[1]"},
		"no value":              {func(d *limit.Document) { d.Rules[0].Match.Equals = map[string][]string{"a": nil} }, "E165", "rules[0].match.equals.a"},
		"name of a value":       {func(d *limit.Document) { d.Rules[0].Match.Equals = map[string][]string{"a b": {"x"}} }, "E124", "rules[0].match.equals.a b"},
		"deny with rates":       {func(d *limit.Document) { d.Rules[0].Deny = true }, "E131", "rules[0].rates"},
		"allow and deny":        {func(d *limit.Document) { d.Rules[0].Allow, d.Rules[0].Deny, d.Rules[0].Rates = true, true, nil }, "E135", "rules[0].deny"},
		"multiplier of 0":       {func(d *limit.Document) { d.Tenants = map[string]limit.TenantSpec{"a": {}} }, "E191", "tenants.a.multiply"},
		"multiplier of NaN":     {func(d *limit.Document) { d.Tenants = map[string]limit.TenantSpec{"a": {Multiply: math.NaN()}} }, "E191", "tenants.a.multiply"},
		"17 multipliers":        {func(d *limit.Document) { d.Tenants = multipliers(17) }, "E192", "tenants.t17.multiply"},
		"no tenants":            {func(d *limit.Document) { d.Rules[0].TierFrom = "plan" }, "E193", "rules[0].tier_from"},
		"tenants for nothing": {func(d *limit.Document) {
			d.Tenants, d.Rules[0].TierFrom, d.Rules[0].Allow, d.Rules[0].Rates = multipliers(1), "plan", true, nil
		}, "E194", "rules[0].tier_from"},
		"limit times tenant": {func(d *limit.Document) {
			d.Tenants, d.Rules[0].TierFrom, d.Rules[0].Rates[0].Limit = multipliers(2), "plan", 1<<53
		}, "E195", "rules[0].tier_from"},
		"33 groups":              {func(d *limit.Document) { d.Rules = groupsApart(33) }, "E113", "rules[32].group"},
		"margin":                 {func(d *limit.Document) { d.Rules[0].Margin.SoftPercent = 1001 }, "E134", "rules[0].margin.soft"},
		"rate's name":            {func(d *limit.Document) { d.Rules[0].Rates[0].Name = "a b" }, "E141", "rules[0].rates[0].name"},
		"rate's name twice":      {func(d *limit.Document) { d.Rules[0].Rates = append(d.Rules[0].Rates, d.Rules[0].Rates[0]) }, "E142", "rules[0].rates[1].name"},
		"limit":                  {func(d *limit.Document) { d.Rules[0].Rates[0].Limit = 1<<53 + 1 }, "E143", "rules[0].rates[0].limit"},
		"margin on nothing":      {func(d *limit.Document) { d.Rules[0].Rates[0].Limit, d.Rules[0].Margin.SoftPercent = 0, 10 }, "E144", "rules[0].rates[0].limit"},
		"window too short":       {func(d *limit.Document) { d.Rules[0].Rates[0].Per = time.Millisecond }, "E145", "rules[0].rates[0].per"},
		"window of microseconds": {func(d *limit.Document) { d.Rules[0].Rates[0].Per = time.Second + time.Microsecond }, "E145", "rules[0].rates[0].per"},
		"slices":                 {func(d *limit.Document) { d.Rules[0].Rates[0].Slices = 1025 }, "E146", "rules[0].rates[0].slices"},
		"slices of a fixed window": {func(d *limit.Document) {
			d.Rules[0].Rates[0].Slices, d.Rules[0].Rates[0].Algorithm = 3, "fixed_window"
		}, "E147", "rules[0].rates[0].slices"},
		"oldest of a fixed window": {func(d *limit.Document) {
			d.Rules[0].Rates[0].Oldest, d.Rules[0].Rates[0].Algorithm = "full", "fixed_window"
		}, "E147", "rules[0].rates[0].oldest"},
		"align of sub-windows": {func(d *limit.Document) { d.Rules[0].Rates[0].Align = "epoch" }, "E147", "rules[0].rates[0].align"},
		"align": {func(d *limit.Document) {
			d.Rules[0].Rates[0].Align, d.Rules[0].Rates[0].Period, d.Rules[0].Rates[0].Per = "first_hit", "day", 0
		}, "E148", "rules[0].rates[0].align"},
		"defer for nothing": {func(d *limit.Document) { d.Rules[0].OnLimit.Defer.Methods = []string{"PUT"} }, "E317", "rules[0].on_limit.defer.for"},
		"defer too long":    {func(d *limit.Document) { d.Rules[0].OnLimit.Defer.For = 169 * time.Hour }, "E317", "rules[0].on_limit.defer.for"},
		"defer a 503": {func(d *limit.Document) {
			d.Rules[0].OnLimit.Defer.For, d.Rules[0].OnLimit.Status = time.Hour, 503
		}, "E318", "rules[0].on_limit.defer"},
		"defer a shadow": {func(d *limit.Document) { d.Rules[0].OnLimit.Defer.For, d.Rules[0].Mode = time.Hour, "shadow" }, "E318", "rules[0].on_limit.defer"},
		"defer what is counted": {func(d *limit.Document) {
			d.Rules[0].OnLimit.Defer.For, d.Rules[0].Rates[0].Algorithm, d.Rules[0].Rates[0].CountDenied = time.Hour, "sliding_log", true
		}, "E318", "rules[0].on_limit.defer"},
		"defer what counts each": {func(d *limit.Document) { d.Rules[0].OnLimit.Defer.For, d.Rules[0].Charge = time.Hour, "each" }, "E318", "rules[0].on_limit.defer"},
		"defer for a limit of 0": {func(d *limit.Document) {
			d.Rules[0].OnLimit.Defer.For, d.Rules[0].Rates[0].Limit = time.Hour, 0
		}, "E318", "rules[0].on_limit.defer"},
		"defer what": {func(d *limit.Document) { d.Rules[0].OnLimit.Defer = limit.DeferSpec{time.Hour, []string{"put"}} }, "E162", "rules[0].on_limit.defer.methods[0]"},
		"defer a barrier": {func(d *limit.Document) {
			d.Rules[0].OnLimit.Defer.For, d.Rules[0].Deny, d.Rules[0].Rates = time.Hour, true, nil
		}, "E318", "rules[0].on_limit.defer"},
		"status":             {func(d *limit.Document) { d.Rules[0].OnLimit.Status = 200 }, "E151", "rules[0].on_limit.status"},
		"header profile":     {func(d *limit.Document) { d.Rules[0].OnLimit.Headers = []string{"none", "draft-1"} }, "E152", "rules[0].on_limit.headers[1]"},
		"path":               {func(d *limit.Document) { d.Rules[0].Match.Path = []string{"/a", "b"} }, "E161", "rules[0].match.path[1]"},
		"stars":              {func(d *limit.Document) { d.Rules[0].Match.Path = []string{"/a*"} }, "E161", "rules[0].match.path[0]"},
		"path with a query":  {func(d *limit.Document) { d.Rules[0].Match.Path = []string{"/a?b=1"} }, "E161", "rules[0].match.path[0]"},
		"stars in the midst": {func(d *limit.Document) { d.Rules[0].Match.Path = []string{"/**/a"} }, "E161", "rules[0].match.path[0]"},
		"65 segments":        {func(d *limit.Document) { d.Rules[0].Match.Path = []string{strings.Repeat("/a", 65)} }, "E161", "rules[0].match.path[0]"},
		"method":             {func(d *limit.Document) { d.Rules[0].Match.Methods = []string{"get"} }, "E162", "rules[0].match.methods[0]"},
		"cost above max":     {func(d *limit.Document) { d.Rules[0].Cost = limit.CostSpec{Default: 3, Max: 2} }, "E171", "rules[0].cost.default"},
		"route above max": {func(d *limit.Document) {
			d.Rules[0].Cost = limit.CostSpec{ByRoute: map[string]uint64{"GET /a": 3}, Max: 2}
		}, "E171", "rules[0].cost.by_route.GET /a"},
		"route":             {func(d *limit.Document) { d.Rules[0].Cost.ByRoute = map[string]uint64{"GET a": 3} }, "E172", "rules[0].cost.by_route.GET a"},
		"algorithm":         {func(d *limit.Document) { d.Rules[0].Rates[0].Algorithm = "subwindows" }, "E180", "rules[0].rates[0].algorithm"},
		"default mode":      {func(d *limit.Document) { d.Defaults.Mode = "on" }, "E180", "defaults.mode"},
		"mode":              {func(d *limit.Document) { d.Rules[0].Mode = "on" }, "E180", "rules[0].mode"},
		"scope":             {func(d *limit.Document) { d.Rules[0].Rates[0].Scope = "world" }, "E180", "rules[0].rates[0].scope"},
		"rounding":          {func(d *limit.Document) { d.Rules[0].Rates[0].Round = "off" }, "E180", "rules[0].rates[0].round"},
		"oldest":            {func(d *limit.Document) { d.Rules[0].Rates[0].Oldest = "half" }, "E180", "rules[0].rates[0].oldest"},
		"show":              {func(d *limit.Document) { d.Rules[0].OnLimit.ShowHeaders = "some" }, "E180", "rules[0].on_limit.show_headers"},
		"consistency":       {func(d *limit.Document) { d.Rules[0].Consistency = "tight" }, "E180", "rules[0].consistency"},
		"default algorithm": {func(d *limit.Document) { d.Defaults.Algorithm = "sliding_logs" }, "E180", "defaults.algorithm"},
		"later scope":       {func(d *limit.Document) { d.Rules[0].Rates[0].Scope = "group:eu" }, "E181", "rules[0].rates[0].scope"},
	} {
		t.Run(name, func(t *testing.T) {
			doc := limit.Document{Namespace: "test", Rules: []limit.RuleSpec{plainRule()}}
			if _, problems := limit.Compile(doc); problems != nil {
				t.Fatalf("the document is wrong before it is broken: %v", problems)
			}
			tc.spoil(&doc)
			set, problems := limit.Compile(doc)
			if set != nil || len(problems) != 1 {
				t.Fatalf("Compile = %v, %v, want no set and the problems of one document", set, problems)
			}
			if p := problems[0]; len(p) != 1 || p[0].Code != tc.code || p[0].Path != tc.path || p[0].Detail == "" {
				t.Errorf("problems:\n%v\nwant one, %s at %s", p, tc.code, tc.path)
			}
		})
	}
}

func groupsApart(n int) []limit.RuleSpec {
	rules := make([]limit.RuleSpec, n)
	for i := range rules {
		rules[i] = plainRule()
		rules[i].Name, rules[i].Group = fmt.Sprint("r", i), fmt.Sprint("g", i)
	}
	return rules
}

func multipliers(n int) map[string]limit.TenantSpec {
	tenants := map[string]limit.TenantSpec{}
	for i := range n {
		tenants[fmt.Sprintf("t%02d", i+1)] = limit.TenantSpec{Multiply: float64(i + 1)}
	}
	return tenants
}

func nineRates() []limit.RateSpec {
	rates := make([]limit.RateSpec, 9)
	for i := range rates {
		rates[i] = limit.RateSpec{Limit: 1, Per: time.Duration(i+1) * time.Minute}
	}
	return rates
}

func TestCompileTellsEverythingOfEveryDocument(t *testing.T) {
	good := limit.Document{Namespace: "good", Rules: []limit.RuleSpec{plainRule()}}
	bad := limit.Document{Namespace: "", Defaults: limit.Defaults{Mode: "on"}, Rules: []limit.RuleSpec{plainRule(), plainRule()}}
	set, problems := limit.Compile(good, bad, good)
	if set != nil {
		t.Fatal("Compile returned a set in spite of problems")
	}
	var codes []string
	for _, ps := range problems {
		line := ""
		for _, p := range ps {
			line += p.Code + " "
		}
		codes = append(codes, strings.TrimSpace(line))
	}
	want := []string{"", "E101 E180 E112", "E102"} // the mode once, though two rules take it
	if strings.Join(codes, "|") != strings.Join(want, "|") {
		t.Errorf("codes by document %q, want %q", codes, want)
	}
}

func TestGenerationFollowsWhatACountMeans(t *testing.T) {
	base := func() limit.Document { return limit.Document{Namespace: "test", Rules: []limit.RuleSpec{plainRule()}} }
	generation := func(change func(*limit.Document)) uint64 {
		doc := base()
		change(&doc)
		set, problems := limit.Options{Conditions: statusIs}.Compile(doc)
		if problems != nil {
			t.Fatal(problems[0])
		}
		return set.Rules()[0].Rates[0].Generation
	}
	same := generation(func(*limit.Document) {})
	for name, change := range map[string]func(*limit.Document){
		"limit":    func(d *limit.Document) { d.Rules[0].Rates[0].Limit = 99 },
		"priority": func(d *limit.Document) { d.Rules[0].Priority = 9 },
		"mode":     func(d *limit.Document) { d.Rules[0].Mode = "shadow" },
		"margin":   func(d *limit.Document) { d.Rules[0].Margin.SoftPercent = 5 },
		"tenants":  func(d *limit.Document) { d.Tenants, d.Rules[0].TierFrom = multipliers(3), "plan" },
		"match": func(d *limit.Document) {
			d.Rules[0].Match = limit.MatchSpec{Path: []string{"/a"}, Host: []string{"a.example"}, CIDR: []string{"10.0.0.0/8"}, Equals: map[string][]string{"a": {"b"}}, Has: []string{"c"}}
		},
		"costs": func(d *limit.Document) {
			d.Rules[0].Cost = limit.CostSpec{Default: 2, ByRoute: map[string]uint64{"/a": 3}, Max: 9}
		},
		"key of no part": func(d *limit.Document) { d.Keys = map[string]limit.KeySource{"other": {From: []string{"header.X-A"}}} },
	} {
		if generation(change) != same {
			t.Errorf("a change of %s gives another generation, and so forgets every count", name)
		}
	}
	for name, change := range map[string]func(*limit.Document){
		"namespace":  func(d *limit.Document) { d.Namespace = "other" },
		"rule":       func(d *limit.Document) { d.Rules[0].Name = "b" },
		"key":        func(d *limit.Document) { d.Rules[0].Key = []string{"user"} },
		"generation": func(d *limit.Document) { d.Rules[0].Generation = 1 },
		"window":     func(d *limit.Document) { d.Rules[0].Rates[0].Per, d.Rules[0].Rates[0].Name = time.Hour, "1m" },
		"slices":     func(d *limit.Document) { d.Rules[0].Rates[0].Slices = 20 },
		"algorithm":  func(d *limit.Document) { d.Rules[0].Rates[0].Algorithm = "fixed_window" },
		"scope":      func(d *limit.Document) { d.Rules[0].Rates[0].Scope = "region" },
		"count_when": func(d *limit.Document) { d.Rules[0].CountWhen = "response.status=401" },
		"unit":       func(d *limit.Document) { d.Rules[0].Cost.FromHeader = "X-Bytes" },
	} {
		if generation(change) == same {
			t.Errorf("a change of %s keeps the generation, and so mixes counts of two meanings", name)
		}
	}
	counting := func(when, unit string) uint64 {
		return generation(func(d *limit.Document) { d.Rules[0].CountWhen, d.Rules[0].Cost.FromHeader = when, unit })
	}
	if counting("response.status=401", "") == counting("response.status=403", "") || counting("", "X-Bytes") == counting("", "X-Tokens") || counting("user=u", "") == counting("", "user") {
		t.Error("what counts other responses, or in another unit, has the same generation")
	}
	if counting("", "X-Bytes") != counting("", "x-bytes") {
		t.Error("a unit in lower case gives another generation")
	}
	perRequest := func(rate limit.RateSpec, unit string) uint64 {
		return generation(func(d *limit.Document) {
			d.Rules[0].Rates, d.Rules[0].Cost.FromHeader = []limit.RateSpec{rate}, unit
			if rate.Algorithm == "" {
				d.Rules[0].Rates, d.Rules[0].MinGap = nil, time.Second
			}
		})
	}
	for name, rate := range map[string]limit.RateSpec{"slots": {Algorithm: "concurrency", Limit: 5, Lease: time.Second}, "gaps": {}} {
		if perRequest(rate, "") != perRequest(rate, "X-Bytes") {
			t.Errorf("a unit gives %s, which count requests, another generation", name)
		}
	}
	keyed := func(keys map[string]limit.KeySource) uint64 {
		return generation(func(d *limit.Document) { d.Keys, d.Rules[0].Key = keys, []string{"who"} })
	}
	from := func(source limit.KeySource) uint64 { return keyed(map[string]limit.KeySource{"who": source}) }
	was := from(limit.KeySource{From: []string{"header.X-Tenant"}})
	if from(limit.KeySource{From: []string{"header.x-tenant"}}) != was || from(limit.KeySource{From: []string{"header.X-Tenant"}, IPv6Prefix: 48}) != was {
		t.Error("a header in lower case, or a prefix of what is no address, gives another generation")
	}
	seen := map[uint64]string{was: "a header"}
	for name, g := range map[string]uint64{
		"no source": keyed(nil), "another header": from(limit.KeySource{From: []string{"header.X-User"}}),
		"a second header": from(limit.KeySource{From: []string{"header.X-Tenant", "header.X-User"}}), "the other order": from(limit.KeySource{From: []string{"header.X-User", "header.X-Tenant"}}),
		"addresses": from(limit.KeySource{From: []string{"client_ip"}}), "an address in a header": from(limit.KeySource{From: []string{"header.X-Tenant"}, IP: true}),
		"networks": from(limit.KeySource{From: []string{"client_ip"}, IPv4Prefix: 24}), "networks of IPv6": from(limit.KeySource{From: []string{"client_ip"}, IPv6Prefix: 48}),
	} {
		if other := seen[g]; other != "" {
			t.Errorf("a key from %s has the generation of one from %s, and so mixes counts of two meanings", name, other)
		}
		seen[g] = name
	}
	if from(limit.KeySource{From: []string{"client_ip"}, IPv4Prefix: 32, IPv6Prefix: 64}) != from(limit.KeySource{From: []string{"client_ip"}}) {
		t.Error("the prefixes that hold anyway give another generation")
	}
}

// A build that names the counts of unchanged rules anew forgets all of them.
func TestGenerationsStay(t *testing.T) {
	for name, test := range map[string]struct {
		rate limit.RateSpec
		want uint64
	}{
		"a window": {limit.RateSpec{Limit: 1, Per: time.Minute}, 0xb590d8d69f1fbdad},
		"a month":  {limit.RateSpec{Limit: 1, Period: "month"}, 0x621b0775fcc71e6e},
		"a bucket": {limit.RateSpec{Algorithm: "token_bucket", Capacity: 9, Refill: limit.Flow{Units: 1, Per: time.Second}}, 0x8a043fd649b38c47},
		"slots":    {limit.RateSpec{Algorithm: "concurrency", Limit: 5, Lease: time.Second}, 0xe2da1999c19fd7b2},
	} {
		doc := limit.Document{Namespace: "test", Rules: []limit.RuleSpec{{Name: "a", Key: []string{"client_ip"}, Rates: []limit.RateSpec{test.rate}}}}
		set, problems := limit.Compile(doc)
		if problems != nil {
			t.Fatal(problems[0])
		}
		if got := set.Rules()[0].Rates[0].Generation; got != test.want {
			t.Errorf("%s: generation %#x, want %#x as builds before say", name, got, test.want)
		}
	}
}

func TestUnknownWordsHaveAString(t *testing.T) {
	for _, got := range []string{limit.Algorithm(99).String(), limit.Oldest(0).String(), limit.Rounding(9).String(), limit.Mode(0).String()} {
		if !strings.HasPrefix(got, "unknown (") {
			t.Errorf("String of an unknown value = %q", got)
		}
	}
}
