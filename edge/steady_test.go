package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
	"github.com/spillgate/spillgate/test/clocks"
)

// A clock that is set back by little, over the end of a window that somebody was limited in,
// frees nobody a second time: by the time that it has caught up as much was admitted as
// where it was right. One of whom nobody has asked meanwhile is kept, so that it may be set
// back by more.
func TestSmallStepBackFreesNobody(t *testing.T) {
	alone.Mark(t)
	for name, spec := range everyKind(7) {
		for _, scope := range []limit.Scope{limit.ScopeEdge, limit.ScopeGlobal} {
			spec.Scope = scope.String()
			for _, step := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second} {
				rule, end := perUser(spec), start.Truncate(time.Minute).Add(time.Minute)
				run := func(set time.Duration, asked bool) (admitted int) {
					n := newNode(t, Config{}, rule)
					at := end.Add(-3 * time.Second)
					admitted = through(n, at, "u", 9)
					passed := end.Add(step * 8 / 10)
					for ; at.Before(passed); at = at.Add(10 * time.Millisecond) {
						n.Tick(at)
					}
					if n.Tick(passed); asked {
						n.Check(passed, peekOf(n, "u"))
					}
					admitted += through(n, passed.Add(-set), "u", 9)
					return admitted + through(n, end.Add(step+2*time.Second), "u", 9)
				}
				for _, asked := range []bool{false, true} {
					if asked && step > mostStill {
						continue
					}
					if got, want := run(step, asked), run(0, asked); got > want {
						t.Errorf("%s, scope %s, set back by %v, asked before is %t: %d admitted, want %d", name, scope, step, asked, got, want)
					}
				}
			}
		}
	}
}

// Who reads the clock, is held up, and asks then frees nobody, himself nor others: no clock was
// set back.
func TestLateCallersFreeNobody(t *testing.T) {
	for name, spec := range everyKind(7) {
		for _, late := range []time.Duration{300 * time.Millisecond, 1100 * time.Millisecond, 2500 * time.Millisecond, 3 * time.Minute} {
			n, m := newNode(t, Config{}, perUser(spec)), clocks.Begin()
			at := -time.Second // of what is to come nobody can be late
			if end := m.After(at).Truncate(time.Minute).Add(time.Minute); end.Sub(m.After(at)) < 100*time.Millisecond {
				at -= 200 * time.Millisecond // the machine's minute ends: a window that is aligned would begin anew
			}
			for d := -5 * time.Minute; d < at; d += 100 * time.Millisecond {
				n.Check(m.After(d), peekOf(n, "other"))
			}
			through(n, m.After(at), "u", 99)
			more := 0
			for i := range 20 {
				d := at + time.Duration(i)*time.Millisecond
				n.Tick(m.After(d - late))
				more += through(n, m.After(d-late), "u", 9) + through(n, m.After(d), "u", 9)
			}
			if more > 0 {
				t.Errorf("%s: who asks %v late frees %d more", name, late, more)
			}
		}
	}
}

// Nor does one who asks how things will stand have others be late until then.
func TestWhoAsksOfTimesToComeHoldsUpNobody(t *testing.T) {
	for name, spec := range everyKind(7) {
		if spec.Initial > 0 || spec.Algorithm == "concurrency" {
			continue
		}
		n, m := newNode(t, Config{}, perUser(spec)), clocks.Begin()
		n.Check(m.After(0), peekOf(n, "other"))
		n.Check(m.After(24*time.Hour), peekOf(n, "other"))
		through(n, m.After(0), "u", 99)
		if got := through(n, m.After(3*time.Hour), "u", 99); got != 7 {
			t.Errorf("%s: %d of 7 are admitted three hours later", name, got)
		}
	}
}
