package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// Where the clock is set back, be it by how much, each request has a turn of its own, in
// order and at the outflow's pace, behind those who wait already; and nobody waits for
// longer than max_wait and a window.
func TestTurnsAfterAStepBack(t *testing.T) {
	alone.Mark(t)
	const pace = 250 * time.Millisecond
	for _, scope := range []string{"edge", "region", "global"} {
		for _, maxWait := range []time.Duration{0, 5 * time.Second} {
			for _, back := range []time.Duration{1200 * time.Millisecond, 3 * time.Second, 8 * time.Second, 12 * time.Second, 40 * time.Second, time.Hour} {
				for _, busy := range []time.Duration{0, 30 * time.Second} { // what has drained before is in slices, and in the carry
					t.Run(fmt.Sprintf("%s, max_wait %v, back %v, busy for %v", scope, maxWait, back, busy), func(t *testing.T) {
						n := newNode(t, Config{}, perUser(limit.RateSpec{
							Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 4, Per: time.Second}, Queue: true, MaxWait: maxWait, Scope: scope,
						}))
						began, last, told := start.Add(33*time.Millisecond), time.Duration(-pace), 0
						most := maxWait + 10*time.Second
						step := time.Duration(0) // of the clock; at and turns are true time
						ask := func(at time.Duration) {
							w, ok := join(t, n, began.Add(at-step), 1)
							if !ok {
								return
							}
							told++
							turn := w.turn.Add(step).Sub(began)
							if turn < last+pace-time.Microsecond {
								t.Fatalf("at %v told to come at %v, and the one before at %v", at, turn, last)
							}
							if turn > at+most {
								t.Fatalf("at %v told to wait for %v", at, turn-at)
							}
							last = turn
						}
						at := time.Duration(0)
						for ; at < busy; at += pace {
							ask(at)
						}
						for range 12 {
							ask(at)
						}
						settleFrames(n, began.Add(at))
						for step, told = back, 0; at < busy+min(2*back, time.Minute); at += 2 * pace / 3 {
							ask(at)
							if told%7 == 0 {
								now := began.Add(at - step)
								settleFrames(n, now)
								for range 11 {
									n.Tick(now)
								}
							}
						}
						if took := (at - busy) / (2 * pace); told < int(took) {
							t.Errorf("%d were told turns in %v after the step, want %d at the least", told, at-busy, took)
						}
					})
				}
			}
		}
	}
}

// Who was told his turn before the clock was set back gives nothing back where others were
// told since: by the clock that is his turn looks like another's.
func TestLeaversOfAnotherClock(t *testing.T) {
	for _, step := range []time.Duration{3 * time.Second, 3013 * time.Millisecond} {
		for _, after := range []time.Duration{0, 2500 * time.Millisecond, 3100 * time.Millisecond} {
			if after > step && step == 3*time.Second {
				continue // to the nanosecond as if it had never been set back
			}
			for who := 1; who < 6; who++ {
				w := newLineWorld(t, "edge", 0)
				w.load(time.Second)
				for range 6 {
					p, _ := w.join("", 0, 1)
					w.told(p, "before")
				}
				w.back += step
				p, _ := w.join("", 0, 1)
				w.told(p, "once it was set back")
				w.now += after
				w.leave(w.came[who])
				p, _ = w.join("", 0, 1)
				w.told(p, fmt.Sprintf("when number %d had left", who))
			}
		}
	}
}

// A queue that is forgotten by a clock that was set back holds nobody out, and has nobody wait
// for longer than those who wait, as by the clock of before they did.
func TestQueueForgottenByAClockSetBack(t *testing.T) {
	for _, scope := range []string{"edge", "global"} {
		for _, maxWait := range []time.Duration{0, 15 * time.Second} {
			for _, back := range []time.Duration{20 * time.Second, time.Minute, time.Hour} {
				w := newLineWorld(t, scope, maxWait)
				w.load(time.Second)
				w.now += 333 * time.Millisecond
				for range 5 {
					p, _ := w.join("", 0, 1)
					w.told(p, "before")
				}
				w.setBack(back)
				w.forget()
				w.now += 100 * time.Millisecond
				if p, ok := w.join("", 0, 1); !ok || p.turn > w.now+7*time.Second {
					t.Errorf("%s, max_wait %v, set back by %v: admitted %v, told to wait for %v behind five", scope, maxWait, back, ok, p.turn-w.now)
				}
			}
		}
	}
}

// Who leaves by a clock that shows a little less than when he came, as it is slewed, or was
// read before, gives back his place as ever.
func TestLeaverBeforeHeCame(t *testing.T) {
	for _, came := range []int{1, 3} {
		for _, before := range []time.Duration{1, time.Millisecond, 500 * time.Millisecond} {
			w := newLineWorld(t, "edge", 0)
			w.load(time.Second)
			var last *inLine
			for range came {
				last, _ = w.join("", 0, 1)
			}
			w.now -= before
			w.leave(last)
			w.now += before
			if p, _ := w.join("", 0, 1); p.turn != last.turn {
				t.Errorf("%d came, and the last left %v before: the next is told %v, want the turn of who left, %v", came, before, p.turn-w.now, last.turn-w.now)
			}
		}
	}
}
