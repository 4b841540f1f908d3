package edge

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// padded is a frame with a field of some later version, of so many bytes.
func padded(frame []byte, bytes int) []byte {
	return protowire.AppendBytes(protowire.AppendTag(frame, 99, protowire.BytesType), make([]byte, bytes))
}

// Replies, and a snapshot's requests and parts, are in the budget: while they have used
// it up nothing regular is sent.
func TestWhatComesBackIsInTheBudget(t *testing.T) {
	const rate, large = 10_000, 30_000
	for _, c := range []struct {
		name string
		hear func(n *Node, out Outgoing)
		wait time.Duration // until there are bytes again; at least, and no more than a second longer
	}{
		{"a small reply", func(n *Node, out Outgoing) { n.answerPadded(t, out, 1) }, 0},
		{"a large reply", func(n *Node, out Outgoing) { n.answerPadded(t, out, large) }, 2 * time.Second},
		{"a part of a snapshot", func(n *Node, out Outgoing) {
			n.answerPadded(t, out, 1)
			asks := n.Asks(start)
			if len(asks) != 1 {
				t.Fatalf("%d requests for a snapshot, want 1", len(asks))
			}
			if err := n.ReceiveSnapshot(start, asks[0], padded(part(t, 0, 0, n.Rules().Rules()[0].Rates[0], nil), large)); err != nil {
				t.Fatal(err)
			}
		}, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, Config{Budget: rate}, perUser(limit.RateSpec{Limit: 1 << 30, Per: time.Hour}))
			check(n, start, "u1")
			out := n.flushAll(start)
			if len(out) != 1 {
				t.Fatalf("%d frames, want 1", len(out))
			}
			c.hear(n, out[0])
			now := start
			for ; ; now = now.Add(100 * time.Millisecond) {
				check(n, now, "u1") // known by now, and far from its limit
				if frames := n.flushAll(now); len(frames) > 0 {
					if up := upOf(t, frames); len(up.Sections) > 0 {
						break
					}
					n.Lost(now, frames[0].Lane, frames[0].Seq) // a beat
					n.paused[0] = pause{}
				}
			}
			if waited := now.Sub(start); waited < c.wait || waited > c.wait+time.Second {
				t.Errorf("the next frame leaves after %v, want %v", waited, c.wait)
			}
		})
	}
}

// answerPadded replies to a frame of one key.
func (n *Node) answerPadded(t *testing.T, out Outgoing, bytes int) {
	t.Helper()
	down := deltasync.Down{Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: out.Seq, StoreEpoch: 1, LiveRegions: 1, Totals: make([]deltasync.Totals, 1)}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Receive(start, out.Lane, padded(b, bytes)); err != nil {
		t.Fatal(err)
	}
}

