package dataplane

import (
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	id    = map[string]string{"a": "A", "b": "B"}
)

func blanketRule(r typev3.RateLimitStrategy_BlanketRule) *typev3.RateLimitStrategy {
	return &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: r}}
}

func tokenBucket(most uint32, every time.Duration) *typev3.RateLimitStrategy {
	return &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_TokenBucket{TokenBucket: &typev3.TokenBucket{
		MaxTokens: most, TokensPerFill: wrapperspb.UInt32(2), FillInterval: durationpb.New(every),
	}}}
}

func perUnit(n uint64, unit typev3.RateLimitUnit) *typev3.RateLimitStrategy {
	return &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_RequestsPerTimeUnit_{
		RequestsPerTimeUnit: &typev3.RateLimitStrategy_RequestsPerTimeUnit{RequestsPerTimeUnit: n, TimeUnit: unit},
	}}
}

func assigned(s *typev3.RateLimitStrategy, ttl *durationpb.Duration) *quotav3.RateLimitQuotaResponse {
	return &quotav3.RateLimitQuotaResponse{BucketAction: []*quotav3.RateLimitQuotaResponse_BucketAction{{
		BucketId: &quotav3.BucketId{Bucket: id},
		BucketAction: &quotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
			QuotaAssignmentAction: &quotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{RateLimitStrategy: s, AssignmentTimeToLive: ttl},
		},
	}}}
}

func abandoned() *quotav3.RateLimitQuotaResponse {
	return &quotav3.RateLimitQuotaResponse{BucketAction: []*quotav3.RateLimitQuotaResponse_BucketAction{{
		BucketId:     &quotav3.BucketId{Bucket: id},
		BucketAction: &quotav3.RateLimitQuotaResponse_BucketAction_AbandonAction_{AbandonAction: &quotav3.RateLimitQuotaResponse_BucketAction_AbandonAction{}},
	}}}
}

// admits is how many of n requests pass.
func admits(p *Plane, now time.Time, n int) (passed int) {
	for range n {
		if p.Allow(now, id) {
			passed++
		}
	}
	return passed
}

// TestStrategies: what each admits of 100 requests at once, and of 100 a second later.
func TestStrategies(t *testing.T) {
	for _, c := range []struct {
		name       string
		strategy   *typev3.RateLimitStrategy
		now, later int
	}{
		{"none allows all", nil, 100, 100},
		{"an empty one allows all", &typev3.RateLimitStrategy{}, 100, 100},
		{"allow all", blanketRule(typev3.RateLimitStrategy_ALLOW_ALL), 100, 100},
		{"deny all", blanketRule(typev3.RateLimitStrategy_DENY_ALL), 0, 0},
		{"tokens", tokenBucket(10, 500*time.Millisecond), 10, 4},
		{"tokens that come slowly", tokenBucket(10, time.Hour), 10, 0},
		{"no tokens", tokenBucket(0, time.Hour), 0, 0},
		{"per second", perUnit(5, typev3.RateLimitUnit_SECOND), 5, 5},
		{"per minute", perUnit(5, typev3.RateLimitUnit_MINUTE), 5, 0},
		{"none per minute", perUnit(0, typev3.RateLimitUnit_MINUTE), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := New(Settings{Interval: time.Hour})
			p.Allow(start, id)
			p.Apply(start, assigned(c.strategy, nil))
			now, later := admits(p, start, 100), admits(p, start.Add(time.Second), 100)
			if now != c.now || later != c.later {
				t.Errorf("%d pass, and a second later %d, want %d and %d", now, later, c.now, c.later)
			}
		})
	}
}

