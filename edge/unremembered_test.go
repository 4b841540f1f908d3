package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// A key that is only asked for may be swept before the region answers: then the view has
// the answer. Where it forgets that, who asks next has the region asked again, and hears.
func TestAnswerThatTheViewForgotIsAskedForAgain(t *testing.T) {
	for name, c := range map[string]struct {
		view  View
		knows uint64 // between the questions
	}{"a view that keeps": {mapView{}, 7}, "a view that forgets": {noView{}, 0}} {
		n := newNode(t, Config{View: c.view}, perUser(limit.RateSpec{Algorithm: "sliding_log", Limit: 100, Per: time.Minute}))
		rate, key := n.Rules().Rules()[0].Rates[0], keyOf(n, "u")
		now := start
		ask := func() *deltasync.Up {
			t.Helper()
			n.Check(now, peekOf(n, "u"))
			up := upOf(t, n.Flush(now))
			if d := up.Sections[0].Deltas[0]; d.Key != key || d.Flags&deltasync.FlagTouch == 0 {
				t.Fatalf("%s: the region is told %+v, want to be asked about the key", name, d)
			}
			return up
		}
		heard := peersAt(rate.SliceAt(start.UnixNano()), 7)
		believes := func(when string, live bool, want uint64) {
			t.Helper()
			if b := n.Believe(now, rate, key); b.Live != live || b.Total != want {
				t.Errorf("%s, %s: live %v, %d used; want live %v, %d", name, when, b.Live, b.Total, live, want)
			}
		}
		up := ask()
		for now = time.Unix(0, rate.EndOf(rate.SliceAt(now.UnixNano()))); n.Keys() > 0; now = now.Add(100 * time.Millisecond) {
			n.Tick(now)
		}
		answer(t, n, now, up, heard)
		believes("swept before the answer", false, c.knows)
		if c.knows > 0 {
			continue
		}
		answer(t, n, now, ask(), heard)
		believes("asked again", true, 7)
	}
}
