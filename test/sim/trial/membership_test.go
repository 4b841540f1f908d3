package trial

import "testing"

// An edge leaves while it is cut off, and its last word is that it hears nothing: as it is
// answered it goes, and its region kept for a minute what it had.
func TestNothingIsKeptForWhoLeavesDeaf(t *testing.T) {
	r := Run(Options{Seed: 48534, Without: []Fault{CrashEdge, StoreDeaf, StoreWipe, KnowsNothing}})
	if r.Err != nil {
		t.Error(r.Err)
	}
}
