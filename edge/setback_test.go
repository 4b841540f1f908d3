package edge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
	"github.com/spillgate/spillgate/test/clocks"
)

// Where a machine's clock is set back all goes on as if it were not: who is limited is so for
// as long, and receipts of before give back what they are of, and nothing of what was charged
// since; slots are renewed from there, too. That is so of who limits alone, be it that he
// ticks, and of an edge whose region does not answer.
func TestMachineThatIsSetBack(t *testing.T) {
	for name, spec := range map[string]limit.RateSpec{
		"sub windows": {Limit: 10, Per: 10 * time.Second},
		"log":         {Algorithm: "sliding_log", Limit: 10, Per: 10 * time.Second},
		"full":        {Oldest: "full", Limit: 10, Per: 10 * time.Second},
		"first hit":   {Algorithm: "fixed_window", Align: "first_hit", Limit: 10, Per: 10 * time.Second},
		"slots":       {Algorithm: "concurrency", Limit: 10, Lease: 10 * time.Second},
	} {
		for _, spec.Scope = range []string{"edge", "global"} {
			for _, back := range []time.Duration{0, 2 * time.Second, 5 * time.Second, time.Minute} {
				for _, later := range []time.Duration{100 * time.Millisecond, 4700 * time.Millisecond, 8 * time.Second} {
					for _, runs := range []string{"alone", "ticks", "tells"} {
						t.Run(fmt.Sprint(name, ", ", spec.Scope, ", ", back, ", ", later, ", ", runs), func(t *testing.T) {
							l := life{n: newNode(t, Config{}, perUser(spec)), machine: clocks.Begin(), runs: runs}
							l.pass(time.Second)
							before := l.ask(5)
							l.machine.Set = -back
							l.pass(later)
							since := l.ask(20)
							if len(before) != 5 || len(since) != 5 {
								t.Fatalf("%d and then %d are admitted of 10, want 5 each", len(before), len(since))
							}
							if name == "slots" {
								for _, c := range before[:2] {
									l.n.Renew(l.now(), c)
								}
								if got := len(l.ask(5)); got != 0 {
									t.Errorf("%d more are admitted once 2 of 10 are renewed, want none", got)
								}
							}
							for _, c := range before {
								l.n.Refund(l.now(), c, 0)
							}
							again := l.ask(20)
							if len(again) != 5 {
								t.Errorf("5 are given back, and %d more admitted", len(again))
							}
							for _, c := range append(since, again...) {
								l.n.Refund(l.now(), c, 0)
							}
							last := l.ask(20)
							if len(last) != 10 {
								t.Errorf("all are given back, and %d admitted, want 10", len(last))
							}
							l.pass(9 * time.Second)
							if got := len(l.ask(20)); got != 0 {
								t.Errorf("9 s later %d more are admitted, want none", got)
							}
							l.pass(2500 * time.Millisecond)
							if got := len(l.ask(20)); got != 10 {
								t.Errorf("a window later %d are admitted, want 10", got)
							}
						})
					}
				}
			}
		}
	}
}

// Receipts of before the times went back give back what became of their charges, one by one while
// others are charged, and once the clock is there again; slots are renewed from there, too.
func TestReceiptsOfBeforeTheTimesWentBack(t *testing.T) {
	for name, spec := range map[string]limit.RateSpec{
		"sub windows":    {Limit: 20, Per: 40 * time.Second},
		"log":            {Algorithm: "sliding_log", Limit: 20, Per: 40 * time.Second},
		"sliding window": {Algorithm: "sliding_window", Limit: 20, Per: 40 * time.Second},
		"first hit":      {Algorithm: "fixed_window", Align: "first_hit", Limit: 20, Per: 40 * time.Second},
		"slots":          inFlight(20, time.Hour),
	} {
		for _, spec.Scope = range []string{"edge", ""} {
			for _, later := range []time.Duration{time.Second, 21 * time.Second} { // the clock is there again after 20 s
				for _, renews := range []bool{false, spec.Lease > 0} {
					n := newNode(t, Config{}, perUser(spec))
					now := time.Date(2026, 1, 1, 1, 0, 30, 0, time.UTC)
					var before, since [][]limit.Charge
					for range 10 {
						_, c := take(t, n, now, "u", 1)
						before = append(before, c)
					}
					now = now.Add(-20 * time.Second)
					for i := range 10 {
						now = now.Add(later / 10)
						_, c := take(t, n, now, "u", 1)
						since = append(since, c)
						n.Tick(now)
						if renews {
							n.Renew(now, before[i])
						} else {
							n.Refund(now, before[i], 0)
						}
						n.Tick(now.Add(10 * time.Millisecond))
					}
					if renews {
						if got := through(n, now, "u", 1); got != 0 {
							t.Errorf("%s, scope %q, %v: one more than 20 that hold on is admitted", name, spec.Scope, later)
						}
						since = append(since, before...)
					}
					for _, c := range since {
						n.Refund(now, c, 0)
						n.Refund(now, slices.Clone(c), 0) // once more
					}
					if got := through(n, now, "u", 40); got != 20 {
						t.Errorf("%s, scope %q, %v, renews %v: all is given back, and %d of 20 are admitted", name, spec.Scope, later, renews, got)
					}
				}
			}
		}
	}
}

