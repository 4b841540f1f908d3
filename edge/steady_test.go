package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
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
