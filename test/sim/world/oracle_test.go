package world

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

func compiled(t testing.TB, margin float64, spec limit.RateSpec) *limit.Rate {
	t.Helper()
	docs := rules(spec)
	docs[0].Rules[0].Margin.SoftPercent = margin
	set, problems := limit.Compile(docs...)
	if set == nil {
		t.Fatalf("rules: %v", problems)
	}
	return set.Rules()[0].Rates[0]
}

func TestOracleKnowsTheWorstWindow(t *testing.T) {
	for _, tc := range []struct {
		name   string
		margin float64
		spec   limit.RateSpec
		at     []time.Duration // admissions of cost 1
		worst  float64
		last   uint64 // cost in the window that ends with the last admission
	}{
		{"within the limit", 0, limit.RateSpec{Limit: 4, Per: time.Second}, ms(0, 100, 200, 999), 0, 4},
		{"one above", 0, limit.RateSpec{Limit: 4, Per: time.Second}, ms(0, 100, 200, 300, 999), 0.25, 5},
		{"a whole window later", 0, limit.RateSpec{Limit: 4, Per: time.Second}, ms(0, 0, 0, 0, 1000), 0, 1},
		{"worst in the past", 0, limit.RateSpec{Limit: 2, Per: time.Second}, ms(0, 1, 2, 5000), 0.5, 1},
		{"over the edge of two sliding windows", 0, limit.RateSpec{Limit: 2, Per: time.Second, Algorithm: "sliding_window"}, ms(900, 950, 1050, 1100), 1, 4},
		{"fixed windows do not add up", 0, limit.RateSpec{Limit: 2, Per: time.Second, Algorithm: "fixed_window"}, ms(900, 950, 1050, 1100), 0, 2},
		{"a soft margin is not over", 50, limit.RateSpec{Limit: 4, Per: time.Second}, ms(0, 0, 0, 0, 0, 0), 0, 6},
		{"above the soft margin", 50, limit.RateSpec{Limit: 4, Per: time.Second}, ms(0, 0, 0, 0, 0, 0, 0), 0.25, 7},
		{"out of order", 0, limit.RateSpec{Limit: 2, Per: time.Second}, ms(500, 100, 300), 0.5, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, rate := NewOracle(), compiled(t, tc.margin, tc.spec)
			var last time.Time
			for _, d := range tc.at {
				o.Admit(start.Add(d), rate, 1, 1)
				if at := start.Add(d); at.After(last) {
					last = at
				}
			}
			if got := o.Worst(); got != tc.worst {
				t.Errorf("Worst() = %v, want %v", got, tc.worst)
			}
			truths := o.Truths(last, 10)
			if len(truths) != 1 || truths[0].Window != tc.last {
				t.Errorf("Truths = %+v, want one with %d in its window", truths, tc.last)
			}
		})
	}
}

func ms(at ...int) (out []time.Duration) {
	for _, n := range at {
		out = append(out, time.Duration(n)*time.Millisecond)
	}
	return out
}

// TestOracleAgainstTheDefinition compares with every window summed anew.
func TestOracleAgainstTheDefinition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 50 {
		o, rate := NewOracle(), compiled(t, 0, limit.RateSpec{Limit: 10, Per: time.Second})
		var at []time.Time
		var cost []uint64
		now, worst := start, 0.0
		for range 200 {
			now = now.Add(time.Duration(rnd.IntN(120)) * time.Millisecond)
			at, cost = append(at, now), append(cost, uint64(rnd.IntN(3)))
			o.Admit(now, rate, 7, cost[len(cost)-1])
			sum := uint64(0)
			for i := range at {
				if now.Sub(at[i]) < time.Second {
					sum += cost[i]
				}
			}
			worst = max(worst, float64(sum)/10-1)
		}
		if got := o.Worst(); math.Abs(got-worst) > 1e-9 {
			t.Fatalf("round %d: Worst() = %v, want %v", round, got, worst)
		}
	}
}

func TestTruthsAreTheFullestAndForgetTheIdle(t *testing.T) {
	o, rate := NewOracle(), compiled(t, 0, limit.RateSpec{Limit: 10, Per: time.Second})
	for key := range deltasync.Key(5) {
		o.Admit(start, rate, key+1, uint64(key)+1)
	}
	got := o.Truths(start, 2)
	if len(got) != 2 || got[0].Key != 5 || got[0].Used != 5 || got[1].Key != 4 {
		t.Errorf("Truths = %+v, want keys 5 and 4", got)
	}
	o.Admit(start.Add(900*time.Millisecond), rate, 1, 1)
	if got := o.Truths(start.Add(1500*time.Millisecond), 10); len(got) != 1 || got[0].Key != 1 || got[0].Window != 1 {
		t.Errorf("Truths after a window = %+v, want only the one admission that is left", got)
	}
	if o.held != 1 || len(o.keys) != 1 {
		t.Errorf("%d admissions of %d counters are held, want 1 of 1", o.held, len(o.keys))
	}
}

func TestOracleIsBounded(t *testing.T) {
	o, rate := NewOracle(), compiled(t, 0, limit.RateSpec{Limit: 10, Per: time.Second})
	for key := range deltasync.Key(maxTruths + 3) {
		o.Admit(start, rate, key+1, 1)
	}
	o.Admit(start, rate, 1, 1) // known: logged
	if len(o.keys) != maxTruths || o.Missed() != 3 {
		t.Errorf("%d counters and %d missed, want %d and 3", len(o.keys), o.Missed(), maxTruths)
	}
	o.held = maxAdmissions
	o.Admit(start, rate, 1, 1)
	if o.Missed() != 4 {
		t.Errorf("%d missed with a full log, want 4", o.Missed())
	}
}
