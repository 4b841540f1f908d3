package rls_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
)

func TestDescriptorsAreDecided(t *testing.T) {
	rules := []limit.RuleSpec{minutely("user", 3, "user"), minutely("client", 2, "client_ip"), minutely("all", 5, "generic_key")}
	for name, steps := range map[string][]struct {
		descriptors []*rlv3.RateLimitDescriptor
		want        string
	}{
		"each of a user counts": {
			{[]*rlv3.RateLimitDescriptor{of("user=u1")}, "0 0"},
			{[]*rlv3.RateLimitDescriptor{of("user=u1"), of("user=u1")}, "0 00"},
			{[]*rlv3.RateLimitDescriptor{of("user=u1")}, "1 1"},
			{[]*rlv3.RateLimitDescriptor{of("user=u2")}, "0 0"},
		},
		"each descriptor is charged by itself": {
			{[]*rlv3.RateLimitDescriptor{costing(3, "user=u1"), of("generic_key=a")}, "0 00"},
			{[]*rlv3.RateLimitDescriptor{of("user=u1"), of("generic_key=a")}, "1 10"},
			{[]*rlv3.RateLimitDescriptor{costing(3, "generic_key=a")}, "0 0"},
			{[]*rlv3.RateLimitDescriptor{of("generic_key=a")}, "1 1"},
		},
		"all limits of a descriptor count": {
			{[]*rlv3.RateLimitDescriptor{costing(2, "user=u1", "remote_address=192.0.2.1")}, "0 0"},
			{[]*rlv3.RateLimitDescriptor{of("user=u1", "remote_address=192.0.2.1")}, "1 1"},
			{[]*rlv3.RateLimitDescriptor{of("user=u1")}, "0 0"}, // nothing was charged to the user
			{[]*rlv3.RateLimitDescriptor{of("user=u1")}, "1 1"},
		},
		"an address is a client by prefix": {
			{[]*rlv3.RateLimitDescriptor{costing(2, "remote_address=2001:db8::1")}, "0 0"},
			{[]*rlv3.RateLimitDescriptor{of("client_ip=2001:db8::2")}, "1 1"},
		},
		"zero hits look, and charge nothing": {
			{[]*rlv3.RateLimitDescriptor{costing(0, "user=u1"), costing(3, "user=u1"), costing(0, "user=u1")}, "1 001"},
		},
		"hits are given back": {
			{[]*rlv3.RateLimitDescriptor{costing(3, "user=u1")}, "0 0"},
			{[]*rlv3.RateLimitDescriptor{refunding(2, "user=u1"), of("user=u1")}, "0 00"},
			{[]*rlv3.RateLimitDescriptor{refunding(1000, "user=u1"), costing(3, "user=u1")}, "0 00"},
			{[]*rlv3.RateLimitDescriptor{refunding(0, "user=u1"), of("user=u1")}, "1 01"},
		},
		"more than the limit at once": {
			{[]*rlv3.RateLimitDescriptor{costing(math.MaxUint64, "user=u1")}, "1 1"},
			{[]*rlv3.RateLimitDescriptor{costing(3, "user=u1")}, "0 0"},
		},
		"keys that stand twice": {
			{[]*rlv3.RateLimitDescriptor{costing(5, "generic_key=a", "generic_key=b")}, "0 0"},
			{[]*rlv3.RateLimitDescriptor{of("generic_key=a,b"), of("generic_key=a"), of("generic_key=b")}, "1 100"},
		},
		"no rule applies": {
			{[]*rlv3.RateLimitDescriptor{costing(1000, "tenant=x"), of("user")}, "0 00"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, rules...)
			for i, step := range steps {
				if got := code(b.ask(step.descriptors...)); got != step.want {
					t.Errorf("step %d: %s, want %s", i+1, got, step.want)
				}
			}
		})
	}
}

