package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// It is told about how many keys a rule saw and denied of late, and those that rest are forgotten.
func TestSeenKeys(t *testing.T) {
	now := start
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 3, Per: time.Minute}))
	rule := n.Rules().Rules()[0]
	is := func(what string, keys, denied float64) {
		t.Helper()
		k, d := n.Seen(now, rule)
		for _, c := range []struct{ got, want float64 }{{k.Estimate(), keys}, {d.Estimate(), denied}} {
			if c.got < 0.6*c.want || c.got > 1.4*c.want || c.want == 0 && c.got > 0 {
				t.Errorf("%s: %.0f keys are seen, %.0f denied; want %.0f and %.0f", what, k.Estimate(), d.Estimate(), keys, denied)
				return
			}
		}
	}
	is("nothing", 0, 0)
	for round := range 10 {
		for user := range 100 {
			if user < 20 || round == 0 { // the others come once
				check(n, now, fmt.Sprint("u", user))
			}
		}
		now = now.Add(200 * time.Millisecond)
		n.Flush(now)
		n.Tick(now)
	}
	is("a hundred", 100, 20)
	now = now.Add(distinctSpan)
	n.Tick(now)
	is("of the span before", 100, 20)
	now = now.Add(distinctSpan)
	n.Tick(now)
	is("long ago", 0, 0)
}
