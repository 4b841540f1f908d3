package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// A clock that is set forward, or back by less than a window, frees nobody
// before it is time, and one that is set back locks nobody out for longer than
// the step or a window, whichever is shorter, beside the window that a limit
// lasts anyhow: counts that lie ahead of the clock count until it has passed
// them, or are left out as out of all reach.
func TestClockSteps(t *testing.T) {
	const window = time.Minute
	for name, spec := range map[string]limit.RateSpec{
		"fixed_window":   {Algorithm: "fixed_window", Limit: 10, Per: window},
		"first_hit":      {Algorithm: "fixed_window", Align: "first_hit", Limit: 10, Per: window},
		"sliding_window": {Algorithm: "sliding_window", Limit: 10, Per: window},
		"sub_windows":    {Limit: 10, Per: window},
		"sliding_log":    {Algorithm: "sliding_log", Limit: 10, Per: window},
		"token_bucket":   tokens(10, limit.Flow{Units: 10, Per: window}),
		"leaky_bucket":   {Name: "leaky", Algorithm: "leaky_bucket", Capacity: 10, Outflow: limit.Flow{Units: 10, Per: window}},
		"concurrency":    inFlight(10, window),
	} {
		for _, step := range []time.Duration{-time.Hour, -90 * time.Second, -10 * time.Second, -time.Second, time.Second, 90 * time.Second, time.Hour} {
			t.Run(name+"/"+step.String(), func(t *testing.T) {
				n := newNode(t, Config{}, perUser(spec))
				began := start.Add(20 * time.Second) // in the middle of a window
				now := began
				for range 10 {
					check(n, now, "u")
					now = now.Add(100 * time.Millisecond)
				}
				if d := check(n, now, "u"); d.Allowed {
					t.Fatalf("the eleventh: %+v", d)
				}
				settleFrames(n, now)
				now = now.Add(step)
				// Time goes on from there: who was at the limit gets no second helping
				// at once, and is free again when a window and what rounds it are over.
				admitted, free := 0, time.Duration(-1)
				for passed := time.Duration(0); passed <= 2*window+3*time.Second; passed += 500 * time.Millisecond {
					at := now.Add(passed)
					d := check(n, at, "u")
					if d.Allowed {
						admitted++
						if free < 0 {
							free = passed
						}
					} else if d.RetryAfter > window+min(max(-step, 0), 2*window)+3*time.Second {
						t.Fatalf("%v after the step denied for %v", passed, d.RetryAfter)
					}
					if passed == 5*time.Second && step < 0 && step > -window && admitted > 2 {
						t.Fatalf("five seconds after a step back %d were admitted, want the limit to hold", admitted)
					}
					if passed%(5*time.Second) == 0 {
						settleFrames(n, at)
						n.Tick(at)
					}
				}
				if free < 0 || free > window+min(max(-step, 0), window)+3*time.Second {
					t.Errorf("free again %v after the step of %v", free, step)
				}
				if admitted > 35 {
					t.Errorf("%d admitted in two windows, want about 20", admitted)
				}
			})
		}
	}
}

// Where nobody else is told, own charges go back with the clock: whoever was
// limited stays so for a window, however far the step was.
func TestOwnChargesGoBackWithTheClock(t *testing.T) {
	for name, spec := range everyKind(10) {
		if name == "initial" { // it starts with more than a window drains
			continue
		}
		spec.Scope = "edge"
		for _, back := range []time.Duration{5 * time.Second, 30 * time.Second, 59 * time.Second, 70 * time.Second, 100 * time.Second, time.Hour} {
			n := newNode(t, Config{}, perUser(spec))
			began := start.Add(20 * time.Second)
			through(n, began, "u", 20)
			now, free := began.Add(-back), time.Duration(-1)
			if got := through(n, now, "u", 20); got != 0 {
				t.Errorf("%s, back %v: %d admitted at once, want the limit to hold", name, back, got)
			}
			for passed := time.Duration(0); free < 0 && passed < 4*time.Minute; passed += time.Second {
				if check(n, now.Add(passed), "u").Allowed {
					free = passed
				}
			}
			if free < 0 || free > time.Minute+3*time.Second {
				t.Errorf("%s, back %v: free again after %v, want a window", name, back, free)
			}
		}
	}
}

