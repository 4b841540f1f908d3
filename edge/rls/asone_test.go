package rls_test

import (
	"fmt"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
)

// left says what is left of each descriptor's limit, after its code.
func left(out *rlsv3.RateLimitResponse) string {
	text := code(out)
	for _, s := range out.Statuses {
		text += fmt.Sprint(" ", s.LimitRemaining)
	}
	return text
}

// Where a domain says so, the descriptors of a call that one of them denies are charged nothing.
func TestDescriptorsAsOne(t *testing.T) {
	rule := func(name string, set func(*limit.RuleSpec)) limit.RuleSpec {
		r := minutely(name, 2, name)
		set(&r)
		return r
	}
	rules := []limit.RuleSpec{
		minutely("tenant", 2, "tenant"), minutely("user", 10, "user"),
		rule("each", func(r *limit.RuleSpec) { r.Charge = "each" }),
		rule("bucket", func(r *limit.RuleSpec) {
			r.Rates = []limit.RateSpec{{Algorithm: "token_bucket", Capacity: 5, Refill: limit.Flow{Units: 1, Per: time.Minute}}}
		}),
		rule("slot", func(r *limit.RuleSpec) {
			r.Rates = []limit.RateSpec{{Algorithm: "concurrency", Limit: 3, Lease: time.Minute}}
		}),
		rule("trial", func(r *limit.RuleSpec) { r.Mode = "shadow" }),
		rule("gap", func(r *limit.RuleSpec) { r.MinGap = time.Second }),
		rule("dear", func(r *limit.RuleSpec) { r.Cost.Default = 2 }),
		{Name: "banned", Group: "banned", Match: limit.MatchSpec{Has: []string{"banned"}}, Deny: true},
	}
	type step struct {
		ask  []*rlv3.RateLimitDescriptor
		want string
	}
	calls := func(d ...*rlv3.RateLimitDescriptor) []*rlv3.RateLimitDescriptor { return d }
	for name, steps := range map[string][]step{
		"the last one denies": {
			{calls(of("user=u"), of("tenant=a")), "0 00 9 1"},
			{calls(of("user=u"), of("tenant=a")), "0 00 8 0"},
			{calls(of("user=u"), of("tenant=a")), "1 01 8 0"},
			{calls(of("user=u"), of("tenant=a")), "1 01 8 0"},
			{calls(of("user=u"), of("tenant=b")), "0 00 7 1"},
		},
		"the first one denies": {
			{calls(of("tenant=a"), of("user=u")), "0 00 1 9"},
			{calls(costing(2, "tenant=a"), of("user=u")), "1 10 1 9"},
			{calls(of("tenant=a"), of("user=u")), "0 00 0 8"},
		},
		"both deny": {
			{calls(costing(3, "tenant=a"), costing(11, "user=u"), of("user=v")), "1 110 2 10 10"},
		},
		"two of one counter": {
			{calls(of("tenant=a"), of("tenant=a")), "0 00 1 0"},
			{calls(of("tenant=b")), "0 0 1"},
			{calls(of("tenant=b"), of("user=u"), of("tenant=b"), of("bucket=x")), "1 0010 1 10 0 5"},
			{calls(of("tenant=b"), costing(0, "user=u"), costing(0, "bucket=x")), "0 000 0 10 5"},
		},
		"of itself one is charged by its rule": {
			{calls(costing(2, "each=a")), "0 0 0"},
			{calls(of("each=a"), of("user=u")), "1 10 0 10"},
		},
		"buckets": {
			{calls(of("bucket=x"), of("tenant=a")), "0 00 4 1"},
			{calls(costing(4, "bucket=x"), costing(2, "tenant=a")), "1 01 4 1"},
			{calls(costing(5, "bucket=x"), of("tenant=a")), "1 10 4 1"},
			{calls(costing(4, "bucket=x"), of("tenant=a")), "0 00 0 0"},
		},
		"slots and gaps": {
			{calls(of("slot=x"), of("gap=x"), costing(3, "tenant=a")), "1 001 3 2 2"},
			{calls(of("slot=x"), of("gap=x"), of("tenant=a")), "0 000 2 1 1"},
			{calls(of("slot=x"), of("gap=x"), of("tenant=a")), "1 010 2 0 1"},
		},
		"a trial denies nothing": {
			{calls(costing(2, "trial=x"), of("user=u")), "0 00 0 9"},
			{calls(of("trial=x"), of("user=u")), "0 00 0 8"},
		},
		"a list denies": {
			{calls(of("banned=x"), of("user=u")), "1 10 0 10"},
		},
		"costs of a rule": {
			{calls(of("dear=x"), of("tenant=a")), "0 00 0 1"},
			{calls(of("tenant=a"), of("dear=x")), "1 01 1 0"},
		},
		"looks": {
			{calls(costing(0, "tenant=a"), of("user=u")), "0 00 2 9"},
			{calls(costing(2, "tenant=a"), of("user=u")), "0 00 0 8"},
			{calls(costing(0, "tenant=a"), of("user=u")), "1 10 0 8"},
			{calls(costing(0, "user=u"), of("tenant=a")), "1 01 8 0"},
		},
		"what gives back, or was spent, is heeded": {
			{calls(costing(2, "tenant=a"), of("user=u")), "0 00 0 9"},
			{calls(refunding(4, "user=u"), of("tenant=a"), of("user=v")), "1 010 10 0 10"},
			{calls(costing(3, "user=v", "spillgate.report=true"), of("tenant=a"), of("user=u")), "1 010 7 0 10"},
			{calls(refunding(1, "tenant=a"), of("tenant=a"), of("user=u")), "0 000 1 0 9"},
		},
		"limits that are brought": {
			{calls(bringing(1, typev3.RateLimitUnit_HOUR, 1, "user=u"), of("tenant=a")), "0 00 0 1"},
			{calls(of("tenant=a"), bringing(1, typev3.RateLimitUnit_HOUR, 1, "user=u")), "1 01 1 0"},
			{calls(bringing(1, typev3.RateLimitUnit_HOUR, 1, "user=v"), costing(2, "tenant=a")), "1 01 1 1"},
			{calls(bringing(1, typev3.RateLimitUnit_HOUR, 1, "user=v"), of("tenant=a")), "0 00 0 0"},
		},
		"nothing applies to one": {
			{calls(of("other=x"), of("tenant=a")), "0 00 0 1"},
			{calls(of("other=x"), costing(2, "tenant=a")), "1 01 0 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			defaults := limit.Defaults{Scope: "edge", Descriptors: "all_or_nothing"}
			b := benchOver(t, compiled(t, limit.Options{DescriptorLimits: true}, limit.Document{Namespace: domain, Defaults: defaults, Rules: rules}))
			for i, s := range steps {
				if got := left(b.ask(s.ask...)); got != s.want {
					t.Errorf("step %d: %s, want %s", i+1, got, s.want)
				}
			}
		})
	}
}

