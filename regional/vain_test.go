package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// Who goes on sending frames of which nothing can be taken is muted; who has anything
// taken, or only asks, is not, nor one whose key has another width here, which may be
// another's fault.
func TestWhoTellsInVainIsMuted(t *testing.T) {
	const frames = 150
	ahead := start.Add(time.Hour)
	odd, wide := minute, minute
	odd.Width++
	wide.Width *= 2
	tell := func(shape deltasync.Shape, deltas ...deltasync.Delta) deltasync.Section {
		return deltasync.Section{Shape: shape, Deltas: deltas}
	}
	future := deltasync.Delta{Key: 9, Cells: []crdt.Cell{charge(ahead, 1)}}
	good := deltasync.Delta{Key: 8, Cells: []crdt.Cell{charge(start, 1)}}
	for _, c := range []struct {
		name   string
		frame  func(i int) []deltasync.Section
		status deltasync.Status // of the last
		muted  int
	}{
		{"of the future", func(int) []deltasync.Section { return []deltasync.Section{tell(minute, future)} }, deltasync.StatusForbidden, 1},
		{"a bucket's level of the future", func(int) []deltasync.Section {
			return []deltasync.Section{tell(minute, deltasync.Delta{Key: 9, Carry: crdt.Carry{Boundary: slice(ahead), Level: 5}})}
		}, deltasync.StatusForbidden, 1},
		{"misshapen", func(int) []deltasync.Section { return []deltasync.Section{tell(odd, good)} }, deltasync.StatusForbidden, 1},
		{"both, and a question", func(int) []deltasync.Section {
			return []deltasync.Section{tell(odd, good), tell(minute, future, deltasync.Delta{Key: 8, Flags: deltasync.FlagTouch})}
		}, deltasync.StatusForbidden, 1},
		{"something good in each", func(int) []deltasync.Section { return []deltasync.Section{tell(odd, good), tell(minute, future, good)} }, deltasync.StatusForbidden, 0},
		{"a slice of now in each", func(int) []deltasync.Section {
			return []deltasync.Section{tell(minute, deltasync.Delta{Key: 9, Cells: []crdt.Cell{charge(start, 1), charge(ahead, 1)}})}
		}, deltasync.StatusClock, 0},
		{"something good now and then", func(i int) []deltasync.Section {
			if i%90 == 0 {
				return []deltasync.Section{tell(minute, good)}
			}
			return []deltasync.Section{tell(minute, future)}
		}, deltasync.StatusClock, 0},
		{"questions", func(int) []deltasync.Section {
			return []deltasync.Section{tell(odd, deltasync.Delta{Key: 9, Flags: deltasync.FlagTouch})}
		}, deltasync.StatusForbidden, 0},
		{"another width", func(int) []deltasync.Section {
			return []deltasync.Section{tell(wide, deltasync.Delta{Key: 1, Cells: []crdt.Cell{{Slice: slice(start) / 2, Charges: 1}}})}
		}, deltasync.StatusForbidden, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRegion(t, "eu", newStore(&start))
			(&edge{name: "honest"}).tell(r, 1, charge(start, 5))
			e, last := &edge{name: "e1"}, deltasync.Down{}
			for i := range frames {
				last = e.send(r, c.frame(i)...)
			}
			st := r.Stats(start)
			if st.Muted != c.muted || last.Status != c.status || (len(last.Totals) == 0) != (c.muted > 0) {
				t.Errorf("%d muted, the last frame is answered %v with %d totals; want %d and %v", st.Muted, last.Status, len(last.Totals), c.muted, c.status)
			}
			if want := uint64(frames - 101); c.muted > 0 && st.Refused["muted"] != want {
				t.Errorf("%d frames are refused unread, want %d", st.Refused["muted"], want)
			}
		})
	}
}

// A region is heard, whatever its clock says: its questions are of use.
func TestRegionAheadIsHeard(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start))
	for seq := range uint64(300) {
		up := deltasync.Up{Kind: deltasync.KindRegion, Region: "us", Name: "a1", Node: deltasync.NodeID("us", "", ""), Lanes: 1, Seq: seq + 1, SentAt: start.UnixNano(),
			Sections: []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start.Add(time.Hour), 1)}}}}}}
		b, err := up.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if down := decode(t, eu.Handle(t.Context(), start, deltasync.RegionSubject("eu", 0, "us"), b)); down.Status != deltasync.StatusClock {
			t.Fatalf("frame %d is answered %v, want clock", seq, down.Status)
		}
	}
}
