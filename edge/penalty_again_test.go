package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Who is kept out by one rate is not for longer by what he asks for meanwhile, be it more than another
// rate of the rule has. What offends against both at once is out by both.
func TestPenaltyOfOneRateIsTheRules(t *testing.T) {
	rule := perUser(limit.RateSpec{Name: "a", Limit: 5, Per: 10 * time.Second})
	rule.Rates = append(rule.Rates, limit.RateSpec{Name: "b", Limit: 100, Per: time.Hour})
	rule.Penalty = limit.Penalty{For: time.Minute}
	n := newNode(t, Config{}, rule)
	is := func(after time.Duration, cost uint64, want bool) {
		t.Helper()
		if d, _ := take(t, n, start.Add(after), "u", cost); d.Allowed != want {
			t.Errorf("after %v a cost of %d: %+v, want allowed %v", after, cost, d, want)
		}
	}
	is(0, 5, true)
	is(time.Second, 1, false)
	is(50*time.Second, 97, false)
	is(60*time.Second, 1, false)
	is(62*time.Second, 1, true)

	rule.Penalty = limit.Penalty{UntilReset: true}
	n = newNode(t, Config{}, rule)
	is(0, 3, true)
	is(time.Second, 98, false)
	is(time.Minute, 1, false) // a is empty again, b is not
	is(2*time.Hour+time.Minute, 1, true)
}
