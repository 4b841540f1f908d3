package rls_test

import (
	"context"
	"strings"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/edge/limit"
)

// spending is a descriptor whose hits were spent.
func spending(hits uint64, entries ...string) *rlv3.RateLimitDescriptor {
	return costing(hits, append(entries, "spillgate.report=true")...)
}

// A user looks, and is charged by the end what it has cost, as Envoy's pair of rate_limits
// has it: whatever is left, so that what costs more than that is not free for ever.
func TestReportsAreCharged(t *testing.T) {
	for name, rate := range map[string]limit.RateSpec{
		"sub_windows":  {Limit: 1000, Per: time.Minute},
		"fixed_window": {Limit: 1000, Per: time.Minute, Algorithm: "fixed_window"},
		"token_bucket": {Algorithm: "token_bucket", Capacity: 1000, Refill: limit.Flow{Units: 1, Per: time.Minute}},
		"leaky_bucket": {Algorithm: "leaky_bucket", Capacity: 1000, Outflow: limit.Flow{Units: 1, Per: time.Minute}},
		"queue":        {Algorithm: "leaky_bucket", Capacity: 1000, Outflow: limit.Flow{Units: 1, Per: time.Minute}, Queue: true, MaxWait: 1000 * time.Minute},
		"strict":       {Limit: 1000, Per: time.Minute, Consistency: "strict"},
	} {
		t.Run(name, func(t *testing.T) {
			rate.Name = "r"
			b := newBench(t, limit.RuleSpec{Name: "tokens", Key: []string{"user"}, Rates: []limit.RateSpec{rate}})
			for i, left := range []uint32{700, 400, 100, 0} {
				if out := b.ask(costing(0, "user=u")); code(out) != "0 0" {
					t.Fatalf("look %d: %s, want that it passes", i+1, leftOf(out))
				}
				if out := b.ask(spending(300, "user=u")); code(out) != "0 0" || out.Statuses[0].LimitRemaining != left || out.RawBody != nil || len(out.ResponseHeadersToAdd) > 0 {
					t.Fatalf("report %d: %v, want OK, %d left, and nothing for a client", i+1, out, left)
				}
			}
			if out := b.ask(costing(1, "user=u"), of("user=v")); code(out) != "1 10" {
				t.Errorf("once it is used up: %s, want 1 10", code(out))
			}
			if out := b.ask(spending(300, "user=u")); code(out) != "0 0" {
				t.Errorf("a report of what has cost more: %s, want OK", code(out))
			}
			if got := b.counted("spillgate_reports_total", "kind", "charge"); got != 5 {
				t.Errorf("%v reports counted, want 5", got)
			}
		})
	}
}

// Who has no rights to a strict limit yet is charged what was spent, and does not wait for them.
func TestReportsAwaitNoRights(t *testing.T) {
	b := benchOver(t, compiled(t, limit.Options{}, limit.Document{Namespace: domain, Rules: []limit.RuleSpec{{Name: "tokens", Key: []string{"user"}, Rates: []limit.RateSpec{
		{Name: "r", Limit: 1000, Per: time.Minute, Consistency: "strict", StrictWait: 5 * time.Second},
	}}}}))
	ctx, done := context.WithTimeout(t.Context(), 2*time.Second)
	defer done()
	out, err := b.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*rlv3.RateLimitDescriptor{spending(300, "user=u")}})
	if err != nil || code(out) != "0 0" || b.counted("spillgate_reports_total", "kind", "charge") != 1 {
		t.Errorf("%v, %v, want OK, and one report", out, err)
	}
}

// A report is not what holds a slot: that is not charged, and its lease goes on.
func TestReportsTakeNoSlots(t *testing.T) {
	b := newBench(t, limit.RuleSpec{Name: "slots", Key: []string{"user"}, Rates: []limit.RateSpec{{Name: "r", Algorithm: "concurrency", Limit: 1, Lease: time.Minute}}})
	for range 2 {
		if out := b.ask(spending(300, "user=u")); code(out) != "0 0" || out.Statuses[0].CurrentLimit != nil {
			t.Errorf("%v, want OK of no limit", out)
		}
	}
	if out := b.ask(of("user=u"), of("user=u"), spending(1, "user=u")); code(out) != "1 010" {
		t.Errorf("%s, want one slot", code(out))
	}
}

