package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A request may have a rate decide by another limit; counts are everybody's, and
// who comes after is decided by the rule's own.
func TestOverride(t *testing.T) {
	for name, rate := range map[string]limit.RateSpec{
		"sub_windows":  {Name: "r", Limit: 10, Per: time.Hour},
		"token_bucket": {Name: "r", Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 10, Per: time.Hour}},
		"sliding_log":  {Name: "r", Algorithm: "sliding_log", Limit: 10, Per: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(rate))
			ask := func(limitOf uint64) limit.Decision {
				req := n.Rules().Only().NewRequest()
				defer req.Release()
				req.Set("user", "u")
				if limitOf > 0 {
					req.Override("api.r", limitOf)
				}
				return n.Check(start, req)
			}
			for i := range 3 {
				if d := ask(3); !d.Allowed || d.Limit != 3 || d.Remaining != uint64(2-i) {
					t.Fatalf("request %d by a limit of 3: %+v", i, d)
				}
			}
			if d := ask(3); d.Allowed || d.RetryAfter <= 0 {
				t.Fatalf("the fourth by a limit of 3: %+v, want denied", d)
			}
			for i := range 7 {
				if d := ask(0); !d.Allowed || d.Limit != 10 || d.Remaining != uint64(6-i) {
					t.Fatalf("request %d by the rule's own limit: %+v", i, d)
				}
			}
			if d := ask(0); d.Allowed {
				t.Fatalf("the eleventh by the rule's own limit: %+v", d)
			}
			if d := ask(12); !d.Allowed || d.Limit != 12 {
				t.Fatalf("the eleventh by a limit of 12: %+v", d)
			}
			if d := ask(limit.MaxLog + 1000); name == "sliding_log" && d.Limit != limit.MaxLog {
				t.Errorf("by more than a log remembers: a limit of %d, want %d told", d.Limit, limit.MaxLog)
			}
			if d := ask(0); d.Allowed {
				t.Fatalf("after a larger limit of another request: %+v, want denied", d)
			}
		})
	}
}

// What is reserved for a class, and what a margin adds, are parts of the limit
// that a request asks for.
func TestPartsOfAnOverride(t *testing.T) {
	rule := perUser(limit.RateSpec{Name: "r", Limit: 100, Per: time.Minute})
	rule.Classes = limit.ClassesSpec{From: "class", Order: []string{"low", "high"}, Reserve: map[string]float64{"high": 30}}
	rule.Margin.SoftPercent = 9.5
	for _, tc := range []struct {
		limit uint64
		class string
		want  int
	}{{0, "low", 79}, {1000, "low", 795}, {20, "low", 15}, {30, "low", 23}, {0, "high", 109}, {1000, "high", 1095}, {20, "high", 21}} {
		n, got := newNode(t, Config{}, rule), 0
		for range 1200 {
			req := n.Rules().Only().NewRequest()
			req.Set("user", "u")
			req.Set("class", tc.class)
			if tc.limit > 0 {
				req.Override("api.r", tc.limit)
			}
			if n.Check(start, req).Allowed {
				got++
			}
			req.Release()
		}
		if got != tc.want {
			t.Errorf("100, overridden to %d: %d of class %s admitted, want %d", tc.limit, got, tc.class, tc.want)
		}
	}
}

// There is no other min_gap for a request that names a limit for it, nor for those after it.
func TestGapsAreNotOverridden(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 10, Per: time.Hour})
	rule.MinGap = time.Minute
	n := newNode(t, Config{}, rule)
	gap := n.Rules().Rules()[0].Rates[0]
	for _, r := range n.Rules().Rules()[0].Rates {
		if r.PerRequest {
			gap = r
		}
	}
	most := gap.Limit
	for i, want := range []bool{true, false} {
		req := n.Rules().Only().NewRequest()
		req.Set("user", "u")
		req.Override(gap.Policy, 1000)
		if d := n.Check(start, req); d.Allowed != want || !gap.PerRequest || gap.Limit != most {
			t.Errorf("request %d: %+v, and a gap of %d, was %d", i, d, gap.Limit, most)
		}
		req.Release()
	}
}
