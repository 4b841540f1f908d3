package regional_test

import (
	"testing"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// exported is what a region's exports tell of a key, by peer.
func exported(t *testing.T, r *region, key deltasync.Key) map[string]uint64 {
	t.Helper()
	by := map[string]uint64{}
	for _, o := range r.Exports(r.now) {
		var up deltasync.Up
		if err := up.UnmarshalBinary(o.Payload); err != nil {
			t.Fatalf("decode export: %v", err)
		}
		for _, sec := range up.Sections {
			for _, d := range sec.Deltas {
				if d.Key == key {
					by[o.Peer] += charges(d.Cells)
				}
			}
		}
	}
	return by
}

// Another region that names a key which is not known here has its answer, and no
// more comes of it: regions that have all forgotten a key would tell each other of
// it without end. With the first frame of an edge all are told.
func TestReadingForAnotherRegionTellsNobody(t *testing.T) {
	store := newStore(&start)
	(&edge{name: "e1"}).tell(newRegion(t, "eu", store, "us", "jp"), 9, charge(start, 5))

	r := newRegion(t, "eu", store, "us", "jp")
	up := deltasync.Up{
		Kind: deltasync.KindRegion, Region: "us", Name: "a1", Node: deltasync.NodeID("us", "", ""), Lanes: 1, Seq: 1, SentAt: start.UnixNano(),
		Sections: []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, 7)}}}}},
	}
	frame, err := up.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	var down deltasync.Down
	if err := down.UnmarshalBinary(r.Handle(t.Context(), start, deltasync.RegionSubject("eu", 0, "us"), frame)); err != nil {
		t.Fatal(err)
	}
	if got := charges(down.Totals[0].Peers); got != 5 {
		t.Errorf("us hears that eu has %d, want 5", got)
	}
	if by := exported(t, r, 9); len(by) > 0 {
		t.Errorf("regions were told %v, want nothing", by)
	}
	if down := (&edge{name: "e2"}).tell(r, 9); charges(down.Totals[0].Peers) != 5 || charges(down.Totals[0].Others) != 7 {
		t.Errorf("e2 hears %+v", down.Totals)
	}
	if by := exported(t, r, 9); by["us"] != 5 || by["jp"] != 5 {
		t.Errorf("when an edge has named the key regions were told %v, want 5 each", by)
	}
}
