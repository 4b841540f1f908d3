package rlqs

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
	"github.com/spillgate/spillgate/test/alone"
)

// hourly has users under a limit of 1000 an hour for all of them, behind one data plane.
func hourly(t *testing.T, settings dataplane.Settings) (w *world, p *pop, ask func(users int) (admitted int)) {
	all, own := perUser(limit.RateSpec{Limit: 1000, Per: time.Hour}), perUser(fixed(5000, 10*time.Second))
	all.Name, all.Key, own.Group = "all", nil, "own"
	w = newWorld(t, Config{}, all, own)
	settings.ExpiredFor, settings.Fallback = time.Hour, denyAll
	p = w.join("a", 0, settings)
	return w, p, func(users int) (admitted int) {
		for i := range users {
			if p.Allow(w.now, map[string]string{"user": fmt.Sprint("u", i)}) {
				admitted++
			}
		}
		return admitted
	}
}

// charged is what is counted of the limit of all.
func (w *world) charged() (charged int) {
	req := w.node.Rules().Namespace(edge.LocalNamespace).NewRequest()
	defer req.Release()
	req.Set("user", "u1")
	req.Peek, req.Details = true, true
	w.node.Check(w.now, req)
	for _, s := range req.States {
		if s.Rule.Name == "all" {
			charged = int(s.Rate.Limit - s.Remaining)
		}
	}
	return charged
}

// A stream that breaks and comes back takes nothing of a long limit: what its data plane had of
// each bucket goes on, or is given back, be they few or a crowd, at rest or in use, and whenever
// it breaks: but for where a report was under way, which may have told of all that was held.
func TestBreaksTakeNothing(t *testing.T) {
	alone.Mark(t)
	const breaks = 20
	for _, c := range []struct {
		byTimer bool
		users   int
		every   time.Duration // that all of them ask; 0: once
		lost    int           // in all breaks, at the most: tokens a bucket
	}{
		{true, 1, 0, 0}, {true, 40, 0, 0}, {true, 100, 0, 0}, {true, 300, 0, 0}, {true, 1, 5 * time.Second, 0}, {true, 3, 5 * time.Second, 0},
		// One that answers assignments at once may have done so just when it broke.
		{false, 1, 0, 10}, {false, 40, 0, 10}, {false, 100, 0, 10}, {false, 3, 5 * time.Second, 20},
	} {
		w, p, ask := hourly(t, dataplane.Settings{ByTimer: c.byTimer})
		admitted := ask(c.users)
		w.run(30*time.Second, nil)
		before, had, have := w.charged(), admitted, 0
		for _, sub := range p.st.subs {
			if sub.left() > 0 {
				have++
			}
		}
		for i := range breaks {
			w.run(time.Duration(i*170)*time.Millisecond, nil)
			for len(p.up) > 0 { // a report is under way
				w.run(step, nil)
			}
			p.reset()
			w.run(20*time.Second, func() {
				if c.every > 0 && w.now.Sub(start)%c.every == 0 {
					admitted += ask(c.users)
				}
			})
		}
		w.run(10*time.Second, nil)
		lost := w.charged() - before - (admitted - had)
		t.Logf("by timer %t, %d users, all once in %v: %d admitted, %d lost of 1000 in %d breaks", c.byTimer, c.users, c.every, admitted, lost, breaks)
		if lost > (c.lost+2)*c.users { // two tokens are held of each at times, and one at others
			t.Errorf("by timer %t, %d users, all once in %v: %d are lost of 1000 in %d breaks, want %d at the most", c.byTimer, c.users, c.every, lost, breaks, (c.lost+2)*c.users)
		}
		if lost < -2*c.users {
			t.Errorf("by timer %t, %d users, all once in %v: %d are charged of %d that were admitted", c.byTimer, c.users, c.every, w.charged(), admitted)
		}
		if got := ask(c.users); c.every == 0 && got < have {
			t.Errorf("by timer %t, %d users: %d are admitted after %d breaks, want those %d who had a token", c.byTimer, c.users, got, breaks, have)
		}
	}
}

// Reports that a data plane sent and nobody read, as its line was dead, tell of tokens that were
// spent: these are had once, however often its stream breaks.
func TestLostReportsAreSpent(t *testing.T) {
	alone.Mark(t)
	for _, users := range []int{1, 30, 80} {
		w, p, ask := hourly(t, dataplane.Settings{ByTimer: true, NoAssignment: denyAll})
		admitted := ask(users)
		for range 60 {
			w.run(20*time.Second, nil)
			admitted += ask(users)
			p.frozen = true
			w.run(time.Second, nil)
			p.Reports(w.now) // into a line that is dead
			p.frozen = false
			p.reset()
		}
		t.Logf("%d users: %d admitted", users, admitted)
		if admitted > 1000 {
			t.Errorf("%d users: %d are admitted of 1000 an hour", users, admitted)
		}
	}
}

// Whenever a stream breaks, and whatever is lost then, nothing is admitted that is not charged: of
// a data plane that answers at once or by its timer, with a slow line, that bursts as it likes, and
// goes on with its last assignment.
func TestBreaksGiveBackNothingSpent(t *testing.T) {
	alone.Mark(t)
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 3))
		between := func(least, most time.Duration) time.Duration {
			return (least + time.Duration(rng.Int64N(int64(most-least)))).Truncate(step)
		}
		w := newWorld(t, Config{}, perUser(fixed(1_000_000, time.Hour)))
		p := w.join("a", 20, dataplane.Settings{
			ByTimer: rng.IntN(2) == 0, Interval: time.Duration(1+rng.IntN(6)) * time.Second / 2, NoAssignment: denyAll, ExpiredFor: time.Hour, Reuse: true,
		})
		p.delay = time.Duration(5+rng.IntN(225)) * time.Millisecond
		run := func(length time.Duration) {
			w.run(length, func() {
				if used, admitted := w.used(), uint64(w.admitted()); used < admitted {
					t.Fatalf("seed %d: at %v %d were admitted, and %d are charged", seed, w.now.Sub(start), admitted, used)
				}
			})
		}
		run(between(4*time.Second, 8*time.Second))
		p.rps = []float64{0, 1, 20, 5000}[rng.IntN(4)]
		run(between(0, time.Second))
		p.frozen = rng.IntN(2) == 0
		for range rng.IntN(4) {
			if run(between(0, 2*time.Second)); p.frozen {
				for p.Reports(w.now) != nil { // into a line that is dead
				}
			}
		}
		p.frozen = false
		p.reset()
		p.rps = []float64{0, 1, 20}[rng.IntN(3)]
		run(between(0, 3*time.Second))
		p.rps = 5000
		run(10 * time.Second)
	}
}
