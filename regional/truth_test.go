package regional_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

func ruleSet(t *testing.T, rules ...limit.RuleSpec) *limit.Set {
	t.Helper()
	set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: rules})
	if set == nil {
		t.Fatalf("rules: %v", problems)
	}
	return set
}

func apiRule(name string, rates ...limit.RateSpec) limit.RuleSpec {
	return limit.RuleSpec{Name: name, Key: []string{"user"}, Rates: rates}
}

// shapeOf is what edges tell of a rate.
func shapeOf(r *limit.Rate) deltasync.Shape {
	return deltasync.Shape{Generation: r.Generation, Width: r.Width, Slices: r.Span, Limit: r.Limit, Regional: r.Scope == limit.ScopeRegion, Refill: r.Drain.Refill, RefillPer: r.Drain.Per, Floor: r.Drain.Floor}
}

// truthful is a region alone that knows rules.
func truthful(t *testing.T, set *limit.Set, cfg regional.Config) *region {
	t.Helper()
	cfg.Region, cfg.Name, cfg.Lanes, cfg.Incarnation, cfg.StoreTimeout, cfg.Rules = "eu", "a1", 1, 1, time.Second, set
	r := &region{t: t, name: "eu", now: start}
	r.store = newStore(&r.now)
	a, err := regional.New(cfg, r.store)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	r.Aggregator = a
	r.Tick(r.now)
	return r
}

// pass lets time pass, with a Tick each second.
func (r *region) pass(d time.Duration) {
	for end := r.now.Add(d); r.now.Before(end); {
		r.now = r.now.Add(time.Second)
		r.Tick(r.now)
	}
}

// spends tells absolute counts of a key under a rate.
func (e *edge) spends(r *region, rate *limit.Rate, key deltasync.Key, cells ...crdt.Cell) {
	r.t.Helper()
	if down := e.send(r, deltasync.Section{Shape: shapeOf(rate), Deltas: []deltasync.Delta{{Key: key, Cells: cells}}}); down.Status != deltasync.StatusOK {
		r.t.Fatalf("status %s", down.Status)
	}
}

func cellAt(rate *limit.Rate, at time.Time, charges uint64) crdt.Cell {
	return crdt.Cell{Slice: rate.SliceAt(at.UnixNano()), Charges: charges}
}

// Two PoPs spend of one limit: who spends while nothing is left is the cause, however
// little of the limit it used.
func TestTruthSaysWhichPoP(t *testing.T) {
	set := ruleSet(t, apiRule("api", limit.RateSpec{Name: "ten", Limit: 100, Per: 10 * time.Second}))
	rate := set.Rules()[0].Rates[0]
	r := truthful(t, set, regional.Config{})
	hog, late := &edge{name: "e1", pop: "fra"}, &edge{name: "e2", pop: "ams"}
	r.pass(5 * time.Second)
	first := r.now
	hog.spends(r, rate, 9, cellAt(rate, first, 90))
	r.pass(time.Second)
	hog.spends(r, rate, 9, cellAt(rate, first, 90), cellAt(rate, r.now, 4))
	late.spends(r, rate, 9, cellAt(rate, r.now, 12)) // 10 of 16 fit
	r.pass(time.Second)
	late.spends(r, rate, 9, cellAt(rate, r.now, 6)) // none fits
	r.pass(20 * time.Second)
	got := r.Truth("t", "api")
	if len(got) != 1 || got[0].Rate != "ten" || got[0].Reported != got[0].Seen || got[0].Seen.Hits != 12 {
		t.Fatalf("truth %+v, want 12 hits too many", got)
	}
	want := []regional.Cause{{Name: "ams", Hits: 6*12./16 + 6}, {Name: "fra", Hits: 6 * 4. / 16}}
	if !slices.Equal(got[0].PoPs, want) {
		t.Errorf("caused by %+v, want %+v", got[0].PoPs, want)
	}
	if w := got[0].Worst; w == nil || w.Ratio != 0.12 || w.Over != 12 || w.Key != 9 {
		t.Errorf("worst window %+v, want 12 %% above the limit", w)
	}
}

