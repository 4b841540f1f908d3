package limit

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// What facts exclude or imply holds of every request.
func TestFacts(t *testing.T) {
	values := []string{"", "a", "b", "other"} // no fact names the last
	random := func(rng *rand.Rand) fact {
		f := fact{choice: &choice{}, not: rng.IntN(2) == 0}
		f.slots = [][]int{{0}, {1}, {0, 1}, {1, 2}}[rng.IntN(4)]
		for range 1 + rng.IntN(3) {
			f.add(values[rng.IntN(3)])
		}
		return f
	}
	holds := func(f *fact, req []string) bool {
		value := ""
		for _, slot := range f.slots {
			if value == "" {
				value = req[slot]
			}
		}
		return f.has(value) != f.not
	}
	excluded, implied, missed := 0, 0, 0
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		f, g := random(rng), random(rng)
		never, always := true, true
		for i := range 64 {
			req := []string{values[i%4], values[i/4%4], values[i/16]}
			never = never && !(holds(&f, req) && holds(&g, req))
			always = always && (!holds(&f, req) || holds(&g, req))
		}
		if f.excludes(&g) != g.excludes(&f) || f.excludes(&g) && !never || f.implies(&g) && !always {
			t.Fatalf("seed %d: %+v of %v and %+v of %v: excludes %v, implies %v; they exclude each other: %v, the first implies the second: %v",
				seed, f, f.values, g, g.values, f.excludes(&g), f.implies(&g), never, always)
		}
		if f.excludes(&g) {
			excluded++
		}
		if f.implies(&g) {
			implied++
		}
		// Of one name all is found.
		if slices.Equal(f.slots, g.slots) && (never && !f.excludes(&g) || always && !f.implies(&g)) {
			if missed++; missed < 4 {
				t.Logf("seed %d: %v %v and %v %v", seed, f.not, f.values, g.not, g.values)
			}
		}
	}
	if excluded < 300 || implied < 300 {
		t.Errorf("%d excluded, %d implied: this test sees too little", excluded, implied)
	}
	if missed > 0 {
		t.Errorf("%d were missed", missed)
	}
}
