package limit

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// The window that moves on says of every slice what looking at all cells does.
func TestSlidingEqualsSplit(t *testing.T) {
	var rates []*Rate
	for _, spec := range []RateSpec{
		{Limit: 5, Per: time.Second}, {Limit: 5, Per: time.Second, Oldest: "full"}, {Limit: 5, Per: time.Second, Slices: 1},
		{Limit: 5, Per: time.Second, Algorithm: "fixed_window"}, {Limit: 5, Per: time.Second, Algorithm: "sliding_window"},
	} {
		set, problems := Compile(Document{Namespace: "t", Rules: []RuleSpec{{Name: "a", Rates: []RateSpec{spec}}}})
		if problems != nil {
			t.Fatal(problems)
		}
		rates = append(rates, set.Rules()[0].Rates[0])
	}
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 6))
		r := rates[rng.IntN(len(rates))]
		var sums []crdt.Cell
		for s := crdt.Slice(rng.IntN(50) - 100); len(sums) < 1+rng.IntN(40); s += crdt.Slice(1 + rng.IntN(1+rng.IntN(60))) {
			c := crdt.Cell{Slice: s, Charges: rng.Uint64N(9), Refunds: rng.Uint64N(3)}
			if rng.IntN(8) == 0 {
				c.Charges = math.MaxUint64
			}
			sums = append(sums, c)
		}
		w := sliding{rate: r, sums: sums}
		for s := crdt.Slice(rng.IntN(100) - 120); s < 200; s += crdt.Slice(1 + rng.IntN(3)) {
			full, oldest := w.to(s)
			if wantFull, wantOldest := r.split(sums, s); full != wantFull || oldest != wantOldest {
				t.Fatalf("seed %d, slice %d: %d and %d, want %d and %d", seed, s, full, oldest, wantFull, wantOldest)
			}
		}
	}
}