// A key that is charged, and forgotten, once the times had gone back gets back what its receipts name:
// what was moved then was others'.
func TestReceiptsOfForgottenKeysAfterTheTimesWentBack(t *testing.T) {
	for name, spec := range refundable {
		if spec.Algorithm == "token_bucket" || spec.Algorithm == "leaky_bucket" {
			continue
		}
		spec.Scope = "edge"
		n, now := newNode(t, Config{}, perUser(spec)), start
		others := func() {
			for i := range 3000 { // in all shards
				take(t, n, now, fmt.Sprint("x", i), 1)
			}
		}
		others()
		now = now.Add(-30 * time.Minute)
		others()
		now = now.Add(20 * time.Minute)
		var receipts [][]limit.Charge
		for range 10 {
			_, c := take(t, n, now, "u", 1)
			receipts = append(receipts, c)
		}
		forgetAll(n, now.Add(time.Millisecond))
		for _, c := range receipts {
			n.Refund(now.Add(time.Second), c, 0)
		}
		if got := through(n, now.Add(time.Second), "u", 40); got != 10 {
			t.Errorf("%s: all is given back, and %d of 10 admitted", name, got)
		}
	}
}

// Times without a monotonic reading say what they say, beside others that have one.
func TestTimesWithoutAReadingBesideOthers(t *testing.T) {
	for _, spec := range []limit.RateSpec{{Limit: 10, Per: 10 * time.Second}, {Algorithm: "sliding_log", Limit: 10, Per: 10 * time.Second, Scope: "edge"}} {
		l := life{n: newNode(t, Config{}, perUser(spec)), machine: clocks.Begin(), runs: "ticks"}
		l.pass(time.Second)
		l.machine.Set = time.Hour
		l.pass(time.Second)
		admitted := 0
		for range 90 {
			l.pass(100 * time.Millisecond)
			for _, at := range []time.Time{l.now(), l.now().Round(0)} {
				if check(l.n, at, "u").Allowed {
					admitted++
				}
			}
		}
		if admitted != 10 {
			t.Errorf("%s: %d of 10 are admitted within 9 s", spec.Algorithm, admitted)
		}
	}
}

// A program that made a node of limits of the default scope, and runs no fleet, tells nobody:
// where it makes up its times, and they go back, its counts go back with them.
func TestTimesThatGoBackWhereNobodyIsTold(t *testing.T) {
	alone.Mark(t)
	for name, spec := range everyKind(10) {
		for _, back := range []time.Duration{25 * time.Second, 80 * time.Second, 4 * time.Minute} {
			for _, asks := range []bool{false, true} {
				n := newNode(t, Config{}, perUser(spec))
				at := start.Add(time.Hour)
				for through(n, at, "u", 1) > 0 {
				}
				at = at.Add(-back)
				passes := at
				for end := at.Add(6 * time.Minute); at.Before(end); at = at.Add(100 * time.Millisecond) {
					if n.Tick(at); asks && check(n, at, "u").Allowed || !asks && n.Check(at, peekOf(n, "u")).Allowed {
						passes = at
					}
					if denied := at.Sub(passes); denied > 70*time.Second {
						t.Fatalf("%s: set back by %v, asks %v: denied for %v by a window of a minute", name, back, asks, denied)
					}
				}
			}
		}
	}
}

// life is a node's on a machine.
type life struct {
	n       *Node
	machine *clocks.Machine
	passed  time.Duration
	runs    string // how: "alone", "ticks", "tells"
}

func (l *life) now() time.Time { return l.machine.After(l.passed) }

// ask asks so often, and returns the receipts of what is admitted.
func (l *life) ask(times int) (receipts [][]limit.Charge) {
	for range times {
		req := requestOf(l.n, "u")
		req.Receipt = true
		if l.n.Check(l.now(), req).Allowed {
			receipts = append(receipts, append([]limit.Charge(nil), req.Charges...))
		}
		req.Release()
	}
	return receipts
}

func (l *life) pass(d time.Duration) {
	for end := l.passed + d; l.passed < end; l.passed += 100 * time.Millisecond {
		if l.runs != "alone" {
			l.n.Tick(l.now())
		}
		if l.runs == "tells" {
			l.n.Flush(l.now())
		}
	}
}
