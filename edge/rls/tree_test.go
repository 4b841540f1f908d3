package rls_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/spillgate/spillgate/edge/limit"
)

// treeBench is a bench over a domain that is a tree of descriptors.
func treeBench(tb testing.TB, below ...limit.DescriptorSpec) *bench {
	tb.Helper()
	return benchOver(tb, compiled(tb, limit.Options{}, limit.Document{Namespace: domain, Descriptors: &limit.DescriptorSpec{Below: below}}))
}

// most is a limit of so many a minute.
func most(requests uint32) *limit.DescriptorLimit {
	return &limit.DescriptorLimit{Requests: requests, Unit: time.Minute}
}

// with is a limit with something changed.
func with(l *limit.DescriptorLimit, change func(*limit.DescriptorLimit)) *limit.DescriptorLimit {
	change(l)
	return l
}

// leftOf says which of the descriptors are over their limit, as code does, and what is
// left of each, "-" where no limit is told.
func leftOf(out *rlsv3.RateLimitResponse) string {
	var left []string
	for _, s := range out.Statuses {
		text := fmt.Sprint(s.LimitRemaining)
		if s.CurrentLimit == nil {
			text = "-"
		}
		left = append(left, text)
	}
	return code(out) + " " + strings.Join(left, ",")
}

func TestTreesAreDecidedAsTheReferenceDoes(t *testing.T) {
	type spec = limit.DescriptorSpec
	named := func(l *limit.DescriptorLimit, name string, replaces ...string) *limit.DescriptorLimit {
		return with(l, func(l *limit.DescriptorLimit) { l.Name, l.Replaces = name, replaces })
	}
	below := []spec{
		{Key: "user", Limit: most(3)},
		{Key: "user", Value: "banned", Limit: most(0)},
		{Key: "shadow", Limit: with(most(2), func(l *limit.DescriptorLimit) { l.Shadow = true })},
		{Key: "quota", Limit: with(most(1), func(l *limit.DescriptorLimit) { l.Quota = true })},
		{Key: "free", Limit: &limit.DescriptorLimit{Unlimited: true, Name: "free", Replaces: []string{"all"}}},
		{Key: "all", Limit: named(most(1), "all")},
		{Key: "vip", Limit: named(most(9), "vip", "all", "free")},
		{Key: "file", Value: "a*", Share: true, Limit: most(2)},
	}
	type call = []*rlv3.RateLimitDescriptor
	for name, steps := range map[string][]struct {
		descriptors call
		want        string
	}{
		"what is denied is counted": {
			{call{costing(2, "user=u")}, "0 0 1"},
			{call{costing(2, "user=u")}, "1 1 0"},
			{call{of("user=u")}, "1 1 0"},
			{call{of("user=v")}, "0 0 2"},
		},
		"all are counted, be one over its limit": {
			{call{costing(9, "user=u"), of("user=v")}, "1 10 0,2"},
			{call{of("user=v"), of("user=v"), of("user=v")}, "1 001 1,0,0"},
		},
		"none is a ban":                        {{call{of("user=banned")}, "1 1 0"}, {call{costing(0, "user=banned")}, "1 1 0"}},
		"a look at a ban that nobody met":      {{call{costing(0, "user=banned")}, "0 0 0"}},
		"no limit is met":                      {{call{of("other=x"), of("user=u", "path=/"), {}, of("=u")}, "0 0000 -,-,-,-"}},
		"a look is over where more is used":    {{call{costing(3, "user=u"), costing(0, "user=u")}, "0 00 0,0"}, {call{of("user=u"), costing(0, "user=u")}, "1 11 0,0"}},
		"a look takes nothing":                 {{call{costing(0, "user=u"), costing(3, "user=u"), of("user=u")}, "1 001 3,0,0"}},
		"a shadow admits, and counts":          {{call{costing(3, "shadow=s")}, "0 0 0"}, {call{costing(0, "shadow=s")}, "0 0 0"}},
		"a quota denies alone":                 {{call{of("quota=q")}, "0 0 0"}, {call{of("quota=q")}, "1 1 0"}},
		"one of two quotas denies nothing":     {{call{of("quota=q")}, "0 0 0"}, {call{of("quota=q"), of("quota=r"), of("user=u")}, "0 100 0,0,2"}},
		"two of two quotas deny":               {{call{of("quota=q"), of("quota=r")}, "0 00 0,0"}, {call{of("quota=q"), of("quota=r"), of("user=u")}, "1 110 0,0,2"}},
		"limits that others replace":           {{call{of("all=a"), of("vip=v")}, "0 00 -,8"}, {call{of("all=a")}, "0 0 0"}, {call{of("all=a")}, "1 1 0"}},
		"what is unlimited replaces, too":      {{call{of("all=a"), of("free=f")}, "0 00 -,-"}, {call{of("all=a")}, "0 0 0"}},
		"what is unlimited is never replaced":  {{call{of("free=f"), of("vip=v")}, "0 00 -,8"}},
		"values that a star matches may share": {{call{of("file=a1"), of("file=a2"), of("file=a3")}, "1 001 1,0,0"}},
		"hits are given back": {
			{call{costing(3, "user=u"), refunding(2, "user=u"), of("user=u")}, "0 000 0,2,1"},
			{call{refunding(9, "user=u"), refunding(1, "free=f"), refunding(1, "other=x")}, "0 000 3,-,-"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := treeBench(t, below...)
			for i, step := range steps {
				if got := leftOf(b.ask(step.descriptors...)); got != step.want {
					t.Errorf("step %d: %s, want %s", i+1, got, step.want)
				}
			}
		})
	}
}

