package edge

import (
	"testing"
	"time"
)

// What is asked once more when it is to be charged has nobody asked for their counts before,
// as each call would then; a look that is all that comes does.
func TestAskingAheadTellsNobody(t *testing.T) {
	n, r := sharing(t, nil, perUser(adaptive(aHundred)))
	now := start.Add(2 * time.Second)
	r.flags &^= touch | urgent
	for _, c := range []struct {
		ahead bool
		cost  uint64
		want  bool // it passes
	}{{true, 1, true}, {true, 1000, false}, {false, 1, true}} {
		req := requestFor(n, "u")
		req.Peek, req.Ahead, req.Cost = true, c.ahead, c.cost
		before := n.Inspect(now, req)[0].Total
		if d := n.Check(now, req); d.Allowed != c.want {
			t.Errorf("%+v: allowed %t", c, d.Allowed)
		}
		if after := n.Inspect(now, req)[0].Total; after != before {
			t.Errorf("%+v: %d are charged, %d before", c, after, before)
		}
		if asked := r.flags&touch != 0; asked == c.ahead {
			t.Errorf("%+v: others are asked %t", c, asked)
		}
		req.Release()
		if req := n.Rules().Only().NewRequest(); req.Ahead {
			t.Error("a request is ahead that was released")
		}
	}
}
