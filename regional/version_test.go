package regional_test

import (
	"context"
	"testing"
	_ "unsafe" // for go:linkname

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// speaks is deltasync's, by which this test stands for a build to come: nobody else
// may set it, so it is not exported.
//
//go:linkname speaks github.com/spillgate/spillgate/sync.speaks
var speaks struct{ newest, written, oldest uint32 }

// An aggregator answers in the version of what it is asked in: a build that knows
// version 3 those who write 1, 2 and 3, an edge, a region, an audit and a refused
// frame alike.
func TestAnswersInTheVersionOfTheFrame(t *testing.T) {
	if speaks.newest != deltasync.Version {
		t.Fatalf("speaks = %+v: it is not that of deltasync", speaks)
	}
	was := speaks
	defer func() { speaks = was }()
	speaks.newest, speaks.written, speaks.oldest = 3, 2, 1

	a := newRegion(t, "eu", newStore(&start))
	edge := deltasync.Up{Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: "e1", Node: deltasync.NodeID("eu", "p", "e1"), Incarnation: 1, Lanes: 1, Seq: 1,
		Sections: []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, 1)}}}}}}
	other := edge
	other.Kind, other.Region, other.Pop, other.Node, other.Incarnation = deltasync.KindRegion, "us", "", deltasync.NodeID("us", "", ""), 0
	audit := other
	audit.Sections = []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Flags: deltasync.FlagTouch}}}}
	lanes := edge
	lanes.Lanes = 2
	asked := func(up deltasync.Up, version byte) []byte {
		b, err := up.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		b[1] = version
		return b
	}
	for version := byte(1); version <= 3; version++ {
		for _, c := range []struct {
			name   string
			reply  []byte
			status deltasync.Status
		}{
			{"an edge", a.Handle(context.Background(), start, deltasync.EdgeSubject("eu", 0, "p", "e1"), asked(edge, version)), deltasync.StatusOK},
			{"a region", a.Handle(context.Background(), start, deltasync.RegionSubject("eu", 0, "us"), asked(other, version)), deltasync.StatusOK},
			{"an audit", a.AnswerAudit(context.Background(), start, asked(audit, version)), deltasync.StatusOK},
			{"other lanes", a.Handle(context.Background(), start, deltasync.EdgeSubject("eu", 0, "p", "e1"), asked(lanes, version)), deltasync.StatusUnsupported},
		} {
			var down deltasync.Down
			if err := down.UnmarshalBinary(c.reply); err != nil || down.Status != c.status || c.reply[1] != version {
				t.Errorf("%s in version %d is answered %v in version %d: %v", c.name, version, down.Status, c.reply[1], err)
			}
		}
	}
}
