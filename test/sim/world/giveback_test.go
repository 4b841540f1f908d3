package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Two edges that are told at once of what is given back, without receipts, give a pool back what it
// lent once, whoever borrowed it where; and when both have heard of all, nothing stays lent that
// slides, or is held.
func TestLoansAreGivenBackOnceAtTwoEdges(t *testing.T) {
	kinds := map[string]func(most uint64) limit.RateSpec{
		"sub-windows": func(most uint64) limit.RateSpec { return limit.RateSpec{Limit: most, Per: time.Hour} },
		"fixed": func(most uint64) limit.RateSpec {
			return limit.RateSpec{Algorithm: "fixed_window", Limit: most, Per: time.Hour}
		},
		"slots": func(most uint64) limit.RateSpec {
			return limit.RateSpec{Algorithm: "concurrency", Limit: most, Lease: time.Hour}
		},
	}
	for kind, rate := range kinds {
		for _, spread := range []bool{false, true} {
			doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{
				{Name: "pool", Group: "pool", Match: limit.MatchSpec{Lacks: []string{"user"}}, Rates: []limit.RateSpec{rate(20)}},
				{Name: "own", Group: "own", Key: []string{"user"}, Rates: []limit.RateSpec{rate(10)}, Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 300, Parent: "pool"}}},
			}}
			w := wideOf(t, 1, 2, func(cfg *Config) { cfg.Rules = []limit.Document{doc} })
			at := start.Add(6 * time.Second)
			w.Advance(at)
			request := func(edge, user string, do func(*limit.Request)) {
				req := w.Node(edge).Rules().Only().NewRequest()
				defer req.Release()
				if user != "" {
					req.Set("user", user)
				}
				w.Touch()
				do(req)
			}
			asks := func(edge, user string, count int) (admitted int) {
				for range count {
					request(edge, user, func(req *limit.Request) {
						if w.Node(edge).Check(w.Now(), req).Allowed {
							admitted++
						}
					})
					at = at.Add(1500 * time.Millisecond)
					w.Advance(at)
				}
				return admitted
			}
			one, other := w.Edges()[0], w.Edges()[1]
			users := 0
			for i := range 20 {
				edge := one
				if spread && i%2 == 1 {
					edge = other
				}
				users += asks(edge, "u", 1)
			}
			own := asks(one, "", 20)
			asks(other, "", 3) // it hears of all
			for range 10 {
				for _, edge := range []string{one, other} {
					request(edge, "u", func(req *limit.Request) { w.Node(edge).GiveBack(w.Now(), req) })
				}
			}
			own += asks(one, "", 40)
			if users != 20 || own > 20 {
				t.Errorf("%s, spread %t: a pool of 20 admits %d of its own, with %d of a user's given back", kind, spread, own, users)
			}
			if own < 19 {
				t.Errorf("%s, spread %t: all is given back, and a pool of 20 admits %d", kind, spread, own)
			}
		}
	}
}
