package world

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// What is given back without a receipt at another edge than the one that was asked, which has never
// heard of the key or a while ago, is room everywhere, at the edge that was charged too, and no more
// than was given back.
func TestWhatIsGivenBackElsewhereIsRoom(t *testing.T) {
	t.Parallel()
	const most = 20
	for name, rate := range ofAllKinds(most) {
		for _, how := range []struct {
			consistency    string
			regions, edges int
			apart          bool // edge 0 is asked, edge 1 given back to
			forgets        float64
		}{{"loose", 1, 2, true, 0}, {"loose", 2, 2, false, 1}, {"adaptive", 1, 2, true, 1}, {"adaptive", 2, 2, false, 0}} {
			rate.Consistency = how.consistency
			doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "own", Key: []string{"user"}, Rates: []limit.RateSpec{rate}}}}
			w := wideOf(t, how.regions, how.edges, func(cfg *Config) { cfg.Rules, cfg.Forgets = []limit.Document{doc}, how.forgets })
			at := start.Add(6 * time.Second)
			pass := func(d time.Duration) { at = at.Add(d); w.Advance(at) }
			pass(0)
			rnd := rand.New(rand.NewPCG(7, 7))
			used, denied, lost := 0, 0, 0
			for range 60 { // within an hour, in which a bucket drains by less than one
				from, to := rnd.IntN(len(w.Edges())), rnd.IntN(len(w.Edges()))
				if how.apart {
					from, to = 0, 1
				}
				if d, _ := askFor(w, from); d.Allowed {
					used++
				} else {
					denied++
				}
				pass(8 * time.Second)
				if used > 0 && rnd.IntN(10) > 0 {
					if giveBackAt(w, to, 1) {
						used--
					} else {
						lost++
					}
				}
				pass(8 * time.Second)
			}
			if denied > 0 || lost > 0 {
				t.Errorf("%s %+v: %d were denied, and %d not given back", name, how, denied, lost)
			}
			for edge := range w.Edges() {
				for range most {
					if d, _ := askFor(w, edge); d.Allowed {
						used++
					}
					pass(8 * time.Second)
				}
			}
			if used > most || used < most-1 || used != most && rate.Refill.Units == 0 { // of a bucket slices tell but about
				t.Errorf("%s %+v: %d are in use in the end, want %d", name, how, used, most)
			}
		}
	}
}

// giveBackAt has an edge give back some cost without a receipt, and says whether it was recorded.
func giveBackAt(w *World, edge int, cost uint64) bool {
	name := w.Edges()[edge]
	req := w.Node(name).Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", "u")
	req.Cost = cost
	w.Touch()
	w.Node(name).GiveBack(w.NowAt(name), req)
	return req.Recorded
}

// ofAllKinds is a rate of each algorithm, so much a day.
func ofAllKinds(most uint64) map[string]limit.RateSpec {
	return map[string]limit.RateSpec{
		"token_bucket":   {Algorithm: "token_bucket", Capacity: most, Refill: limit.Flow{Units: most, Per: 24 * time.Hour}},
		"fixed_window":   {Algorithm: "fixed_window", Limit: most, Per: 24 * time.Hour},
		"first_hit":      {Algorithm: "fixed_window", Align: "first_hit", Limit: most, Per: 24 * time.Hour},
		"sliding_window": {Algorithm: "sliding_window", Limit: most, Per: 24 * time.Hour},
		"sub_windows":    {Limit: most, Per: 24 * time.Hour},
		"sliding_log":    {Algorithm: "sliding_log", Limit: most, Per: 24 * time.Hour},
		"concurrency":    {Algorithm: "concurrency", Limit: most, Lease: 24 * time.Hour},
	}
}

// What is given back of nothing is not taken off what is charged a moment later, here, or once the
// region is heard again.
func TestWhatWasNotChargedIsNotGivenBack(t *testing.T) {
	t.Parallel()
	const most = 20
	for name, rate := range ofAllKinds(most) {
		for _, away := range []bool{false, true} {
			rate.Consistency = "loose"
			doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "own", Key: []string{"user"}, Rates: []limit.RateSpec{rate}}}}
			w := wideOf(t, 1, 2, func(cfg *Config) { cfg.Rules = []limit.Document{doc} })
			at := start.Add(6 * time.Second)
			pass := func(d time.Duration) { at = at.Add(d); w.Advance(at) }
			pass(0)
			if away {
				w.Stop(w.Servers("r0")[0])
			}
			giveBackAt(w, 0, 15)
			pass(time.Millisecond)
			used := 0
			ask := func(edge int) {
				for range 2 * most {
					if d, _ := askFor(w, edge); d.Allowed {
						used++
					}
				}
			}
			ask(0)
			if pass(time.Minute); away {
				if err := w.Start(w.Servers("r0")[0]); err != nil {
					t.Fatal(err)
				}
			}
			pass(time.Minute)
			ask(0)
			ask(1)
			if used > most {
				t.Errorf("%s, the region away %v: %d of %d are in use", name, away, used, most)
			}
		}
	}
}
