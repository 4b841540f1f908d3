package regional

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// sharers are a few edges of a region that share a key.
type sharers struct {
	*Aggregator
	t   *testing.T
	l   *lane
	c   *counter
	now int64
}

func newSharers(t *testing.T, shape deltasync.Shape, peers ...string) *sharers {
	a, err := New(Config{Region: "eu", Name: "a", Peers: peers}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &sharers{Aggregator: a, t: t, l: a.lanes[0], now: int64(1_800_000_000) * int64(time.Second)}
	f.c = &counter{}
	f.c.reshape(shape)
	f.l.enter(1, f.c)
	f.l.learnt = 1
	for j := range peers {
		a.links.ways[j] = 80 * ms
	}
	return f
}

// says has an edge tell of its demand, or only that it is there.
func (f *sharers) says(node, incarnation uint64, rate float32, features deltasync.Features) {
	up := &deltasync.Up{Kind: deltasync.KindEdge, Node: node, Incarnation: incarnation, Features: features}
	f.l.meet(up, f.now)
	if rate > 0 {
		f.hearDemand(f.l, 1, f.c, up, demandOf(rate), f.now)
	}
}

// lasts lets time pass in which some edges go on as they did.
func (f *sharers) lasts(d time.Duration, asks map[uint64]float32) {
	for end := f.now + int64(d); f.now < end; {
		f.now += int64(f.cfg.Interval)
		for node, rate := range asks {
			f.says(node, 1, rate, 0)
		}
		f.republishAll(f.l, f.now)
		f.share()
		f.c.contest.exported(f.now)
	}
}

func (f *sharers) share() *deltasync.Share { return f.shareOf(f.l, f.c, f.now) }

// keeps checks what is kept of the limit, and what others are weighed against.
func (f *sharers) keeps(when string, want uint64, sum float64) {
	f.t.Helper()
	s := f.share()
	if off := int64(s.Kept) - int64(want); off < -2 || off > 2 || math.Abs(float64(s.Sum)-sum) > 1 {
		f.t.Errorf("%s: %d is kept and %v asked for, want %d and %v", when, s.Kept, s.Sum, want, sum)
	}
}

var second = deltasync.Shape{Generation: 1, Width: 25 * time.Millisecond, Slices: 40, Limit: 1000}

// What an edge had is kept for it when it falls silent, then less, then nothing; and others
// share the rest by what is asked for at them.
func TestKeptForASilentEdge(t *testing.T) {
	for _, c := range []struct {
		shape deltasync.Shape
		peers []string
		whole float64 // of the limit, that the region has
	}{{second, nil, 1}, {second, []string{"us"}, .5}, {deltasync.Shape{Generation: 1, Width: 25 * time.Millisecond, Slices: 40, Limit: 1000, Regional: true}, []string{"us"}, 1}} {
		f := newSharers(t, c.shape, c.peers...)
		both := map[uint64]float32{1: 300, 2: 100}
		us := func() {
			for j := range f.c.contest.regions {
				f.c.contest.regions[j] = regionDemand{Demand: deltasync.Demand{Mid: 400, Slow: 400}, at: f.now}
			}
		}
		f.lasts(time.Second, both)
		us()
		f.lasts(2*time.Second, both)
		f.keeps("while both speak", 0, 400)
		part := 1000 * c.whole * .75
		f.lasts(300*time.Millisecond, map[uint64]float32{2: 100})
		f.keeps("while it may have been a loss", 0, 400)
		f.lasts(300*time.Millisecond, map[uint64]float32{2: 100})
		near := func(when string, want float64) {
			t.Helper()
			if s := f.share(); math.Abs(float64(s.Kept)-want) > want/20 || s.Sum > 101 {
				t.Errorf("%+v, %d peers, %s: %+v, want %v kept, and it weighed no more", c.shape, len(c.peers), when, *s, want)
			}
		}
		near("as it is silent", part)
		if d := f.demand(1, f.c, f.now); !c.shape.Regional && len(c.peers) > 0 && (math.Abs(float64(d.Kept)-part) > part/20 || d.Mid > 150) {
			t.Errorf("the other region is told %+v, want %v kept", *d, part)
		}
		f.c.join(FromEdge, crdt.Replica{Node: 1}, []crdt.Cell{{Slice: sliceAt(f.c.shape, f.now), Charges: 100, Refunds: 20}}, 0, f.now)
		f.lasts(f.cfg.Interval, map[uint64]float32{2: 100})
		near("and has spent 80, as is heard late", part-80)
		f.lasts(10*time.Second, map[uint64]float32{2: 100})
		f.lasts(2*time.Second, map[uint64]float32{2: 100})
		regions := float64(len(c.peers) + 1)
		if c.shape.Regional {
			regions = 1
		}
		fair := min(part, 1000/regions) // no edge was heard of by the inbox: it takes this one for the only one
		near("when it has an equal part", fair)
		f.lasts(time.Minute, map[uint64]float32{2: 100})
		f.keeps("after a minute", 0, 100)
		f.says(1, 1, 300, 0)
		f.lasts(f.cfg.Interval, both)
		f.keeps("as it speaks again", 0, 400)
	}
}

// Who takes leave has nothing kept for it, whatever of it arrives later; and its
// successor may fall silent as any other.
func TestNothingIsKeptForWhoLeaves(t *testing.T) {
	f := newSharers(t, second)
	both := map[uint64]float32{1: 300, 2: 100}
	f.lasts(2*time.Second, both)
	f.says(1, 1, 0, deltasync.FeatureLeaves)
	f.says(1, 1, 0, 0) // overtaken
	f.lasts(time.Second, map[uint64]float32{2: 100})
	if s := f.share(); s.Kept != 0 || s.Sum > 250 {
		t.Errorf("%+v, want nothing kept, and less weighed", *s)
	}
	f.says(1, 2, 300, 0)
	f.says(1, 1, 0, deltasync.FeatureLeaves) // of the one before
	f.lasts(time.Second, map[uint64]float32{2: 100})
	if s := f.share(); s.Kept < 500 {
		t.Errorf("its successor is silent: %+v, want most kept", *s)
	}
}

// So it is where it leaves a region that it hears nothing of, or not yet again as a cut
// ends: once it is answered it says nothing more. But for a frame of a life of before.
func TestNothingIsKeptForWhoLeavesDeaf(t *testing.T) {
	for _, silent := range []bool{false, true} {
		f := newSharers(t, second)
		f.lasts(2*time.Second, map[uint64]float32{1: 300, 2: 100})
		if silent {
			f.says(1, 1, 300, deltasync.FeatureDeaf)
			f.lasts(time.Second, map[uint64]float32{2: 100})
			if s := f.share(); s.Kept < 500 {
				t.Errorf("it is silent: %+v, want most kept", *s)
			}
		}
		f.says(1, 0, 300, deltasync.FeatureDeaf|deltasync.FeatureLeaves)
		f.lasts(time.Second, map[uint64]float32{2: 100})
		if s := f.share(); s.Kept < 500 {
			t.Errorf("silent %t, and the one before it left: %+v, want most kept", silent, *s)
		}
		f.says(1, 1, 300, deltasync.FeatureDeaf|deltasync.FeatureLeaves)
		f.lasts(time.Second, map[uint64]float32{2: 100})
		if s := f.share(); s.Kept != 0 || s.Sum > 250 {
			t.Errorf("silent %t, and it left: %+v, want nothing kept, and less weighed", silent, *s)
		}
	}
}

// Who says that it is there, and no more, is asked for nothing: nothing is kept for it, and
// it weighs less and less.
func TestNothingIsKeptForWhoIsAskedForNothing(t *testing.T) {
	f := newSharers(t, second)
	f.lasts(2*time.Second, map[uint64]float32{1: 300, 2: 100})
	f.lasts(3*time.Second, map[uint64]float32{1: 0, 2: 100})
	if s := f.share(); s.Kept != 0 || s.Sum > 120 {
		t.Errorf("%+v, want nothing kept, and the one that asks weighed alone", *s)
	}
}

// Nor is anything kept for one that was asked for nothing for a while before it fell
// silent, as it need not go on to say that it is there; whose next life began, which was
// asked for nothing; or of which another aggregator hears, that took the lane over.
func TestNothingIsKeptForWhoNeedNotSpeak(t *testing.T) {
	for what, happens := range map[string]func(f *sharers){
		"asked for nothing for a while": func(f *sharers) { f.lasts(deltasync.ShareKept/2, map[uint64]float32{1: 0, 2: 100}) },
		"another life of it began":      func(f *sharers) { f.says(1, 2, 0, 0) },
		"another serves the lane": func(f *sharers) {
			f.Aggregator.share.serving.Store(0)
			f.exports(time.Unix(0, f.now), true)
		},
	} {
		f := newSharers(t, second)
		f.lasts(2*time.Second, map[uint64]float32{1: 300, 2: 100})
		happens(f)
		f.lasts(2*time.Second, map[uint64]float32{2: 100})
		if s := f.share(); s.Kept != 0 {
			t.Errorf("%s: %+v, want nothing kept", what, *s)
		}
	}
}

// What another region keeps comes off the limit here, while it is told again and again.
func TestKeptElsewhere(t *testing.T) {
	f := newSharers(t, second, "us", "ap")
	f.lasts(time.Second, map[uint64]float32{1: 100})
	says := func(j int, kept float32) {
		f.hearDemand(f.l, 1, f.c, &deltasync.Up{Kind: deltasync.KindRegion, Node: f.nodes[j]}, &deltasync.Demand{Mid: 100, Kept: kept}, f.now)
	}
	says(0, 300)
	says(1, 200)
	f.keeps("both keep some", 500, 100)
	says(1, 1<<30)
	if s := f.share(); s.Kept != 1000 {
		t.Errorf("more than the limit is kept: %d", s.Kept)
	}
	says(1, 0)
	f.lasts(keepTold-time.Second, map[uint64]float32{1: 100})
	f.keeps("for a while", 300, 100)
	f.lasts(time.Second, map[uint64]float32{1: 100})
	f.keeps("when it is told no more", 0, 100)
}

// Whatever edges name themselves, a lane remembers no more of them than have a place in a
// contest, and forgets who is silent for long to have room.
func TestPresencesAreBounded(t *testing.T) {
	f := newSharers(t, second)
	for node := range uint64(mostAskers + 10) {
		f.says(node+1, 1, 0, 0)
	}
	if n := len(f.l.present); n != mostAskers {
		t.Errorf("%d are remembered, want %d", n, mostAskers)
	}
	f.now += int64(KeepFair) + 1
	f.says(1<<40, 1, 0, 0)
	if n := len(f.l.present); n != 1 {
		t.Errorf("%d are remembered a minute later, want the one that speaks", n)
	}
}

// Where one PoP's edges have nearly all places, as it may have invented them, another's
// have theirs all the same, and its own no more.
func TestInventedPresencesTakeNobodysPlace(t *testing.T) {
	f := newSharers(t, second)
	for node := range uint64(mostAskers + 10) {
		f.says(node+1, 1, 0, 0)
	}
	const other = 1 << 60
	f.says(other, 1, 0, 0)
	if f.l.present[other] == nil || len(f.l.present) != mostAskers {
		t.Errorf("of %d that are remembered the other PoP's edge is one: %v, want it", len(f.l.present), f.l.present[other] != nil)
	}
}

// Of a limit that is far more than what is asked for, an edge has its equal part: no more
// than that is kept for each that falls silent, as where the machine is too busy.
func TestKeptOfALimitThatIsFarOff(t *testing.T) {
	minute := deltasync.Shape{Generation: 1, Width: 1500 * time.Millisecond, Slices: 40, Limit: 4_000_000_000}
	f := newSharers(t, minute)
	f.Aggregator.share.members.others[memberID{"b", 1}] = member{edges: 8, evenly: 8}
	all := map[uint64]float32{1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1}
	f.lasts(3*time.Second, all)
	f.keeps("while all speak", 0, 8)
	f.lasts(600*time.Millisecond, map[uint64]float32{1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1})
	if s := f.share(); math.Abs(float64(s.Kept)-1e9) > 1e7 {
		t.Errorf("%d kept for two of eight, want a quarter of the limit", s.Kept)
	}
}
