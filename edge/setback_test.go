package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Receipts of before a clock was set back give back what they are of, wherever that has gone
// with the clock, and nothing of what was charged since; slots are renewed from there, too.
func TestReceiptsOfBeforeAClockWasSetBack(t *testing.T) {
	for name, spec := range map[string]limit.RateSpec{
		"log":       {Algorithm: "sliding_log", Limit: 10, Per: 10 * time.Second},
		"full":      {Oldest: "full", Limit: 10, Per: 10 * time.Second},
		"first hit": {Algorithm: "fixed_window", Align: "first_hit", Limit: 10, Per: 10 * time.Second},
		"slots":     {Algorithm: "concurrency", Limit: 10, Lease: 10 * time.Second},
	} {
		for _, spec.Scope = range []string{"edge", "global"} {
			for _, back := range []time.Duration{0, 2 * time.Second, 5 * time.Second, time.Minute} {
				for _, later := range []time.Duration{100 * time.Millisecond, 4700 * time.Millisecond, 5 * time.Second} {
					t.Run(fmt.Sprint(name, ", ", spec.Scope, ", ", back, ", ", later), func(t *testing.T) {
						if spec.Scope == "global" && back > 10*time.Second && (name == "full" || name == "slots") {
							return // others may have been told: what lies so far ahead counts once it is there
						}
						l := stepped{t: t, n: newNode(t, Config{}, perUser(spec)), now: start.Add(5 * time.Second)}
						before := l.ask(5)
						l.now = l.now.Add(-back)
						l.pass(later)
						since := l.ask(20)
						if len(before) != 5 || len(since) != 5 {
							t.Fatalf("%d and then %d are admitted of 10, want 5 each", len(before), len(since))
						}
						if name == "slots" {
							for _, c := range before[:2] {
								l.n.Renew(l.now, c)
							}
							if got := len(l.ask(5)); got != 0 {
								t.Errorf("%d more are admitted once 2 of 10 are renewed, want none", got)
							}
						}
						for _, c := range before {
							l.n.Refund(l.now, c, 0)
						}
						again := l.ask(20)
						if len(again) != 5 {
							t.Errorf("5 are given back, and %d more admitted", len(again))
						}
						for _, c := range append(since, again...) {
							l.n.Refund(l.now, c, 0)
						}
						if got := len(l.ask(20)); got != 10 {
							t.Errorf("all are given back, and %d admitted, want 10", got)
						}
					})
				}
			}
		}
	}
}

// Nor does it make room for others sooner than what was charged since leaves.
func TestReceiptsOfBeforeFreeNothingYounger(t *testing.T) {
	for _, scope := range []string{"edge", "global"} {
		l := stepped{t: t, n: newNode(t, Config{}, perUser(limit.RateSpec{Algorithm: "sliding_log", Limit: 10, Per: 10 * time.Second, Scope: scope})), now: start.Add(5 * time.Second)}
		before := l.ask(5)
		l.now = l.now.Add(-5 * time.Second)
		l.pass(5 * time.Second)
		since := len(l.ask(5))
		for _, c := range before {
			l.n.Refund(l.now, c, 0)
		}
		l.pass(5600 * time.Millisecond)
		if got := since + len(l.ask(20)); got != 10 {
			t.Errorf("scope %s: %d of 10 are admitted within 5.6 s", scope, got)
		}
	}
}

// stepped is a node with a clock that is set.
type stepped struct {
	t   *testing.T
	n   *Node
	now time.Time
}

// ask asks so often, and returns the receipts of what is admitted.
func (l *stepped) ask(times int) (receipts [][]limit.Charge) {
	for range times {
		req := requestOf(l.n, "u")
		req.Receipt = true
		if l.n.Check(l.now, req).Allowed {
			receipts = append(receipts, append([]limit.Charge(nil), req.Charges...))
		}
		req.Release()
	}
	return receipts
}

func (l *stepped) pass(d time.Duration) {
	for end := l.now.Add(d); l.now.Before(end); l.now = l.now.Add(100 * time.Millisecond) {
		l.n.Tick(l.now)
	}
}
