package world

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// shared is a world of two regions with several aggregators each.
func shared(t *testing.T, aggregators int, seed uint64) *World {
	t.Helper()
	w, err := New(Config{
		Regions: []Region{{Name: "eu", Edges: []string{"eu-1", "eu-2"}}, {Name: "us", Edges: []string{"us-1"}}},
		Rules:   rules(limit.RateSpec{Limit: 1_000_000, Per: time.Hour}), Start: start,
		Lanes: 8, Aggregators: aggregators, Seed: seed,
	})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	w.Advance(start.Add(2 * time.Second)) // the lanes are dealt
	return w
}

// owned is how many lanes of a region each aggregator owns, and of how many
// lanes there are two owners, or none.
func owned(w *World, region string) (each []int, doubled, nobodys int) {
	servers := w.Servers(region)
	each = make([]int, len(servers))
	for lane := range w.cfg.Lanes {
		owners := 0
		for i, v := range servers {
			if v.aggregator != nil && v.aggregator.Owns(lane) {
				each[i]++
				owners++
			}
		}
		switch owners {
		case 0:
			nobodys++
		case 1:
		default:
			doubled++
		}
	}
	return each, doubled, nobodys
}

// agreed waits until all edges believe the same of every user, and says how long
// that took.
func agreed(t *testing.T, w *World, users map[string]uint64, within time.Duration) time.Duration {
	t.Helper()
	begun, asked := w.Now(), time.Time{}
	for {
		missing := ""
		ask := w.Now().Sub(asked) >= time.Second
		if ask {
			asked = w.Now()
		}
		for _, user := range slices.Sorted(maps.Keys(users)) {
			want := users[user]
			for _, e := range w.Edges() {
				if ask {
					peek(w, e, user)
				}
				if got := believed(w, e, user); got > want {
					t.Fatalf("%s believes %d of %s, the truth is %d", e, got, user, want)
				} else if got != want {
					missing = fmt.Sprintf("%s believes %d of %s, want %d", e, got, user, want)
				}
			}
		}
		if missing == "" {
			return w.Now().Sub(begun)
		}
		if w.Now().Sub(begun) >= within {
			t.Fatalf("after %v %s", within, missing)
		}
		w.Advance(w.Now().Add(20 * time.Millisecond))
	}
}

// peek has an edge ask about a user.
func peek(w *World, edge, user string) {
	n := w.Node(edge)
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	req.Peek = true
	w.Touch()
	n.Check(w.Now(), req)
}

// load has every edge charge users, old and new ones, for a while.
func load(w *World, users map[string]uint64, d time.Duration) {
	for end := w.Now().Add(d); w.Now().Before(end); {
		w.Advance(w.Now().Add(5 * time.Millisecond))
		i := int(w.Now().Sub(start) / (5 * time.Millisecond))
		user := fmt.Sprint("u", i%25)
		if i%2 == 0 {
			user = fmt.Sprint("new", i/10)
		}
		if check(w, w.Edges()[i%len(w.Edges())], user).Allowed {
			users[user]++
		}
	}
}

// An aggregator that is killed under load is replaced within a second: every
// lane has an owner, and counts of all of them get through.
func TestTakeoverWithinASecond(t *testing.T) {
	for seed := range uint64(10) {
		w := shared(t, 2, 2*seed+1)
		users := map[string]uint64{}
		load(w, users, 2*time.Second)
		if each, doubled, nobodys := owned(w, "eu"); doubled+nobodys > 0 || each[0] == 0 || each[1] == 0 {
			t.Fatalf("lanes are owned %v, %d by two, %d by nobody", each, doubled, nobodys)
		}
		w.Stop(w.Servers("eu")[0])
		killed := w.Now()
		answered := map[int]time.Duration{} // the lanes, and when first
		w.cfg.OnDown = func(v *Server, payload, _ []byte) {
			if up := upOf(t, payload); v.Region == "eu" && up.Kind == deltasync.KindEdge && answered[up.Lane] == 0 {
				answered[up.Lane] = w.Now().Sub(killed)
			}
		}
		load(w, users, time.Second)
		if each, _, nobodys := owned(w, "eu"); nobodys > 0 || each[1] != 8 {
			t.Errorf("seed %d: the other owns %v", seed, each)
		}
		for lane := range w.cfg.Lanes {
			if answered[lane] == 0 {
				t.Errorf("seed %d: a second after the kill no frame of lane %d was answered", seed, lane)
			}
		}
		agreed(t, w, users, 10*time.Second)
	}
}

// From one aggregator to three and back, in good order: nothing is lost, nothing
// is told twice by much, and no lane is nobody's.
func TestRebalancing(t *testing.T) {
	w := shared(t, 3, 1)
	users := map[string]uint64{}
	eu := w.Servers("eu")
	watch := func(d time.Duration, when string) {
		for end := w.Now().Add(d); w.Now().Before(end); {
			load(w, users, 20*time.Millisecond)
			if each, _, nobodys := owned(w, "eu"); nobodys > 0 {
				t.Fatalf("%s: lanes are owned %v, %d by nobody", when, each, nobodys)
			}
		}
	}
	for _, v := range eu[1:] {
		w.Leave(v)
		watch(2*time.Second, "leaving")
	}
	if each, _, _ := owned(w, "eu"); each[0] != 8 {
		t.Fatalf("lanes are owned %v, want all by the first", each)
	}
	for i, v := range eu[1:] {
		if err := w.Start(v); err != nil {
			t.Fatal(err)
		}
		watch(2*time.Second, "coming")
		if each, doubled, _ := owned(w, "eu"); doubled > 0 || each[i+1] == 0 {
			t.Errorf("lanes are owned %v, %d by two", each, doubled)
		}
	}
	w.Leave(eu[0])
	watch(2*time.Second, "the first leaves")
	agreed(t, w, users, 3*time.Second)
}