// What comes after a slice has closed amends it, and what is told again changes nothing.
func TestLateCountsAmendTheTruth(t *testing.T) {
	set := ruleSet(t, apiRule("api", limit.RateSpec{Limit: 100, Per: 10 * time.Second, Algorithm: "fixed_window"}))
	rate := set.Rules()[0].Rates[0]
	r := truthful(t, set, regional.Config{})
	e1, e2 := &edge{name: "e1"}, &edge{name: "e2"}
	r.pass(2 * time.Second)
	at := r.now
	e1.spends(r, rate, 9, cellAt(rate, at, 95))
	r.pass(15 * time.Second)
	if got := r.Truth("t", "api")[0].Seen; got.Windows != 1 || got.Hits != 0 {
		t.Fatalf("before: %+v, want a window that held", got)
	}
	for range 3 {
		e2.spends(r, rate, 9, cellAt(rate, at, 8))
		r.pass(2 * time.Second)
	}
	if got := r.Truth("t", "api")[0].Seen; got.Hits != 3 || got.Over != 1 || got.Amended != 1 {
		t.Errorf("after: %+v, want 3 hits too many, once", got)
	}
}

// A limit that is lowered does not make what was spent under the old one too much.
func TestTruthOfALoweredLimit(t *testing.T) {
	spec := limit.RateSpec{Limit: 100, Per: 10 * time.Second}
	set := ruleSet(t, apiRule("api", spec))
	rate := set.Rules()[0].Rates[0]
	r := truthful(t, set, regional.Config{})
	e := &edge{name: "e1"}
	r.pass(2 * time.Second)
	at := r.now
	e.spends(r, rate, 9, cellAt(rate, at, 98))
	r.pass(time.Second)
	spec.Limit = 50
	set = ruleSet(t, apiRule("api", spec))
	r.SetRules(set)
	rate = set.Rules()[0].Rates[0]
	e.spends(r, rate, 9, cellAt(rate, r.now, 1))
	r.pass(25 * time.Second)
	if got := r.Truth("t", "api")[0].Seen; got.Hits != 0 || got.Windows == 0 {
		t.Errorf("%+v, want windows, and nothing too much", got)
	}
	at = r.now
	e.spends(r, rate, 9, cellAt(rate, at, 60))
	r.pass(15 * time.Second)
	if got := r.Truth("t", "api")[0].Seen; got.Hits != 10 {
		t.Errorf("%+v, want 10 hits above the new limit", got)
	}
}

// Under a flood of keys at their limit the memory is bounded, and what finds no room is
// counted; rules that are too many, or unknown, are told together.
func TestTruthIsBounded(t *testing.T) {
	var rules []limit.RuleSpec
	for i := range 300 {
		rules = append(rules, apiRule(fmt.Sprint("r", i), limit.RateSpec{Limit: 10, Per: 10 * time.Second}))
	}
	set := ruleSet(t, rules...)
	reg := prometheus.NewRegistry()
	r := truthful(t, set, regional.Config{Boot: still, Registerer: reg, MaxBytes: 64 << 20})
	r.pass(2 * time.Second)
	e := &edge{name: "e1"}
	foreign := ruleSet(t, apiRule("elsewhere", limit.RateSpec{Limit: 10, Per: 10 * time.Second})).Rules()[0].Rates[0]
	e.spends(r, foreign, 1<<40, cellAt(foreign, r.now, 12))
	const keys = 9000
	for from := 0; from < keys; from += 1000 {
		sections := []deltasync.Section{{Shape: shapeOf(set.Rules()[0].Rates[0])}, {Shape: shapeOf(set.Rules()[299].Rates[0])}}
		for k := range 1000 {
			s := &sections[k%2]
			s.Deltas = append(s.Deltas, deltasync.Delta{Key: deltasync.Key(from + k + 1), Cells: []crdt.Cell{cellAt(foreign, r.now, 11)}})
		}
		e.send(r, sections...)
	}
	r.pass(3 * time.Second)
	watched := 0
	list := r.Truth("", "")
	for _, x := range list {
		watched += x.Keys
	}
	if watched > 4096 || watched < 2000 || len(list) != 257 || list[256].Rule != "other" {
		t.Errorf("%d keys watched of %d rates, the last one of %q", watched, len(list), list[256].Rule)
	}
	if n := r.UnknownRates(r.now); n != 1 {
		t.Errorf("%d unknown rates, want 1", n)
	}
	if st := r.Stats(r.now); st.Bytes > 64<<20 {
		t.Errorf("%d bytes, want 64 MiB at most", st.Bytes)
	}
	r.pass(20 * time.Second)
	seen := uint64(0)
	for _, x := range r.Truth("", "") {
		if seen += x.Seen.Hits; x.Keys != 0 {
			t.Errorf("%s: %d keys watched that nobody asks for any more", x.Rule, x.Keys)
		}
	}
	if seen != uint64(watched) {
		t.Errorf("%d hits too many, want one of each of %d keys", seen, watched)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		if f.GetName() == "spillgate_over_admitted_hits_total" && len(f.GetMetric()) != 257 {
			t.Errorf("%d rules in metrics, want 256 and the others", len(f.GetMetric()))
		}
	}
	if values["spillgate_over_admitted_hits_total"] != float64(seen) || values["spillgate_truth_unwatched_total"] < keys-4096 {
		t.Errorf("metrics say %v hits, %v without room", values["spillgate_over_admitted_hits_total"], values["spillgate_truth_unwatched_total"])
	}
}

