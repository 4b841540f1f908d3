package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// An edge says in which slice it asked for what it has, of whoever answered it
// last; and nothing where it has nothing, is to hear all, or heard of another.
func TestEdgeTellsWhatItHeard(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1000, Per: time.Minute}))
	rate := n.Rules().Rules()[0].Rates[0]
	now := start
	// tell charges and flushes; others is what a reply says.
	tell := func() (*deltasync.Up, deltasync.Delta) {
		t.Helper()
		now = now.Add(2 * time.Second)
		for range 50 {
			check(n, now, "u")
		}
		out := n.Flush(now)
		if len(out) != 1 {
			t.Fatalf("%d frames, want one", len(out))
		}
		up := frameOf(t, out[0])
		return up, up.Sections[0].Deltas[0]
	}
	reply := func(up *deltasync.Up, epoch uint64) {
		t.Helper()
		down := deltasync.Down{Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: up.Seq, EchoSentAt: up.SentAt, StoreEpoch: epoch, Store: 1,
			Totals: []deltasync.Totals{{Peers: []crdt.Cell{{Slice: rate.SliceAt(now.UnixNano()), Charges: 1}}}}}
		b, err := down.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(10 * time.Millisecond)
		if err := n.Receive(now, 0, b); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, up *deltasync.Up, d deltasync.Delta, epoch uint64, heard crdt.Slice) {
		t.Helper()
		if up.HeardEpoch != epoch || d.Heard != heard {
			t.Errorf("%s: it heard of %d in slice %d, want of %d in %d", what, up.HeardEpoch, d.Heard, epoch, heard)
		}
	}
	up, d := tell()
	want("at first", up, d, 0, 0)
	reply(up, 5)
	up, d = tell()
	want("after one answer, of somebody new", up, d, 5, 0)
	reply(up, 5)
	asked := rate.SliceAt(up.SentAt)
	up, d = tell()
	want("after two", up, d, 5, asked)
	n.Lost(now, 0, up.Seq)
	now = now.Add(2 * time.Second) // the lane rests after a loss
	up, d = tell()
	want("after a frame was lost", up, d, 5, 0)
	reply(up, 5)
	asked = rate.SliceAt(up.SentAt)
	up, d = tell()
	want("after the next answer", up, d, 5, asked)
	reply(up, 6) // another
	up, d = tell()
	want("after another's answer", up, d, 6, 0)
	reply(up, 6)
	asked = rate.SliceAt(up.SentAt)
	up, d = tell()
	want("after two of his", up, d, 6, asked)
	reply(up, 6)
	n.mu.Lock()
	n.sendAgain(0, 0, now.UnixNano())
	n.mu.Unlock()
	for range shards/sweptAtOnce + 1 {
		n.Tick(now)
	}
	up, d = tell()
	want("when all is told again", up, d, 6, 0)
}

// Periods of the calendar have slices of their own.
func TestOfPeriodsAllIsHeard(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1000, Algorithm: "fixed_window", Period: "day"}))
	now := start
	for range 4 {
		now = now.Add(2 * time.Second)
		for range 50 {
			check(n, now, "u")
		}
		for _, out := range n.Flush(now) {
			up := frameOf(t, out)
			if d := up.Sections[0].Deltas[0]; d.Heard != 0 {
				t.Errorf("heard in slice %d, want nothing", d.Heard)
			}
			answer(t, n, now, up, deltasync.Totals{Peers: up.Sections[0].Deltas[0].Cells})
		}
	}
}

// What is answered of a key that was only asked for, and is not live any more as
// nothing of it counted, is known to whoever asks next.
func TestAnswerToAForgottenQuestion(t *testing.T) {
	view, err := NewCacheView(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, Config{View: view}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute}))
	rate := n.Rules().Rules()[0].Rates[0]
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", "u")
	req.Peek = true
	if d := n.Check(start, req); !d.Allowed {
		t.Fatalf("peek: %+v", d)
	}
	up := frameOf(t, n.Flush(start)[0])
	tickAll(n, start.Add(2*time.Second))
	if keys := n.Stats(start).Keys; keys != 0 {
		t.Fatalf("%d keys are live, want none: nothing counts", keys)
	}
	now := start.Add(2 * time.Second)
	answer(t, n, now, up, deltasync.Totals{Others: []crdt.Cell{{Slice: rate.SliceAt(now.UnixNano()), Charges: 10}}})
	view.Wait()
	req.Peek = false
	if d := n.Check(now, req); d.Allowed {
		t.Errorf("admitted, with %d left: others have spent all, and said so", d.Remaining)
	}
}
