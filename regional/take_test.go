package regional_test

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// A key that finds room only once others of its frame are stored may be refused then,
// behind one that came after it: the answer names both, in their order.
func TestRefusedInASecondPass(t *testing.T) {
	r := small(t, regional.Config{Boot: still, MaxKeys: 1}, newStore(&start))
	more, ahead := charge(start, 0), charge(start.Add(time.Hour), 1)
	more.Refunds = 1000 // more than an edge may give back of what others counted
	down := (&edge{name: "e"}).send(r, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{
		{Key: 1, Cells: []crdt.Cell{charge(start, 1)}}, {Key: 2, Cells: []crdt.Cell{more}}, {Key: 3, Cells: []crdt.Cell{ahead}},
	}})
	if want := []uint32{1, 2}; !slices.Equal(down.Refused, want) || len(down.Totals) != 3 {
		t.Errorf("refused %v of %d totals, want %v of 3", down.Refused, len(down.Totals), want)
	}
}

// A region without others keeps nothing of what it would hear from them, however often
// its keys are asked about.
func TestAloneAKeyTakesNoMoreWhenItIsAskedAbout(t *testing.T) {
	r := small(t, regional.Config{Boot: still, Targets: regional.TargetsHomes}, newStore(&start))
	e := &edge{name: "e"}
	e.tell(r, 1, charge(start, 1))
	before := r.Stats(start).Bytes
	e.tell(r, 1)
	if after := r.Stats(start).Bytes; after != before {
		t.Errorf("it takes %d bytes, and %d when it was asked about", before, after)
	}
}
