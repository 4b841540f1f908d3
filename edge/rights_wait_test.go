package edge

import (
	"testing"
	"time"
)

// Who is denied by a strict limit, as its rights are spent, is told when they are free again:
// whoever comes then passes, be it at the second try.
func TestStrictTellsWhenRightsAreFree(t *testing.T) {
	for name, spec := range everyKind(10) {
		if spec.Align == "first_hit" || spec.Initial != 0 || spec.Queue {
			continue // cannot be strict
		}
		spec.Scope, spec.Consistency = "edge", "strict"
		at := start.Add(50 * time.Second)
		now := at
		n := newNode(t, Config{Boot: func() time.Duration { return time.Hour + now.Sub(at) }}, perUser(spec))
		for range 10 {
			if d := check(n, now, "u"); !d.Allowed {
				t.Fatalf("%s: %+v, want 10 allowed", name, d)
			}
		}
		for tries := 0; ; tries++ {
			d := check(n, now, "u")
			if d.Allowed {
				break
			}
			if tries == 2 || d.RetryAfter <= 0 || d.Remaining != 0 {
				t.Errorf("%s, %v later, for the %dth time: %+v, want it allowed at the third, and 0 left till then", name, now.Sub(at), tries+1, d)
				break
			}
			now = now.Add(d.RetryAfter)
		}
	}
}
