package edge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// rulesOf has a node go by a queue of a capacity and pace.
func rulesOf(t *testing.T, n *Node, capacity uint64, pace, maxWait time.Duration, scope string) {
	t.Helper()
	n.SetRules(compile(t, perUser(limit.RateSpec{Name: "q", Algorithm: "leaky_bucket", Capacity: capacity, Outflow: limit.Flow{Units: 1, Per: pace}, Queue: true, MaxWait: maxWait, Scope: scope})))
}

// A queue that rules made slow by mistake, and soon as fast again, serves on where those go on
// who were told a turn: what was in it before, and whoever was denied, waits by that pace no
// longer.
func TestPaceThatWasASlip(t *testing.T) {
	for _, scope := range []string{"edge", "global"} {
		for _, maxWait := range []time.Duration{0, 15 * time.Second} {
			for _, before := range []int{0, 1, 20} {
				for _, slip := range []time.Duration{time.Minute, time.Hour} {
					for _, asks := range []bool{false, true} {
						if asks && maxWait == 0 && before > 0 {
							continue // one is told a turn by that pace, and nobody overtakes him
						}
						t.Run(fmt.Sprint(scope, " ", maxWait, " ", before, " ", slip, " asked ", asks), func(t *testing.T) {
							n, now := newNode(t, Config{View: mapView{}}, queueOf("")), start
							passes := func(d time.Duration) {
								for end := now.Add(d); now.Before(end); now = now.Add(100 * time.Millisecond) {
									n.Tick(now)
								}
							}
							rulesOf(t, n, 40, time.Second, maxWait, scope)
							for range before {
								take(t, n, now, "u", 1)
							}
							passes(500 * time.Millisecond)
							rulesOf(t, n, 40, slip, maxWait, scope)
							passes(500 * time.Millisecond)
							if asks {
								take(t, n, now, "u", 1)
							}
							passes(500 * time.Millisecond)
							rulesOf(t, n, 40, time.Second, maxWait, scope)
							passes(500 * time.Millisecond)
							most := time.Duration(before+1) * time.Second
							if d, _ := take(t, n, now, "u", 1); !d.Allowed || d.Delay > most {
								t.Errorf("when it is mended the next is allowed: %t, and told to wait for %v, want no more than %v", d.Allowed, d.Delay, most)
							}
							passes(most)
							if d, _ := take(t, n, now, "u", 1); !d.Allowed || d.Delay > time.Second {
								t.Errorf("when all have gone the next is allowed: %t, and told to wait for %v", d.Allowed, d.Delay)
							}
						})
					}
				}
			}
		}
	}
}

// Once it is mended a slip is over: nobody waits by that pace when his key has been idle since, or
// rules change once more, whatever is pushed of it late; nor where it was not asked meanwhile.
func TestSlipIsMendedForGood(t *testing.T) {
	alone.Mark(t)
	for _, scope := range []string{"edge", "global"} {
		for _, maxWait := range []time.Duration{0, 2 * time.Second} {
			for _, then := range []string{"soon", "idle", "changed", "idle and changed", "pushed late", "pushed before"} {
				t.Run(fmt.Sprint(scope, " ", maxWait, " ", then), func(t *testing.T) {
					view, err := NewCacheView(1 << 20)
					if err != nil {
						t.Fatal(err)
					}
					defer view.Close()
					n, now := newNode(t, Config{View: view}, queueOf("")), start
					passes := func(d time.Duration) {
						for end := now.Add(d); now.Before(end); now = now.Add(100 * time.Millisecond) {
							n.Tick(now)
						}
						view.Wait()
					}
					rulesOf(t, n, 40, 100*time.Millisecond, maxWait, scope)
					passes(2 * time.Second)
					rulesOf(t, n, 40, time.Hour, maxWait, scope)
					push := pushOf(t, n.Rules().Rules()[0].Rates[0], keyOf(n, "u"), now, 1, 0)
					if then == "pushed before" {
						if err := n.ReceiveHot(now, push); err != nil {
							t.Fatal(err)
						}
					} else {
						take(t, n, now, "u", 1)
					}
					passes(2 * time.Second)
					rulesOf(t, n, 40, 100*time.Millisecond, maxWait, scope)
					passes(time.Second)
					served := func() {
						t.Helper()
						if d, _ := take(t, n, now, "u", 1); !d.Allowed || d.Delay > 0 {
							t.Errorf("allowed %t, told to wait for %v, or to come again after %v", d.Allowed, d.Delay, d.RetryAfter)
						}
					}
					if served(); then == "pushed late" {
						if err := n.ReceiveHot(now, push); err != nil {
							t.Fatal(err)
						}
					}
					passes(30 * time.Second)
					if strings.Contains(then, "idle") || then == "pushed late" {
						passes(5 * time.Minute)
						settleFrames(n, now)
						passes(5 * time.Minute)
					}
					if strings.Contains(then, "changed") {
						rulesOf(t, n, 40, time.Second, maxWait, scope)
						passes(time.Second)
					}
					served()
				})
			}
		}
	}
}

// A queue that is asked all the time, slowed down for some seconds, lets in again within a
// second or two what its max_wait allows.
func TestQueueThatWasSlow(t *testing.T) {
	for _, slow := range []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour} {
		n, now := newNode(t, Config{View: mapView{}}, queueOf("")), start
		ask := func(d time.Duration) (in int) {
			for end := now.Add(d); now.Before(end); now = now.Add(50 * time.Millisecond) {
				n.Tick(now)
				if d, _ := take(t, n, now, "u", 1); d.Allowed {
					in++
				}
			}
			return in
		}
		rulesOf(t, n, 100, 100*time.Millisecond, 2*time.Second, "edge")
		ask(10 * time.Second)
		rulesOf(t, n, 100, slow, 2*time.Second, "edge")
		ask(5 * time.Second)
		rulesOf(t, n, 100, 100*time.Millisecond, 2*time.Second, "edge")
		if in := ask(4 * time.Second); in < 20 {
			t.Errorf("one every %v for 5 s: %d were let in in the 4 s after it, want 20 at least", slow, in)
		}
	}
}

// However often rules change a queue's pace, nobody is told to wait for longer than three
// times what a full one takes by the slowest.
func TestLinesOfChangedPacesDoNotGrow(t *testing.T) {
	alone.Mark(t)
	for _, every := range []time.Duration{300 * time.Millisecond, 1100 * time.Millisecond} {
		for _, fast := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond} {
			for _, step := range []time.Duration{2 * time.Second, 10 * time.Second} {
				n, longest := newNode(t, Config{View: mapView{}}, queueOf("")), time.Duration(0)
				change, paces := start, []time.Duration{time.Second, fast}
				for now := start; now.Before(start.Add(20 * time.Minute)); now = now.Add(every) {
					if !now.Before(change) {
						rulesOf(t, n, 40, paces[0], 0, "edge")
						paces[0], paces[1], change = paces[1], paces[0], change.Add(step)
					}
					n.Tick(now)
					for {
						d, _ := take(t, n, now, "u", 1)
						if !d.Allowed {
							break
						}
						longest = max(longest, d.Delay)
					}
				}
				if most := 3 * 42 * time.Second; longest > most { // 40, and a slice
					t.Errorf("one a second or every %v, changed every %v, asked every %v: told to wait for %v, want %v at the most", fast, step, every, longest, most)
				}
			}
		}
	}
}
