package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// TestDegraded: nobody answering, being refused, and being answered are three
// things, and an edge that was refused and then cut off is cut off.
func TestDegraded(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 5, Per: time.Minute}))
	now := start
	want := func(reason string) {
		t.Helper()
		if got := n.Degraded(now); got != reason {
			t.Errorf("%v after the start: Degraded = %q, want %q", now.Sub(start), got, reason)
		}
	}
	receive := func(status deltasync.Status) {
		t.Helper()
		check(n, now, "u1")
		up := upOf(t, n.Flush(now))
		down := deltasync.Down{Status: status, Region: "eu", Node: euNode, StoreEpoch: 1}
		refused := status == deltasync.StatusUnsupported
		if !refused {
			down.Seq, down.Totals = up.Seq, make([]deltasync.Totals, 1)
		}
		b, err := down.AppendBinary(nil)
		if err != nil {
			t.Fatalf("encode reply: %v", err)
		}
		if err := n.Receive(now, 0, b); (err != nil) != refused {
			t.Fatalf("Receive of %s: %v", status, err)
		}
		if refused {
			n.Lost(now, 0, up.Seq)
		}
	}
	want("sync")
	receive(deltasync.StatusUnsupported)
	want("unsupported")
	now = now.Add(999 * time.Millisecond)
	want("unsupported")
	now = now.Add(2 * time.Millisecond)
	want("sync")
	receive(deltasync.StatusUnsupported)
	want("unsupported")
	now = now.Add(200 * time.Millisecond) // the lane rests after a loss
	receive(deltasync.StatusStoreDown)
	want("store_down")
	now = now.Add(200 * time.Millisecond)
	receive(deltasync.StatusOK)
	want("")
	now = now.Add(time.Second + 1)
	want("sync")
}
