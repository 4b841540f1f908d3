package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// Whoever names a key first, with slices of another width, keeps others' counts out
// only as long as no more PoPs and regions tell the right one.
func TestWidthIsWhatMostTell(t *testing.T) {
	wide := minute
	wide.Width = 9 * 24 * time.Hour
	squat := func(r *region, names ...string) (last deltasync.Down) {
		for _, name := range names {
			e := &edge{name: name, pop: "m"}
			last = e.send(r, deltasync.Section{Shape: wide, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{{Slice: sliceOf(wide, start), Charges: 1}}}}})
		}
		return last
	}
	tells := func(r *region, pop string) deltasync.Status {
		return (&edge{name: "e", pop: pop}).tell(r, 9, charge(start, 60)).Status
	}
	const ok, refused = deltasync.StatusOK, deltasync.StatusForbidden

	r := newRegion(t, "eu", newStore(&start))
	squat(r, "m1", "m2", "m3")
	if got := tells(r, "p"); got != refused {
		t.Errorf("one PoP against one: %v, want %v", got, refused)
	}
	if got := tells(r, "p"); got != refused {
		t.Errorf("the same once more: %v, want %v", got, refused)
	}
	if got := tells(r, "q"); got != ok {
		t.Errorf("two PoPs against one: %v, want %v", got, ok)
	}
	if got := tells(r, "p"); got != ok {
		t.Errorf("the first, when its width is in force: %v, want %v", got, ok)
	}
	if got := squat(r, "m1", "m2", "m3", "m4").Status; got != refused {
		t.Errorf("the squatter after that: %v, want %v", got, refused)
	}
	if got := charges((&edge{name: "asker"}).tell(r, 9).Totals[0].Peers); got != 120 {
		t.Errorf("%d counted, want 120", got)
	}

	r = newRegion(t, "eu", newStore(&start))
	squat(r, "m1")
	us := deltasync.Up{Kind: deltasync.KindRegion, Region: "us", Name: "a1", Node: deltasync.NodeID("us", "", ""), Lanes: 1, Seq: 1,
		Sections: []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, 5)}}}}}}
	b, err := us.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := decode(t, r.Handle(t.Context(), start, deltasync.RegionSubject("eu", 0, "us"), b)).Status; got != refused {
		t.Errorf("a region against a PoP: %v, want %v", got, refused)
	}
	if got := tells(r, "p"); got != ok {
		t.Errorf("a region and a PoP against one: %v, want %v", got, ok)
	}

	r = newRegion(t, "eu", newStore(&start))
	squat(r, "m1")
	if got := tells(r, "p"); got != refused {
		t.Fatal(got)
	}
	r.now = start.Add(2 * time.Minute)
	if got := (&edge{name: "e", pop: "q", seq: 5}).tell(r, 9, charge(r.now, 1)).Status; got != refused {
		t.Errorf("two PoPs, one of which told it long ago: %v, want %v", got, refused)
	}
}
