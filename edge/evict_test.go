package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// Of a node that nobody ticks, as a local one, keys whose windows are long over make room for new
// ones, be it that they had all of their limit in use: else it is the newest that goes, time and
// again, and everybody is admitted.
func TestRoomIsMadeByWhatCountsNoMore(t *testing.T) {
	alone.Mark(t)
	const keys = 1 << 13
	for _, per := range []time.Duration{time.Second, time.Minute} {
		for name, spec := range map[string]limit.RateSpec{
			"sub windows": {Limit: 10, Per: per}, "log": {Algorithm: "sliding_log", Limit: 10, Per: per},
			"bucket": {Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 10, Per: per}},
		} {
			spec.Scope = "edge"
			n := newNode(t, Config{MaxKeys: keys}, perUser(spec))
			for i := range 2 * keys {
				through(n, start.Add(time.Duration(i)*per/keys/4), fmt.Sprint("a", i), 11)
			}
			for _, later := range []time.Duration{per + 2*time.Second, time.Hour} {
				over, now := 0, start.Add(later+2*per)
				for u := range keys / 8 {
					if through(n, now, fmt.Sprint(later, u), 5)+through(n, now, fmt.Sprint(later, u), 20) != 10 {
						over++
					}
				}
				admitted := map[int]int{}
				for range 30 {
					for u := range keys / 8 {
						admitted[u] += through(n, now, fmt.Sprint(later, "b", u), 1)
					}
				}
				for _, got := range admitted {
					if got > 10 {
						over++
					}
				}
				if over > 0 {
					t.Errorf("%s, per %v, %v later: %d keys were admitted more than their limit", name, per, later, over)
				}
			}
		}
	}
}

// So do those of a rule that is there no more, under whatever name it goes on.
func TestRoomIsMadeByRulesThatAreGone(t *testing.T) {
	alone.Mark(t)
	const keys = 1 << 13
	for _, told := range []bool{false, true} {
		rule := perUser(limit.RateSpec{Limit: 10, Per: 24 * time.Hour})
		if !told {
			rule.Rates[0].Scope = "edge"
		}
		n := newNode(t, Config{MaxKeys: keys}, rule)
		for i := range keys - keys/8 {
			through(n, start, fmt.Sprint("a", i), 5)
		}
		rule.Name = "renamed"
		set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{rule}})
		if set == nil {
			t.Fatal(problems)
		}
		n.SetRules(set)
		admitted, over := map[int]int{}, 0
		for range 30 {
			for u := range keys / 4 {
				admitted[u] += through(n, start.Add(time.Minute), fmt.Sprint("b", u), 1)
			}
		}
		for _, got := range admitted {
			if got > 10 {
				over++
			}
		}
		if over > 0 {
			t.Errorf("told %t: %d of %d keys were admitted more than their limit", told, over, keys/4)
		}
	}
}