// Nor does a step back prolong what has an end: a penalty, a block of a key that
// a flood had forgotten, a signal of spare capacity.
func TestEndsAfterAClockWasSetBack(t *testing.T) {
	for name, p := range map[string]limit.Penalty{"for a minute": {For: time.Minute}, "until reset": {UntilReset: true}} {
		for _, back := range []time.Duration{10 * time.Second, time.Hour, 30 * 24 * time.Hour} {
			for _, forgotten := range []bool{false, true} {
				rule := perUser(limit.RateSpec{Limit: 5, Per: time.Minute, Scope: "edge"})
				rule.Penalty = p
				n := newNode(t, Config{View: mapView{}}, rule)
				through(n, start, "u", 10)
				if forgotten {
					forgetAll(n, start)
				}
				now := start.Add(-back)
				if !forgotten { // asked or not, swept it is
					asked := now.Add(5 * time.Minute)
					other := newNode(t, Config{}, rule)
					through(other, start, "u", 10)
					for range 40 {
						other.Tick(now)
					}
					if d := check(other, asked, "u"); !d.Allowed {
						t.Errorf("%s, back %v, not asked for five minutes: still out for %v more", name, back, d.RetryAfter)
					}
				}
				for s := range 30 {
					d := check(n, now.Add(time.Duration(s)*time.Second), "u")
					if d.Allowed || d.RetryAfter > 75*time.Second {
						t.Fatalf("%s, back %v, forgotten %v: %d s later %+v, want it kept out for a minute", name, back, forgotten, s, d)
					}
				}
				for range 40 {
					n.Tick(now.Add(30 * time.Second))
				}
				if d := check(n, now.Add(2*time.Minute+5*time.Second), "u"); !d.Allowed {
					t.Errorf("%s, back %v, forgotten %v: still out two minutes later, for %v more", name, back, forgotten, d.RetryAfter)
				}
			}
		}
	}
	for where, most := range map[string]int{"table": 64, "filter": 0} {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Minute, Scope: "edge"}))
		for i := range n.shards {
			n.shards[i].blocked = blocked{most: most, filter: filter{most: 16}}
		}
		through(n, start, "u", 200)
		forgetAll(n, start)
		now := start.Add(-time.Hour)
		if check(n, now, "u").Allowed {
			t.Errorf("%s: a step back freed a key that had used all", where)
		}
		for d := 2 * time.Minute; d < 50*time.Minute; d += 2 * time.Minute {
			for range 40 {
				n.Tick(now.Add(d))
			}
			if d := check(n, now.Add(d), "u"); !d.Allowed {
				t.Fatalf("%s: %v after the step a key of a window of a minute is denied for %v", where, now.Add(d.RetryAfter).Sub(now), d.RetryAfter)
			}
		}
	}
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Second}))
	if err := n.SetCapacity(start, "api", 0.1, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if used, ttl, ok := n.Capacity(start.Add(-50*time.Minute), "api"); ok {
		t.Errorf("a signal that was good for 10 s says %v for %v after a step back of 50 minutes", used, ttl)
	}
	if _, ttl, ok := n.Capacity(start.Add(-time.Millisecond), "api"); !ok || ttl != 10*time.Second {
		t.Errorf("by a clock a millisecond behind: good %v, for %v; want 10s", ok, ttl)
	}
}

// Nor is a key locked out that asks for the first time long after a step back: as
// far as its charges are ours to judge, its window began with the step.
func TestKeysThatAskLongAfterAStepBack(t *testing.T) {
	alone.Mark(t)
	const back = 10 * time.Minute
	for name, spec := range everyKind(10) {
		for _, scope := range []string{"edge", "region"} {
			spec.Scope = scope
			n := newNode(t, Config{}, perUser(spec))
			users := map[string]time.Duration{}
			for minutes := 1; minutes <= 12; minutes++ {
				if scope == "region" && minutes >= 9 && minutes <= 11 {
					continue // what others know by its slice counts when that is in reach
				}
				asked := time.Duration(minutes)*time.Minute + 4*time.Second
				user := asked.String()
				if users[user] = asked; through(n, start, user, 40) == 40 {
					t.Fatalf("%s: all of 40 admitted", name)
				}
			}
			settleFrames(n, start)
			for at := time.Duration(0); at < 13*time.Minute; at += time.Second {
				now := start.Add(at - back)
				for range 11 { // all of the ledger
					n.Tick(now)
				}
				for user, asked := range users {
					want := 10
					if asked != at {
						continue
					} else if name == "sliding_window" && asked < 2*time.Minute {
						want = 1
					}
					if got := through(n, now, user, 40); got < want {
						t.Errorf("%s, scope %s, first asked %v after the step: %d admitted, want %d", name, scope, asked, got, want)
					}
				}
			}
		}
	}
}

