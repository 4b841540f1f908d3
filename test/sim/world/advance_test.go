package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// slowly advances in steps too short for a jump.
func slowly(w *World, t time.Time) {
	for t.Sub(w.Now()) > time.Second {
		w.Advance(w.Now().Add(time.Second))
	}
	w.Advance(t)
}

// TestJumpsChangeNothing: a world that jumps over silence believes and decides
// as one that looks every 20 ms.
func TestJumpsChangeNothing(t *testing.T) {
	run := func(advance func(*World, time.Time)) (log []string) {
		w := newWorld(t, rules(limit.RateSpec{Limit: 60, Per: 2 * time.Minute}, limit.RateSpec{Name: "burst", Limit: 10, Per: 4 * time.Second}))
		for i, at := range []time.Duration{
			0, 0, 10 * time.Millisecond, 2 * time.Second, 12 * time.Second, 31 * time.Second, 60 * time.Second,
			95 * time.Second, 2 * time.Minute, 4 * time.Minute, 4*time.Minute + 9*time.Second,
		} {
			advance(w, start.Add(at))
			w.Cut("us", i == 5) // from 31 s to 60 s
			for range 4 {
				d := check(w, w.Edges()[i%4], "u")
				log = append(log, fmt.Sprintf("%v: %t %s %d, local %d, merged %d, %d regions", at, d.Allowed, d.Rate.Policy, d.Remaining, d.Basis.Local, d.Basis.Merged, d.Basis.Regions))
			}
			for _, e := range w.Edges() {
				log = append(log, fmt.Sprintf("%v: %s believes %d", at, e, believed(w, e, "u")))
			}
		}
		return log
	}
	fast, slow := run((*World).Advance), run(slowly)
	for i := range slow {
		if fast[i] != slow[i] {
			t.Errorf("with jumps  %s\nwithout     %s", fast[i], slow[i])
		}
	}
}

// TestRefreshesAreNotJumpedOver: an edge that is not asked hears of others'
// counts, too few to be pushed, when it sends its own again; so it does in a
// jump of hours.
func TestRefreshesAreNotJumpedOver(t *testing.T) {
	w := newWorld(t, rules(limit.RateSpec{Limit: 100, Per: 24 * time.Hour}))
	w.Advance(start.Add(time.Second))
	check(w, "us-1", "u")
	w.Advance(start.Add(time.Hour))
	for range 20 {
		check(w, "eu-1", "u")
	}
	w.Advance(start.Add(3 * time.Hour))
	if got := believed(w, "us-1", "u"); got != 1 {
		t.Errorf("us-1 believes %d before its refresh, want 1: the test is void", got)
	}
	w.Advance(start.Add(5 * time.Hour)) // a refresh is due after a sixth of the window
	if got := believed(w, "us-1", "u"); got != 21 {
		t.Errorf("us-1 believes %d after its refresh, want 21", got)
	}
}

// TestPartsKnowOfEachOtherAfterAJump: heartbeats are fresh when time is up.
func TestPartsKnowOfEachOtherAfterAJump(t *testing.T) {
	w := newWorld(t, rules(limit.RateSpec{Limit: 100, Per: time.Minute}))
	w.Advance(start.Add(24 * time.Hour))
	for _, e := range w.Edges() {
		if reason := w.Node(e).Degraded(w.Now()); reason != "" {
			t.Errorf("%s is degraded (%s) after a day of silence", e, reason)
		}
	}
	for _, h := range w.order {
		if st := h.servers[0].aggregator.Stats(w.Now()); st.LiveEdges != 2 || st.LiveRegions != 2 {
			t.Errorf("an aggregator knows of %d edges and %d regions, want 2 and 2", st.LiveEdges, st.LiveRegions)
		}
	}
	check(w, "eu-1", "u")
	w.Advance(w.Now().Add(time.Second))
	if d := check(w, "eu-1", "u"); d.Basis.Regions != 2 || d.Basis.Age < 0 || d.Basis.Age > time.Second {
		t.Errorf("basis = %+v a second after the first request, want 2 regions heard of within a second", d.Basis)
	}
}

// TestNewsAfterSilenceIsUrgent: the first request after hours is told as fast
// as any other.
func TestNewsAfterSilenceIsUrgent(t *testing.T) {
	w := newWorld(t, rules(limit.RateSpec{Limit: 100, Per: time.Minute}))
	w.Advance(start.Add(5*time.Hour + 7*time.Millisecond))
	for range 60 {
		check(w, "eu-1", "u")
	}
	w.Advance(w.Now().Add(150 * time.Millisecond)) // flush, way to the region, exchange, push
	check(w, "us-1", "u")
	w.Advance(w.Now().Add(50 * time.Millisecond))
	if got := believed(w, "us-1", "u"); got != 61 {
		t.Errorf("us-1 believes %d 200 ms later, want 61", got)
	}
}

// TestPushedTotalsOfUnknownKeysAreKept: an edge that never held the key denies
// its first request when the others have used the limit up.
func TestPushedTotalsOfUnknownKeysAreKept(t *testing.T) {
	w := newWorld(t, rules(limit.RateSpec{Limit: 100, Per: time.Minute}))
	w.Advance(start.Add(time.Second))
	for range 100 {
		check(w, "eu-1", "u")
	}
	w.Advance(w.Now().Add(time.Second))
	if d := check(w, "us-2", "u"); d.Allowed {
		t.Errorf("us-2 admits a request of a key whose limit was used up elsewhere: %+v", d.Basis)
	}
	w.Advance(w.Now().Add(2 * time.Minute))
	if d := check(w, "eu-2", "u"); !d.Allowed {
		t.Errorf("eu-2 denies a request after the window: %+v", d.Basis)
	}
}

func TestViewForgetsWhatExpired(t *testing.T) {
	now := start
	v := newView(func() time.Time { return now }, nil, 0)
	for k := range deltasync.Key(10 * smallestSweep) {
		v.Set(k+1, edge.Totals{Cells: []crdt.Cell{{Slice: 1, Charges: 1}}}, time.Second)
		now = now.Add(time.Millisecond)
	}
	if got := len(v.totals); got > 4*smallestSweep {
		t.Errorf("%d totals are kept, of which about 1000 have not expired", got)
	}
	if v.Get(1).Cells != nil || v.Get(10*smallestSweep).Cells == nil {
		t.Error("Get of an expired key, or of one that has not expired, is wrong")
	}
}

func TestNewRefusesDelaysBeyondTheTimeouts(t *testing.T) {
	for _, cfg := range []Config{{EdgeDelay: 125 * time.Millisecond}, {RegionDelay: 500 * time.Millisecond}} {
		cfg.Regions, cfg.Rules, cfg.Start = []Region{{"eu", []string{"eu-1"}}}, rules(limit.RateSpec{Limit: 1, Per: time.Minute}), start
		if _, err := New(cfg); err == nil {
			t.Errorf("New with delays %v and %v: no error", cfg.EdgeDelay, cfg.RegionDelay)
		}
	}
}

// BenchmarkSilentDay is a day with a request in each of four edges every four
// hours, under a limit of a day.
func BenchmarkSilentDay(b *testing.B) {
	for range b.N {
		w := newWorld(b, rules(limit.RateSpec{Limit: 100, Per: 24 * time.Hour}))
		for h := range 7 {
			w.Advance(start.Add(time.Duration(4*h) * time.Hour))
			for _, e := range w.Edges() {
				check(w, e, "u")
			}
		}
	}
}
