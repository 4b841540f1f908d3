package deltasync

import (
	"math/rand/v2"
	"testing"
	"time"
)

// However it is drawn on, no more leaves in any time than the rate allows, the
// second saved up, and a frame.
func TestBudgetHolds(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		rate := 1 + rnd.IntN(1<<rnd.IntN(24))
		b, start := NewBudget(int64(rate)), midnight.UnixNano()
		now, sent := start, 0
		for range 5000 {
			now += rnd.Int64N(int64(50 * time.Millisecond))
			if b.Allows(now, Haste(rnd.IntN(3))) {
				n := 1 + rnd.IntN(MaxFrame)
				b.Spend(n)
				sent += n
			}
			if most := float64(rate)*(time.Duration(now-start).Seconds()+1) + 2*MaxFrame; float64(sent) > most {
				t.Fatalf("seed %d: %d bytes in %v at %d a second, want %.0f at most", seed, sent, time.Duration(now-start), rate, most)
			}
		}
	}
}

func TestBudgetKnowsHaste(t *testing.T) {
	b, now := NewBudget(1000), midnight.UnixNano()
	b.Allows(now, Regular)
	for _, tt := range []struct {
		spend                      int
		canWait, regular, pressing bool
	}{
		{0, true, true, true},
		{500, false, true, true},
		{500, false, false, true},
		{MaxFrame, false, false, false},
	} {
		b.Spend(tt.spend)
		if w, r, p := b.Allows(now, CanWait), b.Allows(now, Regular), b.Allows(now, Pressing); w != tt.canWait || r != tt.regular || p != tt.pressing {
			t.Errorf("with %d left: %t, %t, %t, want %t, %t, %t", b.left, w, r, p, tt.canWait, tt.regular, tt.pressing)
		}
	}
	if now += int64(time.Second); b.Allows(now, Regular) || !b.Allows(now, Pressing) {
		t.Error("a second later not what is regular goes, but what is pressing")
	}
	b.Allows(now-int64(time.Hour), Regular) // a clock is set back: nothing is gained
	if b.Allows(now-int64(time.Hour), Regular) {
		t.Error("a clock set back fills the budget")
	}
	var none Budget
	if none.Spend(1 << 40); !none.Allows(now, CanWait) {
		t.Error("without a bound something has to wait")
	}
}
