package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A key that takes the place of a forgotten one inherits nothing of it.
func TestForgottenKeyLeavesNothingBehind(t *testing.T) {
	for name, rate := range map[string]limit.RateSpec{
		"token_bucket": tokens(10, limit.Flow{Units: 10, Per: time.Hour}),
		"sliding_log":  {Algorithm: "sliding_log", Limit: 10, Per: time.Hour},
		"first_hit":    {Algorithm: "fixed_window", Align: "first_hit", Limit: 10, Per: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(rate))
			users := neighbours(n, 2)
			s := n.shard(keyOf(n, users[0]))
			s.max = 1
			if d := checkCost(n, start, users[0], 10); !d.Allowed {
				t.Fatalf("the first: %+v", d)
			}
			block := s.find(keyOf(n, users[0])).block
			if d := checkCost(n, start, users[1], 10); !d.Allowed {
				t.Fatalf("who took its place: %+v, want all ten admitted", d)
			}
			if s.find(keyOf(n, users[0])) != nil || s.find(keyOf(n, users[1])).block != block {
				t.Fatal("the second does not stand in the block of the first: nothing was tested")
			}
			if d := checkCost(n, start, users[1], 1); d.Allowed {
				t.Fatalf("the eleventh: %+v", d)
			}
		})
	}
}
