package edge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// everyKind is a limit of most in a minute, in every algorithm.
func everyKind(most uint64) map[string]limit.RateSpec {
	flow := limit.Flow{Units: most, Per: time.Minute}
	return map[string]limit.RateSpec{
		"fixed_window":   {Name: "r", Algorithm: "fixed_window", Limit: most, Per: time.Minute},
		"first_hit":      {Name: "r", Algorithm: "fixed_window", Align: "first_hit", Limit: most, Per: time.Minute},
		"sliding_window": {Name: "r", Algorithm: "sliding_window", Limit: most, Per: time.Minute},
		"sub_windows":    {Name: "r", Limit: most, Per: time.Minute},
		"sliding_log":    {Name: "r", Algorithm: "sliding_log", Limit: most, Per: time.Minute},
		"concurrency":    {Name: "r", Algorithm: "concurrency", Limit: most, Lease: time.Minute},
		"token_bucket":   {Name: "r", Algorithm: "token_bucket", Capacity: most, Refill: flow},
		"initial":        {Name: "r", Algorithm: "token_bucket", Capacity: most, Refill: flow, Initial: 3 * most},
		"leaky_bucket":   {Name: "r", Algorithm: "leaky_bucket", Capacity: most, Outflow: flow},
		"queue":          {Name: "r", Algorithm: "leaky_bucket", Capacity: most, Outflow: flow, Queue: true},
	}
}

// Whoever asks and is not charged, by whatever limit, changes nothing for
// others: of two nodes one is asked more, and both admit the same.
func TestAskingChangesNothing(t *testing.T) {
	alone.Mark(t)
	for name, spec := range everyKind(20) {
		for seed := range uint64(6) {
			t.Run(fmt.Sprint(name, "/seed=", seed), func(t *testing.T) {
				rule := perUser(spec)
				rule.TierFrom = "plan"
				_, ask := tenantNode(t, rule)
				asked, _ := tenantNode(t, rule)
				rnd, now := rand.New(rand.NewPCG(seed, 5)), start
				for step := range 1500 {
					now = now.Add(time.Duration(rnd.Int64N(int64(4 * time.Second))))
					for range rnd.IntN(3) {
						req := requestOf(asked, "u")
						req.Set("plan", []string{"", "gold", "trial"}[rnd.IntN(3)])
						if rnd.IntN(2) == 0 {
							req.Override("api.r", []uint64{1, 3, 50, 100000}[rnd.IntN(4)])
						}
						req.Peek = true
						asked.Check(now, req)
						req.Release()
					}
					if rnd.IntN(20) == 0 {
						asked.Tick(now)
					}
					want := ask(now, "u", "")
					if got := check(asked, now, "u"); got.Allowed != want.Allowed || got.RetryAfter != want.RetryAfter || got.Delay != want.Delay {
						t.Fatalf("step %d: %+v, want %+v as without the peeks", step, got, want)
					}
				}
			})
		}
	}
}

// A smaller limit that a request names does not slow a bucket's refill for
// others, and a larger one does not empty it.
func TestBucketDrainsByItsOwnRefill(t *testing.T) {
	rule := perUser(tokens(10, limit.Flow{Units: 1, Per: time.Second}))
	peek := func(n *Node, now time.Time, other uint64) {
		req := requestOf(n, "u")
		defer req.Release()
		req.Override("api.tokens", other)
		req.Peek = true
		if d := n.Check(now, req); d.Limit != other {
			t.Fatalf("a peek by a limit of %d: %+v", other, d)
		}
	}
	n := newNode(t, Config{}, rule)
	through(n, start, "u", 20)
	for k := 1; k < 100; k++ {
		peek(n, start.Add(time.Duration(k)*100*time.Millisecond), 1)
	}
	if got := through(n, start.Add(10*time.Second), "u", 20); got != 10 {
		t.Errorf("10 s after a bucket of 10 at 1/s was empty: %d admitted, want 10", got)
	}
	now := start.Add(10 * time.Second)
	total := 0
	for range 200 {
		now = now.Add(50 * time.Millisecond)
		peek(n, now, 10000)
		total += through(n, now, "u", 20)
	}
	if total != 10 {
		t.Errorf("%d admitted in 10 s at 1/s, want 10", total)
	}
}

// Requests of a smaller tier that are denied leave the bucket as it is for
// those of the rule's own limit, and give nobody what it started with again.
func TestTiersShareABucket(t *testing.T) {
	rule := perUser(tokens(10, limit.Flow{Units: 1, Per: time.Second}))
	rule.TierFrom = "plan"
	n, ask := tenantNode(t, rule)
	through(n, start, "u", 20)
	for k := 1; k < 100; k++ {
		if ask(start.Add(time.Duration(k)*100*time.Millisecond), "u", "trial").Allowed {
			t.Fatal("a trial was admitted by a bucket that is more than full for it")
		}
	}
	if got := through(n, start.Add(10*time.Second), "u", 20); got != 10 {
		t.Errorf("10 s after a bucket of 10 at 1/s was empty: %d admitted, want 10", got)
	}

	rule.Rates[0].Initial = 1000
	n, ask = tenantNode(t, rule)
	if got := through(n, start, "u", 2000); got != 1000 {
		t.Fatalf("%d admitted at first, want 1000", got)
	}
	later := start.Add(3 * time.Hour)
	ask(later.Add(-time.Second), "u", "trial")
	if got := through(n, later, "u", 2000); got != 10 {
		t.Errorf("3 hours later: %d admitted, want 10", got)
	}
}