func TestReportsBesideOthers(t *testing.T) {
	own := limit.Options{DescriptorLimits: true}
	rules := []limit.RuleSpec{minutely("user", 3, "user")}
	type call = []*rlv3.RateLimitDescriptor
	for name, steps := range map[string][]struct {
		asks call
		want string
	}{
		"each descriptor says it of itself":     {{call{spending(5, "user=u"), of("user=u"), of("user=v")}, "1 010 0,0,2"}},
		"what is denied beside is charged":      {{call{costing(4, "user=u"), spending(2, "user=u")}, "1 10 3,1"}},
		"without hits it is one":                {{call{of("user=u", "spillgate.report=true")}, "0 0 2"}},
		"none is a look, and OK":                {{call{spending(3, "user=u"), spending(0, "user=u"), of("user=u")}, "1 001 0,0,0"}},
		"what is given back is as without it":   {{call{spending(3, "user=u"), refunding(2, "user=u", "spillgate.report=true")}, "0 00 0,2"}},
		"where it stands does not matter":       {{call{costing(5, "spillgate.report=true", "user=u"), costing(0, "user=u")}, "1 01 0,0"}},
		"where no rule applies":                 {{call{spending(5, "other=x"), spending(5, "other=x")}, "0 00 -,-"}},
		"of a limit that the descriptor brings": {{call{reporting(bringing(5, hour, 1, "user=u"), 9), bringing(5, hour, 1, "user=u"), of("user=u")}, "1 010 0,0,2"}},
		"of one that takes a rate's place":      {{call{reporting(bringing(9, minute, 1, "user=u"), 5), bringing(9, minute, 1, "user=u"), of("user=u")}, "1 001 4,3,0"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := benchOver(t, compiled(t, own, limit.Document{Namespace: domain, Rules: rules}))
			for i, step := range steps {
				if got := leftOf(b.ask(step.asks...)); got != step.want {
					t.Errorf("step %d: %s, want %s", i+1, got, step.want)
				}
			}
		})
	}
}

// reporting is a descriptor with the entry, and so many hits.
func reporting(d *rlv3.RateLimitDescriptor, hits uint64) *rlv3.RateLimitDescriptor {
	report := spending(hits)
	d.Entries, d.HitsAddend = append(d.Entries, report.Entries...), report.HitsAddend
	return d
}

// To the reference it is an entry like any other.
func TestReportsAreNoneOfTrees(t *testing.T) {
	b := treeBench(t, limit.DescriptorSpec{Key: "user", Limit: most(3), Below: []limit.DescriptorSpec{{Key: "spillgate.report", Value: "no", Limit: most(1)}}})
	if got := leftOf(b.ask(spending(9, "user=u"), of("user=u", "spillgate.report=no"), of("spillgate.report=true"))); got != "0 000 -,0,-" {
		t.Errorf("%s, want the limit of the entry, 0 000 -,0,-", got)
	}
}

func TestReportsThatSayOtherwiseAreRefused(t *testing.T) {
	b := newBench(t, minutely("user", 3, "user"))
	for want, d := range map[string]*rlv3.RateLimitDescriptor{
		`descriptors[1].entries[1].value: spillgate.report is "true" alone`: of("user=u", "spillgate.report=yes"),
		"descriptors[1].entries: there are none but spillgate.report":       of("spillgate.report=true", "spillgate.report=true"),
	} {
		_, err := b.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*rlv3.RateLimitDescriptor{of("user=u"), d}})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want invalid argument: %s", err, want)
		}
	}
	if out := b.ask(costing(0, "user=u")); out.Statuses[0].LimitRemaining != 3 {
		t.Errorf("%v: what was refused was charged", out)
	}
}
