package trial

import (
	"context"
	"flag"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

var trials = flag.Uint64("trials", 16, "how many, each run twice")

// Every trial keeps the invariants, and runs again as it ran.
func TestTrials(t *testing.T) {
	requests, denied, faults := 0, 0, 0
	kinds := map[string]int{}
	err := Search(Options{}, *trials, runtime.GOMAXPROCS(0), Twice, func(r Result) {
		requests, denied, faults = requests+r.Requests, denied+r.Denied, faults+r.Faults
		for _, f := range Faults {
			if strings.Contains(r.Plan, string(f)) {
				kinds[string(f)]++
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d trials, %d requests, %d denied, %d faults; kinds: %v", *trials, requests, denied, faults, kinds)
	if denied < requests/20 || faults == 0 || *trials >= 60 && len(kinds) < len(Faults) {
		t.Errorf("%d of %d denied, %d faults of %d kinds: the trials try little", denied, requests, faults, len(kinds))
	}
}

// A search runs each seed as it is told to, and no more.
func TestSearchRunsEachSeed(t *testing.T) {
	var ran [5]atomic.Int32
	run := func(o Options) Result {
		ran[o.Seed-40].Add(1)
		return Result{Options: o}
	}
	heard := 0
	if err := Search(Options{Seed: 40}, 5, 2, run, func(Result) { heard++ }); err != nil || heard != 5 {
		t.Errorf("Search = %v after %d results, want 5", err, heard)
	}
	for i := range ran {
		if n := ran[i].Load(); n != 1 {
			t.Errorf("seed %d ran %d times, want once", 40+i, n)
		}
	}
}

// So does every trial that nothing ails: there each crossing of a limit is told
// twice at most.
func TestQuietTrials(t *testing.T) {
	if err := Search(Options{Without: Faults}, *trials, runtime.GOMAXPROCS(0), Twice, func(Result) {}); err != nil {
		t.Fatal(err)
	}
}

// A decision that sends a message, or asks a store, is found out.
func TestDecisionsAreAlone(t *testing.T) {
	for what, do := range map[string]func(*trial){
		"sends": func(t *trial) { t.w.Inject("eu", "sg.v1.up.eu.0.e.p.e", nil, nil) },
		"asks":  func(t *trial) { _, _ = t.w.Store("eu").Epoch(context.Background()) },
		"":      func(*trial) {},
	} {
		w, err := world.New(newPlan(Options{Seed: 1}).config(start))
		if err != nil {
			t.Fatal(err)
		}
		tr := &trial{w: w}
		tr.alone("eu-1", func() { do(tr) })
		if (tr.err != nil) != (what != "") {
			t.Errorf("a decision that %q: %v", what, tr.err)
		}
	}
}

// An answer that names a store which was replaced since acknowledges nothing.
func TestAnswersStandForTheStoreThatTheyName(t *testing.T) {
	w, err := world.New(newPlan(Options{Seed: 1}).config(start))
	if err != nil {
		t.Fatal(err)
	}
	tr, eu := &trial{w: w}, w.Servers("eu")[0]
	was, err := w.Store("eu").Identity()
	if err != nil {
		t.Fatal(err)
	}
	down := &deltasync.Down{Status: deltasync.StatusOverloaded, Store: was}
	if !tr.acknowledges(eu, down) {
		t.Error("an answer acknowledges nothing")
	}
	if down.Status = deltasync.StatusStoreDown; tr.acknowledges(eu, down) {
		t.Error("it does without a store")
	}
	down.Status = deltasync.StatusOK
	if err := w.Store("eu").FailOver(0); err != nil {
		t.Fatal(err)
	}
	if tr.acknowledges(eu, down) {
		t.Error("it does after another has taken the store's place")
	}
}

// A fault that is left out leaves the rest as it was: the plan and the requests.
func TestLeavingOutAFaultKeepsTheRest(t *testing.T) {
	for seed := range uint64(40) {
		with := newPlan(Options{Seed: seed})
		for _, f := range Faults {
			if !with.has[f] || f == Evict || f == EvictServer { // which changes the keys
				continue
			}
			without := newPlan(Options{Seed: seed, Without: []Fault{f}})
			without.has[f] = true
			if with.String() != without.String() {
				t.Errorf("seed %d without %s:\n%v\nwith it:\n%v", seed, f, without, with)
			}
		}
	}
}
