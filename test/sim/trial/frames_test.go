package trial

import (
	"testing"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// An answer that cannot be compared with a store is held to the truth all the same.
func TestAnswersAreHeldToTheTruth(t *testing.T) {
	w, err := world.New(newPlan(Options{Seed: 1}).config(start))
	if err != nil {
		t.Fatal(err)
	}
	cell := func(charges uint64) []crdt.Cell { return []crdt.Cell{{Slice: 7, Charges: charges}} }
	for name, tc := range map[string]struct {
		totals deltasync.Totals
		fails  bool
	}{
		"what there is":      {totals: deltasync.Totals{Peers: cell(3), Others: cell(5)}},
		"more of its edges":  {totals: deltasync.Totals{Peers: cell(4)}, fails: true},
		"more of the others": {totals: deltasync.Totals{Others: cell(6)}, fails: true},
	} {
		tr := &trial{w: w}
		c := &counter{byRegion: map[string]*crdt.Vector{}}
		of(c.byRegion, "eu").Add(cell(3)[0])
		of(c.byRegion, "us").Add(cell(5)[0])
		tr.verifyTold(w.Servers("eu")[0], c, &tc.totals)
		if (tr.err != nil) != tc.fails {
			t.Errorf("%s: %v", name, tr.err)
		}
	}
}