// A queue's places are taken where all pass, and those that wait do so; each descriptor is
// counted once, as it was decided.
func TestQueuesAsOne(t *testing.T) {
	queue := minutely("queue", 1, "queue")
	queue.Rates = []limit.RateSpec{{Algorithm: "leaky_bucket", Capacity: 5, Outflow: limit.Flow{Units: 1, Per: time.Minute}, Queue: true, MaxWait: 10 * time.Minute}}
	rules := []limit.RuleSpec{minutely("tenant", 1, "tenant"), queue}
	b := benchOver(t, compiled(t, limit.Options{}, limit.Document{Namespace: domain, Defaults: limit.Defaults{Scope: "edge", Descriptors: "all_or_nothing"}, Rules: rules}))
	for i, want := range []string{"0 00 4 0", "1 01 4 0", "1 01 4 0"} { // who had a place would wait for a minute
		if got := left(b.ask(of("queue=x"), of("tenant=a"))); got != want {
			t.Errorf("call %d: %s, want %s", i+1, got, want)
		}
	}
	for result, want := range map[string]float64{"deny": 2, "allow": 4} {
		if got := b.counted("spillgate_decisions_total", "result", result); got != want {
			t.Errorf("%v are counted as %s, want %v", got, result, want)
		}
	}
}