// The hits of the request are those of descriptors that name none; nothing is one.
func TestHitsOfTheRequest(t *testing.T) {
	b := newBench(t, minutely("user", 10, "user"))
	left := func(hits uint32, d *rlv3.RateLimitDescriptor) uint32 {
		t.Helper()
		out, err := b.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*rlv3.RateLimitDescriptor{d}, HitsAddend: hits})
		if err != nil {
			t.Fatal(err)
		}
		return out.Statuses[0].LimitRemaining
	}
	for i, tt := range []struct {
		hits uint32
		d    *rlv3.RateLimitDescriptor
		want uint32
	}{
		{0, of("user=u"), 9},
		{1, of("user=u"), 8},
		{3, of("user=u"), 5},
		{3, costing(1, "user=u"), 4},
		{3, costing(0, "user=u"), 4},
		{math.MaxUint32, of("user=u"), 4}, // denied
		{2, refunding(5, "user=u"), 9},
	} {
		if got := left(tt.hits, tt.d); got != tt.want {
			t.Errorf("step %d: %d left, want %d", i+1, got, tt.want)
		}
	}
}

// A path comes as a client wrote it, who could miss its rule, or have counters of his own.
func TestPathsAreReadAsOriginsDo(t *testing.T) {
	b := newBench(t, limit.RuleSpec{Name: "login", Key: []string{"client_ip", "path"}, Match: limit.MatchSpec{Path: []string{"/login"}}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}})
	for i, path := range []string{"/login", "/login", "/login?x=1", "/%6Cogin", "//login", "/x/../login"} {
		r, err := b.ShouldRateLimit(context.Background(), &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*rlv3.RateLimitDescriptor{of("path="+path, "remote_address=192.0.2.1")}})
		if err != nil {
			t.Fatal(err)
		}
		if denied := r.OverallCode == rlsv3.RateLimitResponse_OVER_LIMIT; denied != (i > 0) {
			t.Errorf("request %d, of %s: denied %t", i+1, path, denied)
		}
	}
}

// So does a host, whose port and capitals a client chooses.
func TestHostsAreReadAsOverHTTP(t *testing.T) {
	b := newBench(t, limit.RuleSpec{Name: "site", Key: []string{"client_ip", "host"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}})
	for i, host := range []string{"shop.example", "shop.example:8443", "SHOP.example", "shop.example.", "other.example"} {
		r, err := b.ShouldRateLimit(context.Background(), &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*rlv3.RateLimitDescriptor{of("host="+host, "remote_address=192.0.2.1")}})
		if err != nil {
			t.Fatal(err)
		}
		if denied := r.OverallCode == rlsv3.RateLimitResponse_OVER_LIMIT; denied != (i > 0 && host != "other.example") {
			t.Errorf("request %d, of %s: denied %t", i+1, host, denied)
		}
	}
}