// A bucket that was charged for a while had drained meanwhile: after a step back
// it is no fuller than it was.
func TestBucketAfterAStepBack(t *testing.T) {
	spec := tokens(14, limit.Flow{Units: 14, Per: time.Minute})
	spec.Scope = "edge"
	for _, back := range []time.Duration{20 * time.Second, 70 * time.Second, time.Hour} {
		n, now := newNode(t, Config{}, perUser(spec)), start
		for range 40 {
			check(n, now, "u")
			now = now.Add(time.Second)
		}
		now = now.Add(-back)
		for range 11 {
			n.Tick(now)
		}
		if got := through(n, now, "u", 5); got > 1 {
			t.Errorf("back %v: %d admitted at once", back, got)
		}
		if got := through(n, now.Add(time.Minute), "u", 20); got < 13 {
			t.Errorf("back %v: %d admitted in a minute, want 14", back, got)
		}
	}
}

// What is charged while an allowance of before a small step back lasts is of now.
func TestChargesAfterASmallStepBack(t *testing.T) {
	spec := tokens(1000, limit.Flow{Units: 1000, Per: time.Hour})
	spec.Scope = "edge"
	n := newNode(t, Config{}, perUser(spec))
	rate := n.Rules().Rules()[0].Rates[0]
	now := time.Unix(0, rate.StartOf(rate.SliceAt(start.UnixNano()))+int64(5*time.Second))
	for range 500 {
		check(n, now, "u")
	}
	now = now.Add(-30 * time.Second)
	for range 10 {
		for range 11 {
			n.Tick(now)
		}
		check(n, now, "u")
		now = now.Add(time.Second)
	}
	n.Tick(now)
	r := n.shard(keyOf(n, "u")).find(keyOf(n, "u"))
	r.settle()
	if c := r.block.own.Get(rate.SliceAt(now.UnixNano())); r.block.own.Len() != 1 || c.Net() != 510 {
		t.Errorf("%d slices, %+v in the present one; want all 510 there", r.block.own.Len(), c)
	}
}

// A sweep that comes a little late, with a time that was read long ago, frees
// nobody: time only seems to have gone back.
func TestLateSweepFreesNobody(t *testing.T) {
	const window = 100 * time.Millisecond
	for name, spec := range everyKind(10) {
		if spec.Per > 0 {
			spec.Per = window
		} else if spec.Lease > 0 {
			spec.Lease = window
		} else if spec.Refill.Per > 0 {
			spec.Refill.Per = window
		} else {
			spec.Outflow.Per = window
		}
		for _, late := range []time.Duration{10 * time.Millisecond, 170 * time.Millisecond, 900 * time.Millisecond} {
			n := newNode(t, Config{}, perUser(spec))
			now := start.Add(10 * time.Second)
			got := through(n, now, "u", 40)
			for range 11 {
				n.Tick(now.Add(-late))
			}
			if again := through(n, now.Add(time.Microsecond), "u", 40); got < 10 || again != 0 {
				t.Errorf("%s: %d admitted, and after a sweep that is %v late %d more", name, got, late, again)
			}
		}
	}
}

// Where nobody else is told, what the view kept of a key that was forgotten goes
// back with the clock too: the key stays limited for a window, and is not limited
// again when the clock comes to where it was.
func TestForgottenChargesGoBackWithTheClock(t *testing.T) {
	alone.Mark(t)
	for name, spec := range everyKind(10) {
		if name == "initial" { // it starts with more than a window drains
			continue
		}
		spec.Scope = "edge"
		for _, used := range []int{7, 20} { // below what a forgotten key is kept out for, and above
			n := newNode(t, Config{View: mapView{}}, perUser(spec))
			had := through(n, start, "u", used)
			forgetAll(n, start)
			now, free := start.Add(-10*time.Minute), time.Duration(-1)
			if more := through(n, now, "u", 40); had+more > 10 {
				t.Errorf("%s: %d of 10 admitted after the step, and %d before", name, more, had)
			}
			clear(n.cfg.View.(mapView)) // it keeps nothing for so long
			for passed := time.Duration(0); passed < 14*time.Minute; passed += time.Second {
				for range 11 {
					n.Tick(now.Add(passed))
				}
				ok := n.Check(now.Add(passed), peekOf(n, "u")).Allowed
				switch {
				case ok && free < 0:
					free = passed
				case !ok && free >= 0:
					t.Fatalf("%s, %d used: free %v after the step, and denied again %v after it", name, used, free, passed)
				}
			}
			if free < 0 || free > 2*time.Minute+3*time.Second || free > time.Minute+3*time.Second && name != "sliding_window" {
				t.Errorf("%s, %d used: free %v after the step, want a window", name, used, free)
			}
		}
	}
}