// Slots that were given back, and windows that a hit begins, cannot be judged by slices.
func TestWhatHasNoTruth(t *testing.T) {
	set := ruleSet(t, apiRule("slots", limit.RateSpec{Algorithm: "concurrency", Limit: 5, Lease: 10 * time.Second}),
		apiRule("first", limit.RateSpec{Algorithm: "fixed_window", Limit: 5, Per: 10 * time.Second, Align: "first_hit"}))
	r := truthful(t, set, regional.Config{})
	e := &edge{name: "e1"}
	for i, rule := range set.Rules() {
		e.spends(r, rule.Rates[0], deltasync.Key(i+1), cellAt(rule.Rates[0], r.now, 9))
	}
	r.pass(30 * time.Second)
	for _, x := range r.Truth("", "") {
		if x.Judged || x.Seen != (regional.Sums{}) {
			t.Errorf("%+v, want nothing said of it", x)
		}
	}
	if got := r.Truth("t", ""); len(got) != 2 {
		t.Errorf("%d rates are told of, want both, as not judged", len(got))
	}
}

// An aggregator was frozen for longer than its edges keep what they have to tell: of what
// ended meanwhile nobody knows whether it held, whatever is told afterwards.
func TestTruthOfAFrozenAggregator(t *testing.T) {
	set := ruleSet(t, apiRule("api", limit.RateSpec{Limit: 20, Per: 5 * time.Second, Algorithm: "fixed_window"}))
	rate := set.Rules()[0].Rates[0]
	for _, tt := range []struct {
		frozen     time.Duration
		incomplete uint64
	}{
		{2 * time.Second, 0},
		{6 * time.Second, 0},  // what ended is told yet
		{11 * time.Second, 1}, // the first window that ended is not
		{16 * time.Second, 2},
		{31 * time.Second, 2}, // of what is older nothing is told
	} {
		r, e := truthful(t, set, regional.Config{}), &edge{name: "e1"}
		r.pass(2 * time.Second)
		e.spends(r, rate, 9, cellAt(rate, r.now, 19))
		begun := r.now
		r.now = r.now.Add(tt.frozen)
		r.Tick(r.now)
		e.spends(r, rate, 9, cellAt(rate, r.now, 19))
		r.pass(20 * time.Second)
		got := r.Truth("t", "api")[0].Seen
		if got.Incomplete != tt.incomplete || got.ToldSince != tt.incomplete {
			t.Errorf("frozen for %v from %v: %+v, want %d windows incomplete", tt.frozen, begun.Sub(start), got, tt.incomplete)
		}
	}
}