func TestStatusTellsTheLimit(t *testing.T) {
	rate := func(name string, most uint64, per time.Duration) limit.RuleSpec {
		r := minutely(name, most, name)
		r.Rates[0].Name, r.Rates[0].Per = "r", per
		return r
	}
	hidden, shadow := rate("hidden", 5, time.Minute), rate("shadow", 0, time.Minute)
	hidden.OnLimit.ShowHeaders, shadow.Mode = "none", "shadow"
	slots := limit.RuleSpec{Name: "slots", Group: "slots", Match: limit.MatchSpec{Has: []string{"slots"}}, Key: []string{"slots"},
		Rates: []limit.RateSpec{{Name: "r", Algorithm: "concurrency", Limit: 5, Lease: time.Minute}}}
	b := newBench(t, rate("second", 5, time.Second), rate("minute", 5, time.Minute), rate("ten", 5, 10*time.Minute), rate("hour", 5, time.Hour), rate("day", 5, 24*time.Hour),
		rate("week", 5, 7*24*time.Hour), rate("month", 5, 30*24*time.Hour), rate("odd", 5, 90*time.Second), rate("short", 5, 1500*time.Millisecond), rate("large", 1<<40, time.Minute),
		hidden, shadow, slots,
		limit.RuleSpec{Name: "free", Group: "free", Match: limit.MatchSpec{Has: []string{"free"}}, Allow: true},
		limit.RuleSpec{Name: "shut", Group: "shut", Match: limit.MatchSpec{Has: []string{"shut"}}, Deny: true})
	type told struct {
		name           string
		most           uint32
		unit           rlsv3.RateLimitResponse_RateLimit_Unit
		times          uint32
		left           uint32
		reset          time.Duration
		code           rlsv3.RateLimitResponse_Code
		noCurrentLimit bool
	}
	const over = rlsv3.RateLimitResponse_OVER_LIMIT
	for _, tt := range []struct {
		entry string
		want  told
	}{
		{"second", told{name: "second.r", most: 5, unit: 1, left: 4, reset: time.Second}},
		{"minute", told{name: "minute.r", most: 5, unit: 2, left: 4, reset: 45 * time.Second}},
		{"ten", told{name: "ten.r", most: 5, unit: 2, times: 10, left: 4, reset: 10*time.Minute - 15*time.Second}},
		{"hour", told{name: "hour.r", most: 5, unit: 3, left: 4, reset: time.Hour - 15*time.Second}},
		{"day", told{name: "day.r", most: 5, unit: 4, left: 4, reset: 24*time.Hour - 15*time.Second}},
		{"week", told{name: "week.r", most: 5, unit: 7, left: 4, reset: 7*24*time.Hour - 15*time.Second}},
		{"month", told{name: "month.r", most: 5, unit: 5, left: 4, reset: 30*24*time.Hour - 15*time.Second}},
		{"odd", told{name: "odd.r", most: 5, unit: 1, times: 90, left: 4, reset: 75 * time.Second}},
		{"short", told{name: "short.r", most: 5, left: 4, reset: 1500 * time.Millisecond}},
		{"large", told{name: "large.r", most: math.MaxUint32, unit: 2, left: math.MaxUint32, reset: 45 * time.Second}},
		{"slots", told{name: "slots.r", most: 5, left: 4, reset: time.Second}},
		{"hidden", told{noCurrentLimit: true}},
		{"shadow", told{noCurrentLimit: true}},
		{"free", told{noCurrentLimit: true}},
		{"shut", told{noCurrentLimit: true, code: over}},
	} {
		s := b.ask(of(tt.entry + "=x")).Statuses[0]
		got := told{
			name: s.CurrentLimit.GetName(), most: s.CurrentLimit.GetRequestsPerUnit(), unit: s.CurrentLimit.GetUnit(), times: s.CurrentLimit.GetUnitMultiplier().GetValue(),
			left: s.LimitRemaining, reset: s.DurationUntilReset.AsDuration(), code: s.Code, noCurrentLimit: s.CurrentLimit == nil,
		}
		if tt.want.code == 0 {
			tt.want.code = rlsv3.RateLimitResponse_OK
		}
		// Windows that are not aligned to minutes end some other time: within them.
		if w := tt.want.reset; tt.entry == "odd" || tt.entry == "short" || tt.entry == "week" || tt.entry == "month" {
			if got.reset <= 0 || got.reset > max(w, 30*24*time.Hour) {
				t.Errorf("%s: reset after %v", tt.entry, got.reset)
			}
			got.reset = w
		}
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.entry, got, tt.want)
		}
	}
}

// header is what the response's client is told, by name.
func header(out *rlsv3.RateLimitResponse) map[string]string {
	h := map[string]string{}
	for _, f := range out.ResponseHeadersToAdd {
		h[f.Key] = f.Value
	}
	return h
}