// With a budget the parts of a snapshot are asked for one at a time, and not while half
// of it is used up: frames go on.
func TestSnapshotKeepsTheBudget(t *testing.T) {
	n, err := New(Config{Region: "eu", Pop: "fra", Name: "e1", Secret: testSecret, Lanes: 4, Budget: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	n.SetRules(compile(t, perUser(limit.RateSpec{Limit: 10, Per: time.Minute})))
	rate, now := n.Rules().Rules()[0].Rates[0], start
	n.budget.Allows(now.UnixNano(), deltasync.Regular) // saves the first second up
	for lane := range 4 {
		n.budget.Spend(6_000)
		if asks := n.Asks(now); len(asks) != 0 {
			t.Fatalf("a part is asked for while the rest is for frames")
		}
		now = now.Add(time.Second)
		asks := n.Asks(now)
		if len(asks) != 1 || len(n.Asks(now)) != 0 {
			t.Fatalf("%d requests at once for lane %d, want one", len(asks), lane)
		}
		if err := n.ReceiveSnapshot(now, asks[0], padded(part(t, asks[0].Lane, 0, rate, nil), 30_000)); err != nil {
			t.Fatal(err)
		}
		if asks := n.Asks(now.Add(time.Second)); len(asks) != 0 {
			t.Fatalf("a part is asked for while the budget is used up")
		}
		for range 5 { // a second is saved up at once
			now = now.Add(time.Second)
			n.budget.Allows(now.UnixNano(), deltasync.Regular)
		}
	}
	if st := n.Stats(now); st.SnapshotIn == 0 {
		t.Error("the snapshot is not said to be there")
	}
}

// Where the budget has bytes for few of the claims that are due, each key's has its turn:
// none goes without for as long as a lease lasts, while others' go again and again.
func TestClaimsTakeTurns(t *testing.T) {
	alone.Mark(t)
	const keys = 2000
	for _, rate := range []int64{10_000, 40_000} {
		boot := time.Hour
		n := newNode(t, Config{Budget: rate, Boot: func() time.Duration { return boot }}, perUser(limit.RateSpec{Limit: 10, Per: time.Second, Consistency: "strict"}))
		last, oldest, claims := map[deltasync.Key]time.Time{}, time.Duration(0), 0
		for now := start; now.Before(start.Add(60 * time.Second)); now, boot = now.Add(100*time.Millisecond), boot+100*time.Millisecond {
			for i := range keys {
				check(n, now, fmt.Sprint("u", i))
			}
			for range 5 {
				now, boot = now.Add(20*time.Millisecond), boot+20*time.Millisecond
				for _, out := range n.Claims(now) {
					var c deltasync.Claims
					if err := c.UnmarshalBinary(out.Payload); err != nil {
						t.Fatal(err)
					}
					g := deltasync.Grants{Region: "eu", Status: deltasync.StatusOK, Lease: deltasync.DefaultLease, Echo: c.SentAt, Lane: c.Lane, Log: 1}
					for i := range c.Claims {
						if was, ok := last[c.Claims[i].Key]; ok {
							oldest = max(oldest, now.Sub(was))
						}
						last[c.Claims[i].Key] = now
						claims++
						g.Grants = append(g.Grants, deltasync.Grant{Key: c.Claims[i].Key, Holder: c.Claims[i].Holder, Granted: 2, Target: 2})
					}
					answer, err := g.AppendBinary(nil)
					if err == nil {
						err = n.ReceiveGrants(now, answer)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		fair := time.Duration(keys) * 60 * time.Second / time.Duration(max(1, claims))
		if len(last) != keys || oldest > 3*fair {
			t.Errorf("at %d bytes/s %d of %d keys were claimed, one only %v after the last time; a fair turn is %v", rate, len(last), keys, oldest, fair)
		}
	}
}

// Claims of strict limits, and what answers them, are in the budget: claims go first, and
// those for which it has no bytes wait, each for its turn; what is pushed is not in it.
func TestClaimsAreInTheBudget(t *testing.T) {
	alone.Mark(t)
	const rate, keys, seconds = 10_000, 2000, 20
	boot := time.Hour
	n := newNode(t, Config{Budget: rate, Boot: func() time.Duration { return boot }}, perUser(limit.RateSpec{Limit: 10, Per: time.Second, Consistency: "strict"}))
	now, sent, claimed := start, 0, map[deltasync.Key]bool{}
	for ; now.Before(start.Add(seconds * time.Second)); now, boot = now.Add(20*time.Millisecond), boot+20*time.Millisecond {
		for i := range keys / 50 {
			check(n, now, fmt.Sprint("u", (int(now.Sub(start)/(20*time.Millisecond))*keys/50+i)%keys))
		}
		for _, out := range n.Claims(now) {
			var c deltasync.Claims
			if err := c.UnmarshalBinary(out.Payload); err != nil {
				t.Fatal(err)
			}
			for i := range c.Claims {
				claimed[c.Claims[i].Key] = true
			}
			g := deltasync.Grants{Region: "eu", Status: deltasync.StatusOK, Lease: deltasync.DefaultLease, Echo: c.SentAt}
			answer, err := g.AppendBinary(nil)
			if err == nil {
				sent += len(out.Payload) + len(answer)
				err = n.ReceiveGrants(now, answer)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if most := rate*(seconds+1) + deltasync.MaxFrame; sent > most+most/20 || sent < most*3/4 {
		t.Errorf("%d bytes in %d s, want about %d", sent, seconds, most)
	}
	if len(claimed) != keys {
		t.Errorf("claims of %d keys left, want all %d", len(claimed), keys)
	}
	if n.budget.Allows(now.UnixNano(), deltasync.Regular) {
		t.Error("what can wait is sent while claims have used up the budget")
	}
	before := n.budget
	pushed, err := (&deltasync.Grants{Region: "eu", Status: deltasync.StatusOK, Lease: deltasync.DefaultLease}).AppendBinary(nil)
	if err == nil {
		err = n.ReceiveGrants(now, pushed)
	}
	if err != nil || n.budget != before {
		t.Errorf("a push is in the budget: %+v, was %+v (%v)", n.budget, before, err)
	}
}
