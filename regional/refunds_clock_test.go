package regional

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// What was counted while the clock was ahead takes no memory when something is given
// back after it was set right.
func TestRefundAfterClockWasSetBack(t *testing.T) {
	a, l := &Aggregator{}, &lane{}
	shape := deltasync.Shape{Width: time.Millisecond, Slices: 1000, Limit: 100}
	const now = 100 * int64(24*time.Hour)
	us, other := crdt.Replica{Node: 1}, crdt.Replica{Node: 2}
	c := &counter{shape: shape}
	present := sliceAt(shape, now)
	c.edges.Join(us, crdt.Cell{Slice: present, Charges: 10})
	c.edges.Join(other, crdt.Cell{Slice: sliceAt(shape, now+int64(24*time.Hour)), Charges: 10})
	told := []crdt.Cell{{Slice: present, Charges: 10, Refunds: 9}}
	kept := a.clampRefunds(l, c, us, told, retirement(shape, now), sliceAt(shape, now+int64(maxAhead)), 0, &merged{})
	if len(kept) != 1 || kept[0] != told[0] {
		t.Errorf("%+v is taken, want %+v", kept, told)
	}
	if n := cap(l.given); n > 8*shape.Slices {
		t.Errorf("%d slices were looked at, want about those that are kept, 2000", n)
	}
}