// A denied client is told as by HTTP: of the denial that lasts longest, how long that is,
// and why. Who asked is told which rule it was, be it that clients are not.
func TestDenialIsTold(t *testing.T) {
	hourly := minutely("hourly", 1, "tenant")
	hourly.Rates[0].Per = time.Hour
	secret := minutely("secret", 0, "secret")
	secret.OnLimit.ShowHeaders = "none"
	b := newBench(t, minutely("user", 1, "user"), hourly, secret)
	out := b.ask(of("user=u"), of("tenant=a"))
	if h := header(out); out.RawBody != nil || out.DynamicMetadata != nil || h["RateLimit"] != `"user.minute";r=0;t=45` || h["Retry-After"] != "" || h["Content-Type"] != "" {
		t.Errorf("admitted: %v, want the fields of the tightest and nothing else", out)
	}
	out = b.ask(of("user=u"), of("tenant=a"), of("user=v"))
	h := header(out)
	if code(out) != "1 110" || h["Retry-After"] != "3585" || h["RateLimit"] != `"hourly.minute";r=0;t=3585` || h["RateLimit-Policy"] != `"hourly.minute";q=1;w=3600` ||
		h["Content-Type"] != "application/problem+json" || h["Cache-Control"] != "no-store" {
		t.Errorf("%s, fields %v, want those of the tenant's limit", code(out), h)
	}
	var problem struct {
		Status     int
		Detail     string
		RetryAfter int      `json:"retry_after"`
		Violated   []string `json:"violated-policies"`
	}
	if err := json.Unmarshal(out.RawBody, &problem); err != nil || problem.Status != 429 || problem.RetryAfter != 3585 || strings.Join(problem.Violated, ",") != "hourly.minute" {
		t.Errorf("body %s: %v", out.RawBody, err)
	}
	m := out.DynamicMetadata.AsMap()
	if m["domain"] != domain || m["rule"] != "hourly" || m["policy"] != "hourly.minute" || m["retry_after"] != 3585.0 || m["limit"] != 1.0 || m["cut_off"] != false || !strings.Contains(string(out.RawBody), fmt.Sprintf("/v1/decisions/%v\"", m["decision_id"])) {
		t.Errorf("metadata %v", m)
	}
	out = b.ask(of("secret=s"))
	if text := string(out.RawBody) + out.Statuses[0].String(); code(out) != "1 1" || strings.Contains(text, "secret") || header(out)["RateLimit"] != "" {
		t.Errorf("%s, %s: a rule that is not shown is told", code(out), text)
	}
	if m := out.DynamicMetadata.AsMap(); m["rule"] != "secret" {
		t.Errorf("metadata %v, want the rule", m)
	}
}

const minute, hour = typev3.RateLimitUnit_MINUTE, typev3.RateLimitUnit_HOUR

// bringing is a descriptor with a limit of its own: so many in so many units.
func bringing(most uint32, unit typev3.RateLimitUnit, times uint32, entries ...string) *rlv3.RateLimitDescriptor {
	d := of(entries...)
	d.Limit = &rlv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: most, Unit: unit}
	if times != 1 {
		d.Limit.UnitMultiplier = wrapperspb.UInt32(times)
	}
	return d
}

// A limit that a descriptor brings is that of the rates over its window.
func TestDescriptorsBringLimits(t *testing.T) {
	rule := minutely("user", 3, "user")
	rule.Rates = append(rule.Rates, limit.RateSpec{Name: "ten", Limit: 100, Per: 10 * time.Minute, Algorithm: "fixed_window"})
	b := newBench(t, rule, minutely("free", 1, "free"))
	out := b.ask(bringing(5, minute, 1, "user=u"))
	if s := out.Statuses[0]; s.CurrentLimit.RequestsPerUnit != 5 || s.LimitRemaining != 4 {
		t.Errorf("%v, want 4 left of 5", s)
	}
	if got := code(b.ask(bringing(1, minute, 1, "user=u"), of("user=u"), of("user=u"), of("user=u"))); got != "1 1001" {
		t.Errorf("one a minute for one of them: %s, want 1 1001", got)
	}
	if got := code(b.ask(bringing(2, minute, 10, "user=w"), bringing(2, minute, 10, "user=w"), bringing(2, minute, 10, "user=w"))); got != "1 001" {
		t.Errorf("two in ten minutes: %s, want 1 001", got)
	}
	if got := code(b.ask(bringing(0, hour, 1, "nobody=u"), bringing(0, hour, 1, "user=x"))); got != "0 00" {
		t.Errorf("where nothing decides by it: %s, want 0 00", got)
	}
}

