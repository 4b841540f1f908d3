package regional

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// Whoever takes a lane over keeps for edges that are not heard of, and that counted until just
// now, the part that they have of what all spent by then; until they are heard of.
func TestKeptForAnAbsentEdge(t *testing.T) {
	wide := deltasync.Shape{Generation: 1, Width: 250 * time.Millisecond, Slices: 40, Limit: 1000}
	for _, tt := range []struct {
		name string
		do   func(f *sharers)
		ago  time.Duration // when it counted last
		life uint64        // that it counted in
		want float64
	}{
		{"it counted a moment ago", func(*sharers) {}, 2 * time.Second, 1, 300},
		{"in two lives", func(f *sharers) { f.counts(1, 0, 3*time.Second, 100) }, 2 * time.Second, 1, 1000 * 400. / 1100},
		{"it counted longer ago than it goes on with that", func(*sharers) {}, 11 * time.Second, 1, 0},
		{"the lane was served for long", func(f *sharers) { f.l.served -= int64(time.Minute) }, 2 * time.Second, 1, 0},
		{"it was heard of", func(f *sharers) { f.says(1, 1, 0, 0) }, 2 * time.Second, 1, 0},
		{"it took its leave", func(f *sharers) { f.says(1, 1, 0, deltasync.FeatureLeaves) }, 2 * time.Second, 1, 0},
		{"it took its leave elsewhere", func(f *sharers) { f.leavers.left = map[uint64]departure{1: {incarnation: 1}} }, 2 * time.Second, 1, 0},
		{"it did in an earlier life", func(f *sharers) { f.leavers.left = map[uint64]departure{1: {incarnation: 1}} }, 2 * time.Second, 2, 300},
		{"it is heard of, and asked for something", func(f *sharers) { f.says(1, 1, 100, 0) }, 2 * time.Second, 1, 0},
	} {
		f := newSharers(t, wide, "us")
		f.l.served = f.now
		f.counts(1, tt.life, tt.ago, 300)
		f.counts(2, 1, tt.ago, 200)
		f.c.join(FromRegion, crdt.Replica{Node: f.nodes[0]}, []crdt.Cell{{Slice: sliceAt(f.c.shape, f.now-int64(tt.ago)-int64(time.Second)), Charges: 500}}, 0, f.now)
		tt.do(f)
		f.says(2, 1, 100, 0)
		if d := f.demand(1, f.c, f.now); f.c.contest.taken && d != nil {
			t.Errorf("%s: before the store has answered the other region is told %+v", tt.name, *d)
		}
		f.c.asked = f.now
		if d := f.demand(1, f.c, f.now); f.c.contest.taken && f.leavers.sought && d.Kept != 0 {
			t.Errorf("%s: before it is known who took their leave the other region is told %+v", tt.name, *d)
		}
		f.leavers.sought, f.leavers.read = false, f.now
		d, s := f.demand(1, f.c, f.now), f.share()
		if kept := float64(s.Kept) + float64(s.Spent); math.Abs(kept-tt.want) > 2 || math.Abs(float64(d.Kept+d.KeptSpent)-tt.want) > 2 {
			t.Errorf("%s: %+v and %+v, want %v kept and spent", tt.name, *s, *d, tt.want)
		}
		f.c.asked++
		f.now += int64(100 * ms)
		f.says(1, tt.life, 0, 0)
		f.says(2, 1, 100, 0)
		if s := f.share(); s.Kept+s.Spent != 0 {
			t.Errorf("%s, and is heard of: %+v, want nothing kept", tt.name, *s)
		}
	}
}

// counts has an edge have counted so long ago, in a life of its.
func (f *sharers) counts(node, incarnation uint64, ago time.Duration, charges uint64) {
	f.c.join(FromEdge, crdt.Replica{Node: node, Incarnation: incarnation << deltasync.LifeBits}, []crdt.Cell{{Slice: sliceAt(f.c.shape, f.now-int64(ago)), Charges: charges}}, 0, f.now)
}