// Two owners of each lane, who never hear of each other: what one took the other
// has with the first frame that brings him news of the key, and no count is lost
// or doubled.
func TestTwoOwnersMeetInTheStore(t *testing.T) {
	w := shared(t, 2, 7)
	eu := w.Servers("eu")
	w.Split(eu[0], eu[1], true)
	w.Split(eu[1], eu[0], true)
	users := map[string]uint64{}
	load(w, users, 3*time.Second)
	if _, doubled, _ := owned(w, "eu"); doubled != 8 {
		t.Fatalf("%d lanes have two owners, want all", doubled)
	}
	// One exchange: an interval until the frame leaves, there and back, and an
	// export. Each edge counts, so each tells, and is told.
	for i := range 50 {
		user := fmt.Sprint("late", i)
		for _, e := range []string{"eu-1", "eu-2"} {
			check(w, e, user)
			users[user]++
			w.Advance(w.Now().Add(150 * time.Millisecond))
		}
		if got := believed(w, "eu-2", user); got != 2 {
			t.Errorf("%s: eu-2 believes %d after its exchange, want 2", user, got)
		}
	}
	w.Split(eu[0], eu[1], false)
	w.Split(eu[1], eu[0], false)
	agreed(t, w, users, 15*time.Second)
	w.Advance(w.Now().Add(regional.BeatEvery))
	if each, doubled, nobodys := owned(w, "eu"); doubled+nobodys > 0 {
		t.Errorf("together again, lanes are owned %v, %d by two, %d by nobody", each, doubled, nobodys)
	}
}

// An aggregator that is killed has the edges tell again what is live in its own
// lanes, and nothing of the others.
func TestTakeoverResendsItsLanesOnly(t *testing.T) {
	w := shared(t, 2, 3)
	users := map[string]uint64{}
	for i := range 400 {
		user := fmt.Sprint("u", i)
		check(w, "eu-1", user)
		users[user]++
	}
	w.Advance(w.Now().Add(8 * time.Second))
	each, _, _ := owned(w, "eu")
	dead := w.Servers("eu")[0]
	theirs := map[int]bool{}
	for lane := range w.cfg.Lanes {
		theirs[lane] = dead.aggregator.Owns(lane)
	}
	w.Stop(dead)
	again := map[int]int{}
	w.cfg.OnUp = func(s *Site, _ string, payload []byte) {
		up := upOf(t, payload)
		for _, sec := range up.Sections {
			for _, d := range sec.Deltas {
				if d.Flags&deltasync.FlagRefresh != 0 {
					again[up.Lane]++
				}
			}
		}
	}
	for i := range 400 {
		check(w, "eu-1", fmt.Sprint("u", i)) // so that all lanes are heard of
	}
	w.Advance(w.Now().Add(6 * time.Second))
	for lane, were := range theirs {
		if !were && again[lane] > 0 {
			t.Errorf("%d counts of lane %d were told again, whose owner lives; owned were %v", again[lane], lane, each)
		}
	}
	w.cfg.OnUp = nil
	w.Advance(w.Now().Add(2 * time.Second))
	each, _, _ = owned(w, "eu")
	if each[1] != 8 {
		t.Errorf("lanes are owned %v", each)
	}
}

func upOf(t *testing.T, payload []byte) *deltasync.Up {
	t.Helper()
	var up deltasync.Up
	if err := up.UnmarshalBinary(payload); err != nil {
		t.Fatal(err)
	}
	return &up
}

// An aggregator that owns no lane hears of no region, and says of each what others noted in
// the store; or that it does not know, where that is away.
func TestIdleAggregatorsKnowRegions(t *testing.T) {
	w := wideOf(t, 3, 2, func(cfg *Config) { cfg.Seed, cfg.Aggregators = 3, 2 }, limit.RateSpec{Limit: 1000, Per: 10 * time.Second, Consistency: "adaptive"})
	want := func(state string) {
		t.Helper()
		idle := 0
		for _, v := range w.Servers("r0") {
			if v.aggregator.Owns(0) {
				continue
			}
			idle++
			for range 20 {
				w.Advance(w.Now().Add(100 * time.Millisecond))
				if got := v.aggregator.Regions(w.Now()); got[1].State != state || state != "unknown" && (got[1].Heard == nil || got[1].Told == nil) {
					t.Fatalf("%s of r0 says of r2 %+v, want %s", v.Name, got[1], state)
				}
			}
		}
		if idle != 1 {
			t.Fatalf("%d aggregators of r0 own no lane, want one of two", idle)
		}
	}
	storm(w, 60, 10*time.Second, 1)
	want("ok")
	w.Cut("r2", true)
	storm(w, 60, 6*time.Second, 1)
	want("silent")
	w.Cut("r2", false)
	storm(w, 60, 8*time.Second, 1)
	want("ok")
	w.Store("r0").Set(StoreDown)
	storm(w, 60, 4*time.Second, 1)
	want("unknown")
}
