package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A penalty keeps out whoever was denied, for its time, whatever room there is,
// and trying again does not make it longer.
func TestPenalty(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 2, Per: time.Second})
	rule.Penalty = limit.Penalty{For: time.Minute}
	n := newNode(t, Config{}, rule)
	_, charges := take(t, n, start, "u", 2)
	for s := range 60 {
		now := start.Add(time.Duration(s) * time.Second)
		d := check(n, now, "u")
		if want := time.Minute - now.Sub(start); d.Allowed || d.RetryAfter != want {
			t.Fatalf("%d s after: %+v, want denied for %v", s, d, want)
		}
		if s == 0 {
			n.Refund(now, charges, 0)
		}
		settleFrames(n, now)
		n.Tick(now)
	}
	if d := check(n, start.Add(time.Minute), "u"); !d.Allowed {
		t.Fatalf("after the penalty: %+v", d)
	}
	if d := check(n, start, "other"); !d.Allowed {
		t.Fatalf("another user: %+v", d)
	}
}

func TestPenaltyUntilReset(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 5, Per: time.Minute})
	rule.Penalty = limit.Penalty{UntilReset: true}
	n := newNode(t, Config{}, rule)
	var wait time.Duration
	for i := range 6 { // one every five seconds; the sixth is too many
		now := start.Add(time.Duration(i) * 5 * time.Second)
		wait = check(n, now, "u").RetryAfter
	}
	denied := start.Add(25 * time.Second)
	if wait < 55*time.Second || wait > 63*time.Second { // the fifth came 5 s ago, and counts for a window
		t.Fatalf("a penalty until nothing is used: %v, want about 55 s", wait)
	}
	if d := check(n, denied.Add(50*time.Second), "u"); d.Allowed {
		t.Fatalf("with the last hit still counted: %+v", d)
	}
	if d := check(n, denied.Add(wait), "u"); !d.Allowed {
		t.Fatalf("with nothing used any more: %+v", d)
	}
}

// A bucket counts for longer than its window where it has a margin, or requests wait for room
// in it: so long its penalty lasts, and it is let in when it was told.
func TestPenaltyUntilABucketIsEmpty(t *testing.T) {
	for name, change := range map[string]func(*limit.RuleSpec){
		"":             func(r *limit.RuleSpec) {},
		"a margin":     func(r *limit.RuleSpec) { r.Margin.SoftPercent = 1000 },
		"a long delay": func(r *limit.RuleSpec) { r.MaxDelay = time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			rule := perUser(limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 1, Per: time.Second}})
			rule.Penalty = limit.Penalty{UntilReset: true}
			change(&rule)
			n := newNode(t, Config{}, rule)
			used := 0
			d := check(n, start, "u")
			for ; d.Allowed && used < 1000; used++ {
				d = check(n, start, "u")
			}
			if want := time.Duration(used) * time.Second; d.RetryAfter != want {
				t.Errorf("denied after %d for %v, want %v", used, d.RetryAfter, want)
			}
			for _, at := range []time.Duration{d.RetryAfter / 2, d.RetryAfter - time.Second, d.RetryAfter} {
				if got := check(n, start.Add(at), "u"); got.Allowed != (at == d.RetryAfter) {
					t.Errorf("after %v of %v: %+v", at, d.RetryAfter, got)
				}
			}
		})
	}
}

// Who is kept out by a penalty is told that it is one, also when the limit has room again.
func TestPenaltyIsTheReasonGiven(t *testing.T) {
	n := newNode(t, Config{}, punishing())
	offend(t, n, start, "u")
	for _, after := range []time.Duration{0, 10 * time.Second, 61 * time.Second} {
		d := check(n, start.Add(after), "u")
		if want := after < time.Minute; d.Basis.Penalty != want || d.Allowed == want {
			t.Errorf("%v after: allowed %v, penalty %v", after, d.Allowed, d.Basis.Penalty)
		}
	}
}