// A limit that no rate which applies is over decides by itself, and fails nothing.
func TestDescriptorsBringLimitsOfTheirOwn(t *testing.T) {
	node := compiled(t, limit.Options{DescriptorLimits: true},
		limit.Document{Namespace: domain, Rules: []limit.RuleSpec{minutely("user", 3, "user"), minutely("descriptor", 1, "descriptor")}},
		limit.Document{Namespace: "other", Rules: []limit.RuleSpec{minutely("user", 3, "user")}})
	b, set := benchOver(t, node), node.Rules()
	type call = []*rlv3.RateLimitDescriptor
	for _, step := range []struct {
		name, domain string
		asks         call
		want         string
	}{
		{"over another window than the rule's", domain, call{bringing(2, hour, 1, "user=u"), of("user=u"), bringing(2, hour, 1, "user=u"), bringing(2, hour, 1, "user=u")}, "1 0001 1,2,0,0"},
		{"by all entries", domain, call{bringing(2, hour, 1, "user=u", "path=/"), bringing(1, hour, 1, "user=u")}, "1 01 1,0"},
		{"in a domain of its own", "other", call{bringing(2, hour, 1, "user=u")}, "0 0 1"},
		{"where no rule applies", domain, call{bringing(1, minute, 1, "nobody=u"), bringing(1, minute, 1, "nobody=u"), bringing(0, minute, 1, "none=u")}, "1 011 0,0,0"},
		{"named as that by which it is found", domain, call{bringing(1, hour, 1, "descriptor=a"), of("descriptor=a"), of("descriptor=a")}, "1 001 0,0,0"},
		{"what is no window is passed over", domain, call{bringing(0, typev3.RateLimitUnit_UNKNOWN, 1, "user=v"), bringing(0, 99, 1, "user=v"), of("user=v")}, "0 000 2,1,0"},
		{"a multiple that is a unit", domain, call{bringing(1, typev3.RateLimitUnit_SECOND, 3600, "user=w"), bringing(1, hour, 1, "user=w"), bringing(9, minute, 0, "user=w")}, "1 010 0,0,8"},
		{"a multiple that is none is of one", domain, call{bringing(1, hour, 5, "user=x"), bringing(1, hour, math.MaxUint32, "user=x")}, "1 01 0,0"},
		{"it may cost more, and only be looked at", domain, call{{Entries: of("user=y").Entries, Limit: bringing(5, hour, 1).Limit, HitsAddend: wrapperspb.UInt64(3)}, {Entries: of("user=y").Entries, Limit: bringing(5, hour, 1).Limit, HitsAddend: wrapperspb.UInt64(0)}}, "0 00 2,2"},
	} {
		out, err := b.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: step.domain, Descriptors: step.asks})
		if err != nil || leftOf(out) != step.want {
			t.Errorf("%s: %v, %v, want %s", step.name, leftOf(out), err, step.want)
		}
	}
	out := b.ask(bringing(2, hour, 1, "user=z"))
	if l := out.Statuses[0].CurrentLimit; l.RequestsPerUnit != 2 || l.Unit != rlsv3.RateLimitResponse_RateLimit_HOUR || out.Statuses[0].DurationUntilReset.Seconds != 3585 {
		t.Errorf("%v, want 2 in the hour that ends in 3585 s", out.Statuses[0])
	}
	if set.Written() != 3 || len(set.Names()) != 2 || set.Namespace("(descriptors)") != nil {
		t.Errorf("%d rules, namespaces %v, want those that are written", set.Written(), set.Names())
	}
}

