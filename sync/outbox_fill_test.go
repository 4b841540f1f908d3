package deltasync

import (
	"testing"

	"github.com/spillgate/spillgate/crdt"
)

// Carries are written relative to the first cell of their section, which may come
// after many of them: each has room for any distance to it.
func TestOutboxFitsALateCell(t *testing.T) {
	for _, c := range []struct {
		name        string
		carry, cell crdt.Slice
	}{{"near", 1_190_000_000, 1_190_000_001}, {"far", 0, 1_190_000_000}, {"farthest", -maxSlice, maxSlice}} {
		t.Run(c.name, func(t *testing.T) {
			for late := 1; late <= 120; late++ { // before the end of a frame and behind it
				o := NewOutbox(OutboxConfig{MaxFrame: minFrame, MaxInFlight: 1})
				for k := range Key(late) {
					mustPut(t, o, bucket, 1, Delta{Key: k + 1, Carry: crdt.Carry{Boundary: c.carry, Level: 1}})
				}
				mustPut(t, o, bucket, 1, Delta{Key: Key(late) + 1, Cells: cell(c.cell, 1)})
				told := 0
				for o.Pending() > 0 {
					u := o.Next(head)
					if n := len(encode(t, u)); n > minFrame {
						t.Fatalf("%d carries and a cell: frame of %d bytes, want at most %d", late, n, minFrame)
					}
					told += len(keysOf(u))
					o.Done(u.Seq)
				}
				if told != late+1 {
					t.Fatalf("%d keys are told, want %d", told, late+1)
				}
			}
		})
	}
}

// Of what is asked for the last that was told counts, and a frame that was lost tells
// it no more once a newer one was told.
func TestOutboxTellsTheLastDemand(t *testing.T) {
	o := NewOutbox(OutboxConfig{})
	put := func(rate float32, cells []crdt.Cell) {
		mustPut(t, o, minute, 1, Delta{Key: 1, Flags: FlagTouch, Cells: cells, Demand: &Demand{Fast: rate}})
	}
	put(1, nil)
	put(2, cell(10, 1))
	mustPut(t, o, minute, 1, Delta{Key: 1, Cells: cell(10, 2)})
	first := o.Next(head)
	if d := first.Sections[0].Deltas[0].Demand; d == nil || d.Fast != 2 {
		t.Fatalf("told %+v, want a demand of 2", d)
	}
	put(3, cell(10, 3))
	o.Lost(first.Seq)
	if d := o.Next(head).Sections[0].Deltas[0].Demand; d == nil || d.Fast != 3 {
		t.Errorf("after a frame was lost it tells %+v, want a demand of 3", d)
	}
}
