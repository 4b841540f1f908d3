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
