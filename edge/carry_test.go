package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// A carry of a slice more than a second ahead of our clock is not believed: it
// would hide what is known of the bucket until the clock is there, and count then.
func TestFarFutureOfACarryIsRefused(t *testing.T) {
	for _, c := range []struct {
		name     string
		ahead    crdt.Slice
		believed bool
	}{{"half a second", 1, true}, {"a slice and half a second", 2, false}, {"hours", 1000, false}} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(tokens(10, limit.Flow{Units: 10, Per: 10 * time.Minute})))
			rate, key := n.Rules().Rules()[0].Rates[0], keyOf(n, "u")
			slice := rate.SliceAt(start.UnixNano())
			now := time.Unix(0, rate.EndOf(slice)).Add(-time.Second / 2)
			hears := func(carry crdt.Carry) {
				t.Helper()
				n.Check(now, peekOf(n, "u"))
				answer(t, n, now, upOf(t, n.Flush(now)), deltasync.Totals{Carry: carry})
			}
			hears(crdt.Carry{Boundary: slice, Level: 6_000_000})
			before := n.Believe(now, rate, key).Total
			if before != 6 {
				t.Fatalf("believes %d, want the 6 that it was told", before)
			}
			hears(crdt.Carry{Boundary: slice + c.ahead, Level: 9_000_000})
			want := before
			if c.believed {
				want = 9
			}
			if got := n.Believe(now, rate, key).Total; got != want {
				t.Errorf("told 9 of %s ahead believes %d, want %d", c.name, got, want)
			}
			if then := time.Unix(0, rate.StartOf(slice+c.ahead)); !c.believed && n.Believe(then, rate, key).Total > before {
				t.Errorf("when its slice begins believes %d, want no more than the %d of before", n.Believe(then, rate, key).Total, before)
			}
		})
	}
}
