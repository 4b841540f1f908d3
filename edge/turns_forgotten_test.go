package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// Who is known by slices alone, since its record was forgotten, is told no turn before
// those who were told theirs; nor one that is later by more than a slice.
func TestForgottenTurnsAreTakenForTheLatest(t *testing.T) {
	alone.Mark(t)
	const pace = 100 * time.Millisecond
	for _, scope := range []string{"edge", "global"} {
		for offset := time.Duration(0); offset < 400*time.Millisecond; offset += 7 * time.Millisecond {
			for came := 1; came < 12; came++ {
				t.Run(fmt.Sprint(scope, ", ", came, " at ", offset), func(t *testing.T) {
					n := newNode(t, Config{View: mapView{}}, perUser(limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: pace}, Queue: true, Scope: scope}))
					now, last := start.Add(offset), start
					for range came {
						w, _ := join(t, n, now, 1)
						last = w.turn
						now = now.Add(3 * time.Millisecond)
					}
					forgetAll(n, now)
					width := n.Rules().Rules()[0].Rates[0].Width
					for range 3 {
						w, ok := join(t, n, now, 1)
						if late := w.turn.Sub(last); !ok || late < pace-time.Microsecond || late > pace+width {
							t.Errorf("told to come %v after the one before, want %v, or up to %v more", late, pace, width)
						}
						last, now, width = w.turn, now.Add(time.Millisecond), 0
					}
				})
			}
		}
	}
}

// Turns go back with a clock that is set back, also where nobody was charged since what is
// known of them was forgotten, or rules changed: who comes then waits for a full queue at
// the most.
func TestTurnsGoBackWithTheClock(t *testing.T) {
	const full = 40 * time.Second
	rules := func(pace, most time.Duration, scope string) limit.RuleSpec {
		return perUser(limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: pace}, Queue: true, MaxWait: most, Scope: scope})
	}
	for _, scope := range []string{"edge", "global"} {
		for _, most := range []time.Duration{0, 10 * time.Second} {
			for name, pace := range map[string]time.Duration{"the same": time.Second, "in the same slices": 900 * time.Millisecond, "in others": 100 * time.Millisecond} {
				for _, forgotten := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %v at most, a pace %s, forgotten: %v", scope, most, name, forgotten), func(t *testing.T) {
						n := newNode(t, Config{View: mapView{}}, rules(time.Second, most, scope))
						for range 45 {
							join(t, n, start, 1)
						}
						if forgotten {
							forgetAll(n, start)
						}
						n.SetRules(compile(t, rules(pace, most, scope)))
						join(t, n, start, 1)
						back := start.Add(-time.Hour)
						for now := back; ; now = now.Add(time.Second) {
							n.Tick(now)
							if w, ok := join(t, n, now, 1); ok {
								if w.turn.Sub(back) > full+time.Second {
									t.Errorf("%v after the clock was set back somebody is told to come in %v", now.Sub(back), w.turn.Sub(now))
								}
								break
							}
							if now.Sub(back) > full {
								t.Fatalf("nobody is let in within %v", full)
							}
						}
					})
				}
			}
		}
	}
}

// What is known of those who wait in a queue that was forgotten holds for whoever comes
// first: in a line of his own, by a limit of his own, or as one who leaves that was told by
// rules of before.
func TestWhoComesFirstToAForgottenQueue(t *testing.T) {
	for name, test := range map[string]struct {
		plan  string // of all who wait
		pace  time.Duration
		first func(w *lineWorld)
	}{
		"a slower tenant": {"free", time.Second, func(*lineWorld) {}},
		"a limit of its own": {"", time.Second, func(w *lineWorld) {
			p, _ := w.join("", 400, 1)
			w.leave(p)
		}},
		"one who leaves": {"", 840 * time.Millisecond, func(w *lineWorld) {
			w.load(time.Second)
			p, _ := w.join("", 0, 2)
			w.told(p, "by the slower pace")
			forgetAll(w.n, w.clock())
			w.leave(w.came[3])
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLineWorld(t, "global", 0)
			w.now += 333 * time.Millisecond
			w.load(test.pace)
			for range 8 {
				p, _ := w.join(test.plan, 0, 1)
				w.told(p, test.plan)
			}
			if name != "one who leaves" {
				w.forget()
			}
			test.first(w)
			for range 2 {
				p, ok := w.join(test.plan, 0, 1)
				if !ok {
					t.Fatal("denied")
				}
				w.told(p, "after it was forgotten")
			}
		})
	}
}

// A queue that was made faster and forgotten takes as many as have room beside those who
// wait, and not as if it was full for as long as these wait.
func TestForgottenQueueMadeFasterHasRoom(t *testing.T) {
	view := mapView{}
	w := &lineWorld{t: t, n: newNode(t, Config{View: view}, queueOf("")), scope: "edge", now: time.Minute}
	w.load(time.Second)
	for range 36 {
		p, _ := w.join("", 0, 1)
		w.told(p, "before")
	}
	w.load(900 * time.Millisecond)
	p, _ := w.join("", 0, 1)
	w.told(p, "by the faster pace")
	forgetAll(w.n, w.clock())
	clear(view)
	for range 3 {
		p, ok := w.join("", 0, 1)
		if !ok {
			t.Fatal("denied, with 37 waiting of 40")
		}
		w.told(p, "after it was forgotten")
	}
}

// Where the margin of a queue has closed since those came who wait in it, and it was
// forgotten, they keep their turns.
func TestForgottenQueueWhoseMarginClosed(t *testing.T) {
	for _, percent := range []float64{100, 300} {
		for _, scope := range []string{"edge", "global"} {
			rule := queueOf("")
			rule.Rates[0].Scope = scope
			rule.Margin = limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: percent, While: "capacity.api < 70%"}}
			n := newNode(t, Config{View: mapView{}}, rule)
			now := start.Add(333 * time.Millisecond)
			if err := n.SetCapacity(now, "api", 0.1, time.Hour); err != nil {
				t.Fatal(err)
			}
			var last time.Time
			waiting := 0
			for w, ok := join(t, n, now, 1); ok; w, ok = join(t, n, now, 1) {
				last = w.turn
				waiting++
			}
			if err := n.SetCapacity(now, "api", 0.9, time.Hour); err != nil {
				t.Fatal(err)
			}
			forgetAll(n, now)
			for until := last.Add(time.Second); ; now = now.Add(100 * time.Millisecond) {
				w, ok := join(t, n, now, 1)
				if !ok && now.Before(until) {
					continue
				}
				if !ok || w.turn.Before(until.Add(-time.Microsecond)) {
					t.Errorf("%v%%, %s: of %d who wait the last is told to come at %v; then %v at %v, with the margin closed", percent, scope, waiting, last.Sub(start), ok, w.turn.Sub(start))
				}
				break
			}
		}
	}
}
