package world

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
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

// Of what is lent an edge may have heard later than of the borrower, which is at its limit: what the
// other edge gave back meanwhile is no room for it. The pool counts what the borrower is above its limit.
func TestLoansThatCameBackElsewhereAreNoRoom(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"sliding_window", "sub_windows", "sliding_log"} {
		most, lent := uint64(0), false
		for seed := range uint64(40) {
			above, pool := loansAndReceipts(t, algorithm, seed)
			most, lent = max(most, above), lent || pool > 0
		}
		if most > 0 || !lent {
			t.Errorf("%s: %d more are in than the limit and what the pool counts; whether it lent anything: %v", algorithm, most, lent)
		}
	}
}

// loansAndReceipts has one key checked and refunded at two edges, at random. It says by how much what is in was
// above what is counted, at the most, and what the pool counts in the end.
func loansAndReceipts(t *testing.T, algorithm string, seed uint64) (above, pool uint64) {
	const own = 2
	rate := func(most uint64) []limit.RateSpec {
		return []limit.RateSpec{{Algorithm: algorithm, Limit: most, Per: time.Hour}}
	}
	doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{
		{Name: "pool", Group: "pool", Match: limit.MatchSpec{Lacks: []string{"user"}}, Rates: rate(20)},
		{Name: "own", Group: "own", Key: []string{"user"}, Rates: rate(own), Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 1000, Parent: "pool"}}},
	}}
	w := wideOf(t, 1, 2, func(cfg *Config) { cfg.Rules = []limit.Document{doc} })
	at := start.Add(6 * time.Second)
	w.Advance(at)
	type inside struct {
		edge    string
		charges []limit.Charge
	}
	var all []inside
	rng := rand.New(rand.NewPCG(seed, 63))
	for range 30 {
		w.Touch()
		if edge := w.Edges()[rng.IntN(2)]; rng.IntN(2) == 0 || len(all) == 0 {
			req := w.Node(edge).Rules().Only().NewRequest()
			req.Set("user", "u")
			if req.Receipt = true; w.Node(edge).Check(w.Now(), req).Allowed {
				all = append(all, inside{edge, slices.Clone(req.Charges)})
			}
			req.Release()
		} else {
			i := rng.IntN(len(all))
			w.Node(all[i].edge).Refund(w.Now(), all[i].charges, 0)
			all = slices.Delete(all, i, i+1)
		}
		at = at.Add(10 * time.Second)
		w.Advance(at)
		pool = 0 // as who knows of most has it
		for _, edge := range w.Edges() {
			req := w.Node(edge).Rules().Only().NewRequest()
			for _, b := range w.Node(edge).Inspect(w.Now(), req) {
				pool = max(pool, b.Total)
			}
			req.Release()
		}
		above = max(above, crdt.SatSub(uint64(len(all)), own+pool))
	}
	return above, pool
}
