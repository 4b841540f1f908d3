package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// A penalty that an edge has only heard of, which counted nothing itself, is told
// where the region's store is new, and not before: whoever set it may have died.
func TestHeardPenaltyIsToldToANewStore(t *testing.T) {
	n := inStep(newNode(t, Config{View: mapView{}}, punishing()))
	until, now := start.Add(time.Minute).UnixNano(), start
	pushUntil(t, n, now, "u", until)
	round := func(d time.Duration) {
		now = now.Add(d)
		for range 10 {
			n.Tick(now)
		}
	}
	ask := func(epoch uint64) {
		t.Helper()
		if d, _ := take(t, n, now, "u", 1); d.Allowed {
			t.Fatal("allowed, want denied by the penalty")
		}
		up := upOf(t, n.Flush(now))
		if d := onlyDelta(t, up); d.Until != 0 {
			t.Errorf("a question tells %+v, want nothing", d)
		}
		down := deltasync.Down{Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: epoch, Store: epoch, Totals: []deltasync.Totals{{}}}
		b, err := down.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Receive(now, 0, b); err != nil {
			t.Fatal(err)
		}
	}
	ask(1)
	round(2 * time.Second)
	for _, o := range n.Flush(now) {
		var up deltasync.Up
		if err := up.UnmarshalBinary(o.Payload); err != nil || len(up.Sections) > 0 {
			t.Errorf("with the same store: sent %+v, %v; want nothing", up.Sections, err)
		}
	}
	ask(2)
	if d, _ := take(t, n, now, "u", 1); d.Allowed { // and so it has a question, too
		t.Fatal("allowed, want denied by the penalty")
	}
	round(0)
	if d := onlyDelta(t, upOf(t, n.Flush(now))); d.Until != until || len(d.Cells) > 0 {
		t.Errorf("with a new store: sent %+v, want the penalty", d)
	}
}