func TestTreesTellTheirLimits(t *testing.T) {
	b := treeBench(t,
		limit.DescriptorSpec{Key: "month", Limit: &limit.DescriptorLimit{Name: "monthly", Requests: 5, Unit: 30 * 24 * time.Hour}},
		limit.DescriptorSpec{Key: "week", Limit: &limit.DescriptorLimit{Requests: math.MaxUint32, Unit: 7 * 24 * time.Hour}},
		limit.DescriptorSpec{Key: "free", Limit: &limit.DescriptorLimit{Unlimited: true}},
	)
	b.now = at.Add(400 * time.Millisecond)
	out := b.ask(of("month=x"), of("week=x"), of("free=x"))
	s := out.Statuses[0]
	const month = 30 * 24 * 3600
	if want := month - at.Unix()%month; s.CurrentLimit.Name != "monthly" || s.CurrentLimit.RequestsPerUnit != 5 || s.CurrentLimit.Unit != rlsv3.RateLimitResponse_RateLimit_MONTH ||
		s.LimitRemaining != 4 || s.DurationUntilReset.AsDuration() != time.Duration(want)*time.Second {
		t.Errorf("%v, want 4 of 5 a month, for %d s", s, want)
	}
	if s := out.Statuses[1]; s.CurrentLimit.Name != "" || s.CurrentLimit.Unit != rlsv3.RateLimitResponse_RateLimit_WEEK || s.LimitRemaining != math.MaxUint32-1 {
		t.Errorf("%v, want all but one of 2^32-1 a week, and no name", s)
	}
	if s := out.Statuses[2]; s.CurrentLimit != nil || s.LimitRemaining != math.MaxUint32 || s.DurationUntilReset != nil {
		t.Errorf("%v, want 2^32-1 left of no limit", s)
	}
	if len(out.ResponseHeadersToAdd) != 0 || out.RawBody != nil {
		t.Errorf("%v: it is no denial, and the reference adds no headers", out)
	}
}

// A denial tells the client when to try again, and whoever asked which rule it was.
func TestTreesTellDenials(t *testing.T) {
	b := treeBench(t, limit.DescriptorSpec{Key: "user", Limit: most(0)}, limit.DescriptorSpec{Key: "path", Limit: most(1)})
	out := b.ask(of("path=/"), of("user=u"))
	var problem struct{ Status int }
	if err := json.Unmarshal(out.RawBody, &problem); err != nil || problem.Status != 429 || header(out)["Retry-After"] == "" || header(out)["RateLimit"] != "" {
		t.Errorf("%v, %v: want a body, Retry-After, and no other limit's fields", out, err)
	}
	if m := out.DynamicMetadata.AsMap(); m["rule"] != "user" || m["policy"] != "user.minute" {
		t.Errorf("metadata %v, want the rule", m)
	}
}