// A trial over the window of a limit that a descriptor brings leaves that as it is.
func TestTrialsTakeNoLimitThatIsBrought(t *testing.T) {
	hourly := limit.RateSpec{Limit: 500, Per: time.Hour, Algorithm: "fixed_window"}
	trial := minutely("trial", 3, "user")
	trial.Group, trial.Mode, trial.Rates = "trial", "shadow", []limit.RateSpec{hourly}
	tried := minutely("user", 10, "user")
	tried.Candidate = &limit.CandidateSpec{Rates: []limit.RateSpec{hourly}}
	for name, rules := range map[string][]limit.RuleSpec{"a rule": {minutely("user", 10, "user"), trial}, "a candidate": {tried}} {
		b := benchOver(t, compiled(t, limit.Options{DescriptorLimits: true}, limit.Document{Namespace: domain, Rules: rules}))
		if got := code(b.ask(bringing(2, hour, 1, "user=u"), bringing(2, hour, 1, "user=u"), bringing(2, hour, 1, "user=u"))); got != "1 001" {
			t.Errorf("%s: two in an hour: %s, want 1 001", name, got)
		}
	}
	alone := minutely("trial", 3, "user")
	alone.Mode = "shadow"
	b := newBench(t, alone)
	if got := code(b.ask(bringing(2, minute, 1, "user=u"), bringing(2, minute, 1, "user=u"), bringing(2, minute, 1, "user=u"))); got != "0 000" {
		t.Errorf("where trials are all that there is: %s, want 0 000", got)
	}
	list := limit.RuleSpec{Name: "list", Group: "list", Match: limit.MatchSpec{Has: []string{"user"}}, Allow: true}
	b = benchOver(t, compiled(t, limit.Options{DescriptorLimits: true}, limit.Document{Namespace: domain, Rules: []limit.RuleSpec{alone, list}}))
	if got := code(b.ask(bringing(2, minute, 1, "user=u"), bringing(2, minute, 1, "user=u"), bringing(2, minute, 1, "user=u"))); got != "0 000" {
		t.Errorf("trials beside a rule that allows: %s, want 0 000", got)
	}
}

// What counts responses counts none that Envoy has: a limit that is brought counts by itself
// then, or by the rule beside it.
func TestLimitsBroughtToRulesOfResponses(t *testing.T) {
	fails, api := minutely("fails", 5, "user"), minutely("api", 100, "user")
	fails.Group, fails.CountWhen = "fails", "response.status in [401]"
	for name, rules := range map[string][]limit.RuleSpec{"alone": {fails}, "beside another": {fails, api}} {
		b := benchOver(t, compiled(t, limit.Options{Conditions: when.Compile, DescriptorLimits: true}, limit.Document{Namespace: domain, Defaults: limit.Defaults{Scope: "edge"}, Rules: rules}))
		if got := code(b.ask(bringing(2, minute, 1, "user=u"), bringing(2, minute, 1, "user=u"), bringing(2, minute, 1, "user=u"))); got != "1 001" {
			t.Errorf("%s: %s, want 1 001", name, got)
		}
	}
}

