package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
)

// audited is a World of three regions that audit each other.
func audited(t *testing.T, targets regional.Targets, aggregators int, seed uint64) *World {
	t.Helper()
	cfg := Config{
		Rules: rules(limit.RateSpec{Limit: 1000, Per: time.Hour}), Start: start, Lanes: 4, Aggregators: aggregators, Targets: targets, Seed: seed, Audit: true,
	}
	for _, r := range []string{"ap", "eu", "us"} {
		cfg.Regions = append(cfg.Regions, Region{Name: r, Edges: []string{r + "-1", r + "-2"}})
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Advance(start.Add(2 * time.Second))
	return w
}

// drifts sums over all aggregators: what each believes too little of others, and of
// its own store; hits that are unknown where they are said to be from; and keys.
func drifts(w *World) (behind, store, ahead, compared uint64) {
	for _, h := range w.order {
		for _, v := range h.servers {
			if v.aggregator == nil {
				continue
			}
			for _, d := range v.aggregator.Drift(v.clock.at(w.now)) {
				if d.Region == h.name {
					store += d.Behind
				} else {
					behind += d.Behind
				}
				ahead += d.Ahead
				compared += d.Compared
			}
		}
	}
	return behind, store, ahead, compared
}

// hits has each edge charge some keys for a while.
func hits(w *World, d time.Duration) {
	for end, i := w.now.Add(d), 0; w.now.Before(end); i++ {
		w.Advance(w.now.Add(10 * time.Millisecond))
		check(w, w.Edges()[i%6], fmt.Sprint("u", i%7))
	}
}

// Under load there is drift; soon after it there is none, and at no time are hits
// believed that nobody made.
func TestAuditSeesDriftGo(t *testing.T) {
	for _, targets := range []regional.Targets{regional.TargetsMesh, regional.TargetsHomes} {
		for _, aggregators := range []int{1, 2} {
			w := audited(t, targets, aggregators, 1)
			hits(w, 10*time.Second)
			behind, _, ahead, compared := drifts(w)
			if behind == 0 || ahead != 0 || compared < 100 {
				t.Errorf("%s, %d aggregators, under load: %d hits behind, %d ahead, %d keys compared", targets, aggregators, behind, ahead, compared)
			}
			w.Advance(w.now.Add(10 * time.Second))
			if behind, store, ahead, _ := drifts(w); behind+store+ahead != 0 {
				t.Errorf("%s, %d aggregators, after it: %d hits behind, %d behind the store, %d ahead", targets, aggregators, behind, store, ahead)
			}
		}
	}
}

// A region that is cut off shows what the others lack of it when it is back.
func TestAuditAfterACut(t *testing.T) {
	w := audited(t, regional.TargetsMesh, 1, 1)
	hits(w, 2*time.Second)
	w.Cut("eu", true)
	hits(w, 5*time.Second)
	w.Advance(w.now.Add(15 * time.Second))
	for _, d := range w.Servers("us")[0].Aggregator().Drift(w.now) {
		if d.Region == "eu" && !d.Audited.IsZero() {
			t.Errorf("cut off for 20 s, us says of eu %+v", d)
		}
	}
	w.Cut("eu", false)
	w.Advance(w.now.Add(15 * time.Second))
	if behind, store, ahead, _ := drifts(w); behind+store+ahead != 0 {
		t.Errorf("after the cut: %d hits behind, %d behind the store, %d ahead", behind, store, ahead)
	}
	for _, d := range w.Servers("us")[0].Aggregator().Drift(w.now) {
		if d.Audited.IsZero() {
			t.Errorf("after the cut us says of %s %+v, want an audit", d.Region, d)
		}
	}
}

// What an aggregator had stored and not told when it died, and its edges with it,
// is found by the other regions' audits, though no edge of the region ever names
// the keys again.
func TestAuditFindsWhatTheDeadDidNotTell(t *testing.T) {
	w := audited(t, regional.TargetsMesh, 1, 1)
	for u := range 7 {
		check(w, "us-1", fmt.Sprint("u", u))
	}
	w.Advance(w.now.Add(time.Second))
	w.Cut("eu", true)
	for u := range 7 {
		for range 3 {
			check(w, "eu-1", fmt.Sprint("u", u))
		}
	}
	w.Advance(w.now.Add(500 * time.Millisecond))
	for _, e := range []string{"eu-1", "eu-2"} {
		if err := w.Crash(e); err != nil {
			t.Fatal(err)
		}
	}
	eu := w.Servers("eu")[0]
	w.Stop(eu)
	if err := w.Start(eu); err != nil {
		t.Fatal(err)
	}
	w.Cut("eu", false)
	w.Advance(w.now.Add(20 * time.Second))
	for u := range 7 {
		got := uint64(0)
		for _, v := range w.Servers("us")[0].Aggregator().Vectors(keyOf(w, fmt.Sprint("u", u))) {
			for _, c := range v.Cells {
				got += c.Charges
			}
		}
		if got != 4 {
			t.Errorf("us knows of %d hits of u%d, want its own 1 and eu's 3", got, u)
		}
	}
	if behind, store, ahead, _ := drifts(w); behind+store+ahead != 0 {
		t.Errorf("%d hits behind, %d behind the store, %d ahead", behind, store, ahead)
	}
}
