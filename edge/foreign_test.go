package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// euNode is who speaks for the region of nodes under test.
var euNode = deltasync.NodeID("eu", "", "")

// What another region tells is not ours to believe, however it came here.
func TestForeignRepliesAndPushesAreDropped(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute}))
	check(n, start, "u")
	up := upOf(t, n.Flush(start))
	d := up.Sections[0].Deltas[0]
	totals := deltasync.Totals{Peers: []crdt.Cell{{Slice: d.Cells[0].Slice, Charges: 10}}}
	for _, down := range []deltasync.Down{
		{Region: "us", Node: deltasync.NodeID("us", "", "")},
		{Region: "eu", Node: deltasync.NodeID("us", "", "")},
		{Region: "us", Node: euNode},
		{},
	} {
		down.Status, down.Seq, down.StoreEpoch, down.Totals = deltasync.StatusOK, up.Seq, 1, []deltasync.Totals{totals}
		b, err := down.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Receive(start, up.Lane, b); err == nil {
			t.Errorf("a reply of %q, node %016x, is taken", down.Region, down.Node)
		}
	}
	hot := deltasync.Hot{Region: "us", Lane: up.Lane, LiveRegions: 1, Sections: []deltasync.HotSection{{
		Shape: up.Sections[0].Shape, Keys: []deltasync.HotKey{{Key: d.Key, Totals: totals}},
	}}}
	b, err := hot.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.ReceiveHot(start, b); err == nil {
		t.Error("a push of another region is taken")
	}
	st := n.Stats(start)
	if st.Foreign != 5 || st.Pushes != 0 || st.ViewAge != -1 || st.Outbox != 1 {
		t.Errorf("%d foreign, %d pushes, view age %v, %d in the outbox; want 5, 0, none and 1", st.Foreign, st.Pushes, st.ViewAge, st.Outbox)
	}
	if got := check(n, start, "u"); !got.Allowed || got.Basis.Merged != 0 {
		t.Errorf("believes that others counted %d, want nothing", got.Basis.Merged)
	}
}
