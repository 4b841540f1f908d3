package world

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// homely is so many regions of two edges each, whose keys have homes.
func homely(t *testing.T, regions, aggregators int, targets regional.Targets, seed uint64, rates ...limit.RateSpec) *World {
	t.Helper()
	cfg := Config{Rules: rules(rates...), Start: start, Lanes: 4, Aggregators: aggregators, Targets: targets, Seed: seed}
	for r := range regions {
		name := fmt.Sprint("r", r)
		cfg.Regions = append(cfg.Regions, Region{Name: name, Edges: []string{name + "-1", name + "-2"}})
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Advance(start.Add(2 * time.Second))
	return w
}

// keyOf is the counter of a user's only rate.
func keyOf(w *World, user string) deltasync.Key {
	n := w.Node(w.Edges()[0])
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	return n.Inspect(w.Now(), req)[0].Key
}

// homedIn is a user whose key has its homes in two regions.
func homedIn(w *World, one, two string) string {
	for i := 0; ; i++ {
		user := fmt.Sprint("homed", i)
		if homes := w.Servers(one)[0].Aggregator().Homes(keyOf(w, user)); slices.Equal(homes, []string{one, two}) {
			return user
		}
	}
}

func hourly(limitOf uint64) limit.RateSpec {
	return limit.RateSpec{Limit: limitOf, Per: time.Hour, Consistency: "loose"}
}

// Edges of all regions come to believe the same, and never more than there is.
func TestHomesConverge(t *testing.T) {
	for _, aggregators := range []int{1, 2} {
		for _, algorithm := range []string{"sub_windows", "fixed_window", "sliding_window"} {
			w := homely(t, 3, aggregators, regional.TargetsHomes, 1, limit.RateSpec{Limit: 400, Per: time.Hour, Algorithm: algorithm})
			users := map[string]uint64{}
			load(w, users, 5*time.Second)
			t.Logf("%d aggregators, %s: all agree after %v", aggregators, algorithm, agreed(t, w, users, 15*time.Second))
		}
	}
}

// One limit over three regions, whose keys have two homes each, holds as in a mesh.
func TestHomesHoldALimit(t *testing.T) {
	over := map[regional.Targets]int{}
	for _, targets := range []regional.Targets{regional.TargetsMesh, regional.TargetsHomes} {
		w := homely(t, 3, 1, targets, 1, limit.RateSpec{Limit: 100, Per: time.Minute})
		for u := range 6 { // of which each pair of regions is home to some
			begun, allowed := w.Now(), 0
			for i := range 600 {
				w.Advance(begun.Add(time.Duration(i) * 30 * time.Millisecond))
				if check(w, w.Edges()[i%6], fmt.Sprint("u", u)).Allowed {
					allowed++
				}
			}
			if allowed < 100 {
				t.Errorf("%s: %d of 600 of user %d are let in, want 100 at least", targets, allowed, u)
			}
			over[targets] += allowed - 100
		}
	}
	t.Logf("over 6 limits of 100: %v", over)
	if over[regional.TargetsHomes] > 2*over[regional.TargetsMesh]+12 {
		t.Errorf("let in above six limits of 100: %v", over)
	}
}

// A key that is used up in some regions is known to be so in one that never asked
// about it, as soon as in a mesh, and what it lacks later on is little.
func TestHotKeysAreKnownEverywhere(t *testing.T) {
	type seen struct {
		first time.Duration
		lacks uint64
	}
	got := map[regional.Targets]seen{}
	for _, targets := range []regional.Targets{regional.TargetsMesh, regional.TargetsHomes} {
		const width = 500 * time.Millisecond
		w := homely(t, 5, 1, targets, 1, limit.RateSpec{Limit: 100, Per: 20 * time.Second})
		user := "u"
		if targets == regional.TargetsHomes {
			user = homedIn(w, "r0", "r1")
		}
		var s seen
		var truth crdt.Vector
		begun, key := w.Now(), keyOf(w, user)
		for i := range 3000 { // 60 s: three windows
			w.Advance(w.Now().Add(20 * time.Millisecond))
			if check(w, []string{"r2-1", "r2-2", "r3-1"}[i%3], user).Allowed {
				truth.Add(crdt.Cell{Slice: crdt.Slice(w.Now().UnixNano() / int64(width)), Charges: 1})
			}
			truth.Retire(crdt.Slice(w.Now().Add(-20*time.Second).UnixNano() / int64(width)))
			var known crdt.GCounter
			for _, v := range w.Servers("r4")[0].Aggregator().Vectors(key) {
				known.JoinCells(v.Replica, v.Cells)
			}
			all, used, lacks := uint64(0), uint64(0), uint64(0)
			for _, c := range truth.Cells(nil) {
				all += c.Charges
				used += known.Sums().Get(c.Slice).Charges
				lacks += c.Less(known.Sums().Get(c.Slice)).Charges
			}
			switch {
			case s.first > 0 && all >= 80: // what is below half may be unknown
				s.lacks = max(s.lacks, lacks)
			case s.first == 0 && used >= 95:
				s.first = w.Now().Sub(begun)
			}
		}
		if s.first == 0 {
			t.Fatalf("%s: r4 never hears that the key is used up", targets)
		}
		got[targets] = s
	}
	t.Logf("%+v", got)
	mesh, homes := got[regional.TargetsMesh], got[regional.TargetsHomes]
	if homes.first > mesh.first+100*time.Millisecond || homes.lacks > mesh.lacks+10 {
		t.Errorf("%+v", got)
	}
}

// One home is cut off: the other one serves, and all the rest agree meanwhile.
// Joined again it knows what it missed.
func TestOneHomeIsCutOff(t *testing.T) {
	w := homely(t, 4, 1, regional.TargetsHomes, 1, hourly(400))
	user := homedIn(w, "r0", "r1")
	w.Cut("r0", true)
	spent := uint64(0)
	spend := func(edges ...string) {
		for range 20 {
			for _, e := range edges {
				w.Advance(w.Now().Add(30 * time.Millisecond))
				if check(w, e, user).Allowed {
					spent++
				}
			}
		}
	}
	spend("r1-1", "r2-1", "r3-1")
	for range 4 {
		for _, e := range []string{"r1-2", "r2-2", "r3-2"} {
			peek(w, e, user)
		}
		w.Advance(w.Now().Add(2 * time.Second))
	}
	for _, e := range []string{"r1-2", "r2-2", "r3-2"} {
		if got := believed(w, e, user); got != spent {
			t.Errorf("while r0 is cut off %s believes %d, want %d", e, got, spent)
		}
	}
	spend("r0-1")
	w.Cut("r0", false)
	agreed(t, w, map[string]uint64{user: spent}, 15*time.Second)
}

// Both homes are away: the other regions go on with what they know, which is shown,
// and hear of each other when the key nears its limit. When the homes are back all
// agree.
func TestBothHomesAreAway(t *testing.T) {
	w := homely(t, 4, 1, regional.TargetsHomes, 1, hourly(200))
	user := homedIn(w, "r0", "r1")
	spent := uint64(0)
	spend := func(n int, edges ...string) {
		for range n {
			for _, e := range edges {
				w.Advance(w.Now().Add(25 * time.Millisecond))
				if check(w, e, user).Allowed {
					spent++
				}
			}
		}
	}
	spend(10, w.Edges()...)
	agreed(t, w, map[string]uint64{user: spent}, 15*time.Second)
	for _, r := range []string{"r0", "r1"} {
		w.Stop(w.Servers(r)[0])
	}
	w.Advance(w.Now().Add(4 * time.Second))
	if st := w.Servers("r2")[0].Aggregator().Stats(w.Now()); !st.HomesAway() || st.Silent != 2 {
		t.Errorf("%d regions are silent to r2, homes away %v", st.Silent, st.HomesAway())
	}
	before := spent
	spend(10, "r2-1")
	hears := func() uint64 {
		w.Advance(w.Now().Add(3 * time.Second))
		peek(w, "r3-1", user)
		w.Advance(w.Now().Add(time.Second))
		return believed(w, "r3-1", user)
	}
	if got := hears(); got != before {
		t.Errorf("at 45 %% r3 believes %d, want the %d from before", got, before)
	}
	spend(60, "r2-1")
	if got := hears(); got != spent {
		t.Errorf("near the limit r3 believes %d, want %d", got, spent)
	}
	for _, r := range []string{"r0", "r1"} {
		if err := w.Start(w.Servers(r)[0]); err != nil {
			t.Fatal(err)
		}
	}
	w.Advance(w.Now().Add(3 * time.Second))
	if st := w.Servers("r2")[0].Aggregator().Stats(w.Now()); st.HomesAway() || st.Silent != 0 {
		t.Errorf("the homes are back, %d regions are silent to r2", st.Silent)
	}
	agreed(t, w, map[string]uint64{user: spent}, 15*time.Second)
}

// Aggregators are started anew, one after the other and under load, to tell their
// homes in place of all, and back: nothing counts twice, and nothing is lost.
func TestTargetsAreSwitchedUnderLoad(t *testing.T) {
	for seed := range uint64(3) {
		w := homely(t, 3, 2, regional.TargetsMesh, 1+seed, hourly(400))
		users := map[string]uint64{}
		load(w, users, 2*time.Second)
		for _, targets := range []regional.Targets{regional.TargetsHomes, regional.TargetsMesh, regional.TargetsHomes} {
			w.Aim(targets)
			for _, r := range []string{"r0", "r1", "r2"} {
				for _, v := range w.Servers(r) {
					w.Leave(v)
					if err := w.Return(v); err != nil {
						t.Fatal(err)
					}
					load(w, users, 500*time.Millisecond)
				}
			}
			agreed(t, w, users, 15*time.Second)
		}
	}
}

// Regions come and go: the homes of some keys are others then.
func TestRegionsJoinUnderLoad(t *testing.T) {
	t.Parallel()
	w := homely(t, 5, 1, regional.TargetsHomes, 1, hourly(400))
	users := map[string]uint64{}
	all := w.cfg.Regions
	load(w, users, 2*time.Second)
	for _, n := range []int{4, 5, 3, 5} {
		w.cfg.Regions = all[:n] // those that start know of no others
		for _, h := range w.order {
			if err := w.Start(h.servers[0]); err != nil {
				t.Fatal(err)
			}
			load(w, users, 300*time.Millisecond)
		}
		if n == 5 {
			agreed(t, w, users, 20*time.Second)
		}
	}
}

// Twenty regions have homes by themselves. All agree, and what is sent between
// regions is a fraction of what a mesh sends.
func TestTwentyRegions(t *testing.T) {
	sent := map[regional.Targets]uint64{}
	for _, targets := range []regional.Targets{regional.TargetsAuto, regional.TargetsMesh} {
		w := homely(t, 20, 1, targets, 1, hourly(100_000))
		w.cfg.OnDown = func(_ *Server, up, down []byte) {
			if u := upOf(t, up); u.Kind == deltasync.KindRegion && len(u.Sections) > 0 { // or it is a beat
				sent[targets] += uint64(len(up) + len(down))
			}
		}
		users := map[string]uint64{}
		load(w, users, 2*time.Second)
		w.Advance(w.Now().Add(time.Second))
		w.cfg.OnDown = nil // when all ask about all keys they have more to tell
		agreed(t, w, users, 20*time.Second)
		if st := w.Servers("r7")[0].Aggregator().Stats(w.Now()); st.Homes != (targets == regional.TargetsAuto) {
			t.Errorf("%s: there are homes: %v", targets, st.Homes)
		}
	}
	t.Logf("bytes between 20 regions: %v", sent)
	if 2*sent[regional.TargetsAuto] > sent[regional.TargetsMesh] {
		t.Errorf("homes have regions send %d bytes, a mesh %d", sent[regional.TargetsAuto], sent[regional.TargetsMesh])
	}
}
