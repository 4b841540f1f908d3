package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// Whoever names a key first, with slices of another width, keeps others' counts out
// only as long as no more PoPs and regions tell the right one.
func TestWidthIsWhatMostTell(t *testing.T) {
	for _, width := range []time.Duration{time.Millisecond, 9 * 24 * time.Hour} {
		t.Run(width.String(), func(t *testing.T) { testWidth(t, width) })
	}
}

// squat names key 9 with slices of another width.
func squat(r *region, width time.Duration, names ...string) (last deltasync.Down) {
	shape := minute
	shape.Width = width
	for _, name := range names {
		e := &edge{name: name, pop: "m"}
		last = e.send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{{Slice: sliceOf(shape, start), Charges: 1}}}}})
	}
	return last
}

func testWidth(t *testing.T, width time.Duration) {
	squat := func(r *region, names ...string) deltasync.Down { return squat(r, width, names...) }
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

// What another region answers of a width that is in force no more is not heard: in
// slices of that one its counts might never leave the window.
func TestLateAnswerInAnotherWidth(t *testing.T) {
	us, eu := newRegion(t, "us", newStore(&start), "eu"), newRegion(t, "eu", newStore(&start), "us")
	squat(us, time.Millisecond, "m1")
	squat(eu, time.Millisecond, "m1")
	sent := us.Exports(start)
	if len(sent) != 1 {
		t.Fatalf("%d frames, want one", len(sent))
	}
	reply := eu.Handle(t.Context(), start, sent[0].Subject, sent[0].Payload)
	for _, pop := range []string{"p", "q"} {
		(&edge{name: "e", pop: pop}).tell(us, 9, charge(start, 60))
	}
	if err := us.Receive(start, sent[0], reply); err != nil {
		t.Fatal(err)
	}
	for _, v := range us.Vectors(9) {
		if v.Source != regional.FromEdge || len(v.Cells) != 1 || v.Cells[0] != charge(start, 60) {
			t.Errorf("it holds %+v, want what the edge counted in slices of %v alone", v, minute.Width)
		}
	}
	if n := len(us.Vectors(9)); n != 1 {
		t.Errorf("%d entries, want that of the edge whose width is in force", n)
	}
}