// TestReports: the first request is reported at once with the domain, then each interval,
// and whenever anything new is assigned.
func TestReports(t *testing.T) {
	p := New(Settings{Domain: "d", Interval: time.Second, NoAssignment: blanketRule(typev3.RateLimitStrategy_DENY_ALL)})
	now := start
	expect := func(what, domain string, allowed, denied uint64) {
		t.Helper()
		out := p.Reports(now)
		if len(out.GetBucketQuotaUsages()) != 1 {
			t.Fatalf("%s: %v, want one report", what, out)
		}
		if u := out.BucketQuotaUsages[0]; out.Domain != domain || u.NumRequestsAllowed != allowed || u.NumRequestsDenied != denied || len(u.BucketId.Bucket) != 2 {
			t.Errorf("%s: %v", what, out)
		}
		if again := p.Reports(now); again != nil {
			t.Errorf("%s: and again %v", what, again)
		}
	}
	if out := p.Reports(now); out != nil {
		t.Errorf("without a request: %v", out)
	}
	p.Allow(now, id)
	expect("the first request", "d", 0, 1)
	now = now.Add(time.Second)
	expect("an interval", "", 0, 0)
	p.Apply(now, assigned(tokenBucket(3, time.Hour), durationpb.New(time.Minute)))
	admits(p, now, 5)
	expect("an assignment", "", 3, 2)
	p.Apply(now, assigned(tokenBucket(3, time.Hour), durationpb.New(time.Minute)))
	if out := p.Reports(now); out != nil || admits(p, now, 1) != 0 {
		t.Errorf("the same assignment: %v, want the one before to go on", out)
	}
	p.Apply(now, assigned(tokenBucket(4, time.Hour), durationpb.New(time.Minute)))
	expect("another assignment", "", 0, 1)
	p.Reconnected()
	expect("another stream", "d", 0, 0)
	p.Apply(now, abandoned())
	if p.Buckets() != 0 || p.Abandoned() != 1 {
		t.Errorf("after it is abandoned it is tracked")
	}
	p.Apply(now, assigned(tokenBucket(4, time.Hour), nil))
	if p.Buckets() != 0 {
		t.Error("an assignment of a bucket that is not tracked makes one")
	}
}

// By its timer it reports as Envoy does: a new bucket by itself, then all in one message each
// interval, and none for what it is assigned.
func TestReportsByTimer(t *testing.T) {
	p := New(Settings{Domain: "d", Interval: time.Second, ByTimer: true})
	now := start
	expect := func(what string, want ...int) {
		t.Helper()
		for _, n := range want {
			if out := p.Reports(now); len(out.GetBucketQuotaUsages()) != n {
				t.Fatalf("%s: %v, want %d reports", what, out, n)
			}
		}
		if out := p.Reports(now); out != nil {
			t.Fatalf("%s: and %v", what, out)
		}
	}
	p.Reconnected()
	p.Allow(now, id)
	expect("the first, of a new stream", 1, 1)
	now = now.Add(time.Second / 2)
	p.Allow(now, map[string]string{"a": "B"})
	p.Allow(now, map[string]string{"a": "C"})
	expect("new buckets", 1, 1)
	p.Apply(now, assigned(tokenBucket(3, time.Hour), durationpb.New(time.Minute)))
	p.Allow(now, id)
	expect("an assignment")
	now = now.Add(time.Second / 2)
	expect("an interval", 3)
	p.Apply(now, abandoned())
	now = now.Add(time.Second)
	expect("another, after one was abandoned", 2)
	p.Allow(now, id)
	p.Reconnected()
	expect("a new bucket on another stream", 1)
	now = now.Add(time.Second)
	expect("an interval, on another stream", 3)
}

// TestExpiry: an assignment ends with its time, and what follows is as it is set up.
func TestExpiry(t *testing.T) {
	deny := blanketRule(typev3.RateLimitStrategy_DENY_ALL)
	for _, c := range []struct {
		name                   string
		settings               Settings
		active, expired, after int // admitted of 5 asked at 1 s, at 10 s, and at 21 s
	}{
		{"abandoned at once", Settings{NoAssignment: nil}, 3, 5, 5},
		{"abandoned at once, and denied", Settings{NoAssignment: deny}, 3, 0, 0},
		{"the last one", Settings{ExpiredFor: 10 * time.Second, Reuse: true}, 3, 0, 5},
		{"a fallback", Settings{ExpiredFor: 10 * time.Second, Fallback: tokenBucket(2, time.Hour)}, 3, 2, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.settings.Interval = time.Hour
			p := New(c.settings)
			p.Allow(start, id)
			p.Apply(start, assigned(tokenBucket(3, time.Hour), durationpb.New(10*time.Second)))
			active, expired, after := admits(p, start.Add(time.Second), 5), admits(p, start.Add(10*time.Second), 5), admits(p, start.Add(21*time.Second), 5)
			if active != c.active || expired != c.expired || after != c.after {
				t.Errorf("%d, %d and %d pass, want %d, %d and %d", active, expired, after, c.active, c.expired, c.after)
			}
		})
	}
	p := New(Settings{Interval: time.Hour, NoAssignment: deny})
	p.Allow(start, id)
	p.Apply(start, assigned(nil, durationpb.New(0)))
	if p.Allow(start, id) {
		t.Error("an assignment of no time admits")
	}
}