// saying is a node whose word on how things stand before a charge is one, be it true or not:
// calls come in between.
type saying struct {
	*edge.Node
	allowed bool
}

func (s saying) Check(now time.Time, req *limit.Request) limit.Decision {
	d := s.Node.Check(now, req)
	if req.Ahead {
		d.Allowed = s.allowed
	}
	return d
}

// What a call is told and charged does not depend on what it was told at first.
func TestAsOneWhateverComesBetween(t *testing.T) {
	rules := []limit.RuleSpec{minutely("tenant", 2, "tenant"), minutely("user", 10, "user")}
	for _, allowed := range []bool{true, false} {
		node := compiled(t, limit.Options{}, limit.Document{Namespace: domain, Defaults: limit.Defaults{Scope: "edge", Descriptors: "all_or_nothing"}, Rules: rules})
		b := benchOver(t, saying{node, allowed})
		for i, want := range []string{"0 000 9 1 9", "0 000 8 0 8", "1 010 8 0 8", "1 010 8 0 8"} {
			if got := left(b.ask(of("user=u"), of("tenant=a"), of("user=v"))); got != want {
				t.Errorf("all said to pass %t, call %d: %s, want %s", allowed, i+1, got, want)
			}
		}
	}
}

// Of a tree those alone are counted that are over their limit, as the reference does.
func TestTreesCountWhatIsOver(t *testing.T) {
	root := &limit.DescriptorSpec{Below: []limit.DescriptorSpec{
		{Key: "user", Limit: most(10)}, {Key: "tenant", Limit: most(2)},
		{Key: "shadow", Limit: with(most(1), func(l *limit.DescriptorLimit) { l.Shadow = true })},
		{Key: "free", Limit: &limit.DescriptorLimit{Unlimited: true}},
	}}
	b := benchOver(t, compiled(t, limit.Options{}, limit.Document{Namespace: domain, Defaults: limit.Defaults{Descriptors: "all_or_nothing"}, Descriptors: root}))
	for i, s := range []struct {
		ask  []*rlv3.RateLimitDescriptor
		want string
	}{
		{[]*rlv3.RateLimitDescriptor{of("user=u"), costing(2, "tenant=a"), of("free=x")}, "0 000 9,0,-"},
		{[]*rlv3.RateLimitDescriptor{of("user=u"), of("tenant=a"), of("free=x")}, "1 010 9,0,-"},
		{[]*rlv3.RateLimitDescriptor{of("tenant=a"), of("user=u"), of("user=v")}, "1 100 0,9,10"},
		{[]*rlv3.RateLimitDescriptor{costing(0, "user=u"), of("tenant=b")}, "0 00 9,1"},
		{[]*rlv3.RateLimitDescriptor{of("user=u"), of("shadow=x")}, "0 00 8,0"},
		{[]*rlv3.RateLimitDescriptor{of("user=u"), of("shadow=x")}, "0 00 8,0"},
		{[]*rlv3.RateLimitDescriptor{refunding(3, "user=u"), of("tenant=a")}, "1 01 10,0"},
		{[]*rlv3.RateLimitDescriptor{of("user=v"), bringing(1, typev3.RateLimitUnit_HOUR, 1, "user=w")}, "0 00 9,0"},
		{[]*rlv3.RateLimitDescriptor{of("user=v"), bringing(1, typev3.RateLimitUnit_HOUR, 1, "user=w")}, "1 01 9,0"},
	} {
		if got := leftOf(b.ask(s.ask...)); got != s.want {
			t.Errorf("step %d: %s, want %s", i+1, got, s.want)
		}
	}
}