func TestBadCallsAreRefused(t *testing.T) {
	b := newBench(t, minutely("user", 3, "user"))
	many := make([]*rlv3.RateLimitDescriptor, 101)
	for i := range many {
		many[i] = of("user=u")
	}
	for want, in := range map[string]*rlsv3.RateLimitRequest{
		"domain: is missing":                        {Descriptors: many[:1]},
		"descriptors: there are none":               {Domain: domain},
		"descriptors: 101 are too many":             {Domain: domain, Descriptors: many},
		"descriptors[1].entries: there are none":    {Domain: domain, Descriptors: []*rlv3.RateLimitDescriptor{of("user=u"), {}}},
		"descriptors[1].entries: 101 are too many":  {Domain: domain, Descriptors: []*rlv3.RateLimitDescriptor{of("user=u"), of(make([]string, 101)...)}},
		"descriptors[1].entries[1].key: is missing": {Domain: domain, Descriptors: []*rlv3.RateLimitDescriptor{of("user=u"), of("user=u", "=v")}},
	} {
		_, err := b.ShouldRateLimit(t.Context(), in)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want invalid argument: %s", err, want)
		}
	}
	if out := b.ask(costing(0, "user=u")); out.Statuses[0].LimitRemaining != 3 {
		t.Errorf("%v: what was refused was charged", out)
	}
	out, err := b.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "unknown", Descriptors: many[:3]})
	if err != nil || code(out) != "0 000" || out.Statuses[0].CurrentLimit != nil || out.Statuses[0].LimitRemaining != 0 {
		t.Errorf("an unknown domain: %v, %v, want OK and nothing else", out, err)
	}
	if got := b.counted("spillgate_decisions_total", "result", "error"); got != 7 {
		t.Errorf("%v calls counted as not decided, want 7", got)
	}
}

// counted is a counter of the bench's registry, of all series with a label's value.
func (b *bench) counted(name, label, value string) (sum float64) {
	b.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == label && l.GetValue() == value {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// A limiter that cannot decide is no denial: the call fails, and Envoy does what
// failure_mode_deny says.
func TestFaultsAreNoDenials(t *testing.T) {
	limiter := limitertest.New(t)
	b := benchOver(t, limiter)
	in := &rlsv3.RateLimitRequest{Domain: "acme", Descriptors: []*rlv3.RateLimitDescriptor{of("user=u")}}
	if _, err := b.ShouldRateLimit(t.Context(), in); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no rules") {
		t.Errorf("without rules: %v, want unavailable", err)
	}
	b = benchOver(t, panics{limitertest.New(t, limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{minutely("user", 3, "user")}})})
	if _, err := b.ShouldRateLimit(t.Context(), in); status.Code(err) != codes.Internal {
		t.Errorf("a limiter that panics: %v, want internal", err)
	}
}

// panics is a limiter with a bug.
type panics struct{ *limitertest.Limiter }

func (panics) CheckOrWait(time.Time, *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	panic("a bug")
}

// What a queue admits is answered when its turn comes; who cannot wait for that is given
// back what it was charged.
func TestQueuesHoldCallsBack(t *testing.T) {
	b := newBench(t, limit.RuleSpec{Name: "q", Key: []string{"user"}, Rates: []limit.RateSpec{
		{Name: "r", Algorithm: "leaky_bucket", Capacity: 2, Outflow: limit.Flow{Units: 1, Per: 100 * time.Millisecond}, Queue: true, MaxWait: time.Minute}}})
	began := time.Now()
	for range 2 {
		if got := code(b.ask(of("user=u"))); got != "0 0" {
			t.Fatal(got)
		}
	}
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("two that are 100ms apart took %v", took)
	}
	b = newBench(t, limit.RuleSpec{Name: "q", Key: []string{"user"}, Rates: []limit.RateSpec{
		{Name: "r", Algorithm: "leaky_bucket", Capacity: 3, Outflow: limit.Flow{Units: 1, Per: time.Hour}, Queue: true, MaxWait: 3 * time.Hour}}})
	b.ask(of("user=u"))
	for range 3 { // each takes two places, and gives both back
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := b.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*rlv3.RateLimitDescriptor{of("user=u"), of("user=u")}})
		cancel()
		if status.Code(err) != codes.DeadlineExceeded {
			t.Fatalf("a call that cannot wait for an hour: %v, want deadline exceeded", err)
		}
	}
}
