package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func requestFor(n *Node, user string) *limit.Request {
	req := n.Rules().Only().NewRequest()
	req.Set("user", user)
	return req
}

// lumpOf asks for a cost of so many requests that are to come.
func lumpOf(n *Node, now time.Time, user string, cost uint64, do func(req *limit.Request)) limit.Decision {
	req := requestFor(n, user)
	defer req.Release()
	req.Cost, req.Lump = cost, cost
	do(req)
	return n.Check(now, req)
}

func peek(req *limit.Request)    { req.Peek = true }
func forGood(req *limit.Request) {}

// A lump has no more than this edge's part of a limit that is far off, where a request of
// the same cost passes: others may be asked for as much. A denial says how much it has.
func TestLumpsOfAFarLimit(t *testing.T) {
	n := newNode(t, Config{}, perUser(adaptive(limit.RateSpec{Limit: 1000, Per: 10 * time.Second})))
	n.cluster.expect(2, 2)
	n.cluster.answered.Store(true)
	n.cluster.live.Store(2)
	if d := lumpOf(n, start, "u", 400, peek); d.Allowed || d.Remaining < 200 || d.Remaining > 265 {
		t.Fatalf("400 of 1000 over four edges: allowed %t, %d would pass", d.Allowed, d.Remaining)
	}
	room := lumpOf(n, start, "u", 400, peek).Remaining
	if d := lumpOf(n, start, "u", room, forGood); !d.Allowed {
		t.Fatalf("the %d that would pass do not", room)
	}
	if d := lumpOf(n, start, "u", 400, forGood); d.Allowed || d.Remaining > 20 {
		t.Errorf("once more: allowed %t, %d would pass", d.Allowed, d.Remaining)
	}
	if d := check(n, start, "u"); !d.Allowed || d.Remaining != 1000-room-1 {
		t.Errorf("a single one after it: allowed %t, %d remain", d.Allowed, d.Remaining)
	}
	req := requestFor(n, "other")
	defer req.Release()
	if req.Cost = 400; !n.Check(start, req).Allowed {
		t.Error("a request of 400 is denied")
	}
}

// What is asked for are the requests that come, and not what is charged ahead of them.
func TestAskedIsDemand(t *testing.T) {
	n, r := sharing(t, nil, perUser(adaptive(aHundred)))
	own := &r.block.share.own
	now := start.Add(2 * time.Second)
	own.Turn(limit.SpansOf(time.Second), now.UnixNano())
	before := own.Fast
	if d := lumpOf(n, now, "u", 10, forGood); !d.Allowed {
		t.Fatal("10 of 100 are denied")
	}
	own.Turn(limit.SpansOf(time.Second), now.Add(10*time.Millisecond).UnixNano())
	if own.Fast > before {
		t.Errorf("a lump that is charged has the demand rise from %v to %v", before, own.Fast)
	}
	req := requestFor(n, "u")
	defer req.Release()
	req.Cost = 50
	n.Asked(now, req)
	own.Turn(limit.SpansOf(time.Second), now.Add(20*time.Millisecond).UnixNano())
	if own.Fast < before+100 { // an average over 250 ms
		t.Errorf("50 that are asked for have the demand rise from %v to %v", before, own.Fast)
	}
	if used := n.Inspect(now, req)[0].Total; used != 11 {
		t.Errorf("%d are charged, want the 10, and the one from before", used)
	}
}
