package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// What a key borrows at one edge the others hear of: be its requests spread over six edges of
// three regions, it has its own limit and what the pool leaves, minute by minute; and who
// asks for no more than his own leaves the pool to others.
func TestLoansAreKnownEverywhere(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"", "sliding_window", "sliding_log"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{
				{Name: "pool", Group: "pool", Match: limit.MatchSpec{Lacks: []string{"user"}}, Rates: []limit.RateSpec{{Limit: 60, Per: time.Minute}}},
				{Name: "own", Group: "own", Key: []string{"user"}, Rates: []limit.RateSpec{{Algorithm: algorithm, Limit: 50, Per: time.Minute}},
					Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 200, Parent: "pool"}}},
			}}
			w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Rules = []limit.Document{doc} })
			w.Advance(start.Add(6 * time.Second))
			const minutes, hz = 5, 4
			asks, admitted := [2]int{}, [2][minutes]int{}
			for i := range minutes * 60 * hz {
				w.Advance(start.Add(6*time.Second + time.Duration(i)*time.Second/hz))
				for u := range 2 {
					if u == 1 && i%6 != 0 { // 40 a minute
						continue
					}
					asks[u]++
					if check(w, w.Edges()[asks[u]%6], fmt.Sprint("u", u)).Allowed {
						admitted[u][i/60/hz]++
					}
				}
			}
			for m, got := range admitted[0] {
				if got > 116 || m > 1 && got < 100 {
					t.Errorf("%v admitted by minute of 240 asked, want 110, nearly", admitted[0])
					break
				}
			}
			for _, got := range admitted[1] {
				if got != 40 {
					t.Errorf("%v admitted by minute of 40 asked, want all", admitted[1])
					break
				}
			}
		})
	}
}

// What a bucket has drained of its loans is off whichever edges the key asks at, and once: who
// goes on at the pace of the refill, wherever, borrows nothing more.
func TestBucketsDrainLoansOnce(t *testing.T) {
	t.Parallel()
	doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{
		{Name: "pool", Group: "pool", Match: limit.MatchSpec{Lacks: []string{"user"}}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}},
		{Name: "own", Group: "own", Key: []string{"user"}, Rates: []limit.RateSpec{{Algorithm: "token_bucket", Capacity: 20, Refill: limit.Flow{Units: 1, Per: time.Second}}},
			Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 200, Parent: "pool"}}},
	}}
	for _, spread := range []int{1, 2, 6} {
		w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Rules = []limit.Document{doc} })
		at := start.Add(6 * time.Second)
		w.Advance(at)
		step := func(d time.Duration) { at = at.Add(d); w.Advance(at) }
		burst := func() (admitted int) {
			for range 70 {
				if check(w, w.Edges()[0], "u").Allowed {
					admitted++
				}
			}
			return admitted
		}
		first := burst() // 40 of it borrowed
		step(70 * time.Second)
		for _, edge := range w.Edges()[:spread] {
			check(w, edge, "u")
		}
		step(20 * time.Second)
		second := burst()
		step(2 * time.Second)
		denied := 0
		for i := range 300 {
			step(1050 * time.Millisecond)
			if !check(w, w.Edges()[i%spread], "u").Allowed {
				denied++
			}
		}
		n := w.Node(w.Edges()[0])
		req := n.Rules().Only().NewRequest()
		lent := n.Inspect(w.Now(), req)[0].Total
		req.Release()
		if first != 60 || second > 60 || denied > 0 || lent > 85 {
			t.Errorf("over %d edges: %d and %d admitted at once, want 60; %d of 300 denied at the pace of the refill; %d lent, want 80", spread, first, second, denied, lent)
		}
	}
}

// Room of one's own that loans make is shared among the edges as any room is: whoever comes to
// all of them at once has no more of it than by a limit that borrows nothing.
func TestRoomBelowLoansIsShared(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"", "sliding_window", "sliding_log"} {
		admitted := map[float64]int{}
		for _, upTo := range []float64{0, 200} {
			own := limit.RuleSpec{Name: "own", Group: "own", Key: []string{"user"}, Rates: []limit.RateSpec{{Algorithm: algorithm, Limit: 50, Per: time.Minute}}}
			if upTo > 0 {
				own.Margin.Elastic = limit.ElasticSpec{UpToPercent: upTo, Parent: "pool"}
			}
			pool := limit.RuleSpec{Name: "pool", Group: "pool", Match: limit.MatchSpec{Lacks: []string{"user"}}, Rates: []limit.RateSpec{{Limit: 60, Per: time.Hour}}}
			doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{pool, own}}
			w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Rules = []limit.Document{doc} })
			at, asked := start.Add(6*time.Second), 0
			ask := func(count int, apart time.Duration) (admitted int) {
				for range count {
					at = at.Add(apart)
					w.Advance(at)
					if asked++; check(w, w.Edges()[asked%6], "u").Allowed {
						admitted++
					}
				}
				return admitted
			}
			w.Advance(at)
			ask(50, 200*time.Millisecond)
			at = at.Add(15 * time.Second)
			ask(80, 200*time.Millisecond) // all that the pool has
			at = start.Add(80 * time.Second)
			w.Advance(at) // what was his own has left the window, and what was borrowed has not
			admitted[upTo] = ask(30, 100*time.Millisecond) + ask(400, 5*time.Millisecond)
		}
		if with, without := admitted[200], admitted[0]; with > without+2 || with < without-2 {
			t.Errorf("%q: %d admitted of 50 beside loans, and %d where nothing was borrowed", algorithm, with, without)
		}
	}
}