// A limit that a descriptor brings takes the place of the tree's, and counts by itself.
func TestTreesTakeLimits(t *testing.T) {
	b := treeBench(t, limit.DescriptorSpec{Key: "user", Limit: with(most(1), func(l *limit.DescriptorLimit) { l.Shadow, l.Name = true, "name" })})
	brings := func(requests uint32, unit typev3.RateLimitUnit, entries ...string) *rlv3.RateLimitDescriptor {
		d := of(entries...)
		d.Limit = &rlv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
		return d
	}
	const hour = typev3.RateLimitUnit_HOUR
	out := b.ask(brings(2, hour, "user=u"), brings(2, hour, "user=u"), brings(2, hour, "user=u"), brings(0, hour, "any=a", "thing=b"), brings(3, hour, "user=u"))
	if got := leftOf(out); got != "1 00111 1,0,0,0,0" {
		t.Errorf("%s, want 1 00111 1,0,0,0,0", got)
	}
	if l := out.Statuses[0].CurrentLimit; l.Name != "" || l.RequestsPerUnit != 2 || l.Unit != rlsv3.RateLimitResponse_RateLimit_HOUR || out.Statuses[0].DurationUntilReset.Seconds != 3585 {
		t.Errorf("%v, want 2 an hour, without a name", out.Statuses[0])
	}
	if got := leftOf(b.ask(of("user=u"))); got != "0 0 0" {
		t.Errorf("without it %s, want 0 0 0", got)
	}
	// What is no unit is passed over, and so is a multiple that is none.
	odd := brings(2, typev3.RateLimitUnit_UNKNOWN, "user=v")
	if got := leftOf(b.ask(odd, of("user=v"))); got != "0 00 0,0" {
		t.Errorf("over no unit %s, want the tree's, 0 00 0,0", got)
	}
	if got := leftOf(b.ask(bringing(2, minute, 60, "user=w"), bringing(2, hour, 1, "user=w"), bringing(2, hour, 7, "user=w"))); got != "1 001 1,0,0" {
		t.Errorf("over 60 minutes, and over an hour twice: %s, want 1 001 1,0,0", got)
	}
}

// Limits tell what they are to tell of a call that they admit; of what several tell, the
// first counts.
func TestTreesTellMetadata(t *testing.T) {
	says := func(requests uint32, said map[string]any) *limit.DescriptorLimit {
		return with(most(requests), func(l *limit.DescriptorLimit) { l.Metadata = said })
	}
	b := treeBench(t,
		limit.DescriptorSpec{Key: "a", Limit: says(9, map[string]any{"plan": "gold", "route": map[string]any{"to": "x"}})},
		limit.DescriptorSpec{Key: "b", Limit: says(9, map[string]any{"plan": "none", "route": map[string]any{"to": "y", "by": 2.0}, "tags": []any{"t"}})},
		limit.DescriptorSpec{Key: "c", Limit: with(says(0, map[string]any{"never": true}), func(l *limit.DescriptorLimit) { l.Quota = true })},
	)
	for range 2 { // what is told does not change the rules
		out, err := b.ShouldRateLimit(context.Background(), &rlsv3.RateLimitRequest{
			Domain: domain, HitsAddend: 2, Descriptors: []*rlv3.RateLimitDescriptor{of("a=1"), costing(1, "b=1"), of("c=1"), {}}})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"plan": "gold", "route": map[string]any{"to": "x", "by": 2.0}, "tags": []any{"t"}}
		m := out.DynamicMetadata.AsMap()
		if !reflect.DeepEqual(m["metadata"], want) || m["domain"] != domain || m["hitsAddend"] != 2.0 {
			t.Errorf("metadata %v, want %v, the domain and 2 hits", m, want)
		}
		if text := fmt.Sprint(m["descriptors"]); text != "[map[entries:[a=1]] map[entries:[b=1] hitsAddend:1] map[entries:[c=1]] map[entries:[]]]" {
			t.Errorf("descriptors %s", text)
		}
	}
}
